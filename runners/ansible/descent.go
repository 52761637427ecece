package ansible

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// descendants gives every process below root, root itself first where it is alive.
func descendants(root int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []int{root}
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// parentOf reads the fourth field of stat. The second may hold blanks and brackets.
func parentOf(pid int) (int, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 || string(fields[0]) == "Z" {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// freeze stops a whole tree, again until nothing new shows, and gives its members.
func freeze(root int) []int { return freezeBut(root, func(int) bool { return false }) }

// freezeBelow stops everything below this process but ssh's shared connections, by
// which the hosts are asked.
func freezeBelow() []int {
	return freezeBut(os.Getpid(), func(pid int) bool { return pid == os.Getpid() || holdsConnection(pid) })
}

// holdsConnection tells a process that ssh left behind to share its connection, by
// the name that it gives itself.
func holdsConnection(pid int) bool {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.HasPrefix(line, []byte("ssh: ")) && bytes.Contains(line, []byte("[mux]"))
}

func freezeBut(root int, spared func(pid int) bool) []int {
	var frozen []int
	for range 20 {
		grown := false
		for _, pid := range descendants(root) {
			if !slices.Contains(frozen, pid) && !spared(pid) {
				grown = true
				frozen = append(frozen, pid)
				// A process that has just ended needs no stopping.
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if !grown {
			break
		}
	}
	return frozen
}

// endTree kills a process and everything below it. It is frozen first, so that
// nothing is started while the list is made.
func endTree(root int) {
	kill(freeze(root))
	// Started in its own group: what left the tree by the death of its parent.
	_ = unix.Kill(-root, unix.SIGKILL)
}

func kill(pids []int) {
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
	}
}

// endBelow kills and reaps the processes below this one that match, until there is
// none. Nothing that still has a waiter here may match.
func endBelow(match func(pid int) bool) {
	self := os.Getpid()
	for range 10 {
		var below []int
		for _, pid := range descendants(self) {
			if pid != self && match(pid) {
				below = append(below, pid)
			}
		}
		if len(below) == 0 {
			return
		}
		kill(below)
		for _, pid := range below {
			// It may be a child of another one of these: then it comes here once that
			// has ended.
			for {
				if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
					break
				}
			}
		}
	}
}

// folderOf gives a process's current folder, "" if it cannot be seen.
func folderOf(pid int) string {
	dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
	if err != nil {
		return ""
	}
	return dir
}
