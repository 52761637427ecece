package isolation

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descendants lists the living processes below root, parents before children.
// One call is a view of a moving thing: a fork or an exit while it reads may
// be missed, so whoever must be sure calls it until nothing new appears.
func Descendants(root int) []Stat {
	if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"); err != nil {
		return below(root, AllProcesses())
	}
	var out []Stat
	seen := map[int]bool{root: true}
	queue := []int{root}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, child := range children(pid) {
			if seen[child] {
				continue
			}
			seen[child] = true
			s, err := ReadStat(child)
			if err != nil {
				continue
			}
			if !s.Dead() {
				out = append(out, s)
			}
			queue = append(queue, child)
		}
	}
	return out
}

// children reads the children of every thread: an orphan is adopted by some
// thread of the subreaper, not always by its first.
func children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range threads {
		b, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// AllProcesses lists every process that this one may see, zombies included.
func AllProcesses() []Stat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []Stat
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := ReadStat(pid); err == nil {
			out = append(out, s)
		}
	}
	return out
}

func below(root int, all []Stat) []Stat {
	byParent := map[int][]Stat{}
	for _, s := range all {
		byParent[s.Parent] = append(byParent[s.Parent], s)
	}
	var out []Stat
	seen := map[int]bool{root: true}
	queue := []int{root}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, s := range byParent[pid] {
			if seen[s.Pid] {
				continue
			}
			seen[s.Pid] = true
			if !s.Dead() {
				out = append(out, s)
			}
			queue = append(queue, s.Pid)
		}
	}
	return out
}

// maxFreezePasses bounds one round of KillBelow. Every pass stops all that it
// sees, so a storm must outrun the walk this many times to survive a round.
const maxFreezePasses = 32

// KillBelow sends SIGKILL to all that it finds with list. It first stops them,
// and looks again until nothing new appears: what is stopped cannot fork, so a
// fork storm is caught whole. It returns how many it sent SIGKILL to. The
// caller repeats it until the kernel says that no child is left.
func KillBelow(list func() []Stat) int {
	stopped := map[Identity]bool{}
	var order []Identity
	for range maxFreezePasses {
		fresh := false
		for _, s := range list() {
			if s.Dead() || stopped[s.Identity] {
				continue
			}
			fresh = true
			stopped[s.Identity] = true
			order = append(order, s.Identity)
			// An error means gone or not ours; SIGKILL below meets the same.
			_ = s.Identity.Signal(unix.SIGSTOP)
		}
		if !fresh {
			break
		}
	}
	killed := 0
	for _, id := range order {
		if err := id.Signal(unix.SIGKILL); err == nil || !errors.Is(err, ErrGone) {
			killed++
		}
	}
	return killed
}
