package proctest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is one line of the process table.
type Process struct {
	PID, Parent int
	State       string // as in /proc, "Z" is ended and not yet reaped
	Command     string // arguments joined by spaces, or the name in brackets
}

func (p Process) String() string {
	return fmt.Sprintf("pid %d (parent %d, state %s): %s", p.PID, p.Parent, p.State, p.Command)
}

// Descendants lists the processes below pid that its tree of parents shows,
// zombies included: a child that nobody waited for is a leak too. A process
// whose parent has died belongs to init and is not found here; Marked finds it.
func Descendants(pid int) []Process {
	children := map[int][]Process{}
	for _, p := range table() {
		children[p.Parent] = append(children[p.Parent], p)
	}
	var found []Process
	next := []int{pid}
	for len(next) > 0 {
		below := children[next[0]]
		next = next[1:]
		for _, p := range below {
			found = append(found, p)
			next = append(next, p.PID)
		}
	}
	return found
}

// Marked lists the processes whose environment holds the assignment, for
// example "JOB=4711". Environments are inherited, so a mark set on a child
// finds its whole tree, orphans included. Zombies have no environment.
func Marked(assignment string) []Process {
	var found []Process
	for _, p := range table() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if err != nil {
			continue // ended in between, or another user's
		}
		for _, entry := range bytes.Split(env, []byte{0}) {
			if string(entry) == assignment {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// Alive tells whether the process exists and is more than a zombie.
func Alive(pid int) bool {
	p, ok := read(pid)
	return ok && p.State != "Z"
}

func table() []Process {
	var all []Process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // constant pattern
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if p, ok := read(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

func read(pid int) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	// The name in brackets may hold anything, so fields count from its end.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, false
	}
	p := Process{PID: pid, Command: string(stat[open : end+1])}
	if _, err := fmt.Sscan(string(stat[end+1:]), &p.State, &p.Parent); err != nil {
		return Process{}, false
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
		p.Command = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
	}
	return p, true
}
