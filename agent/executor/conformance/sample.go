package conformance

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// sampleEvery is how often the executor's tools are looked at.
const sampleEvery = 3 * time.Millisecond

// sample looks at the processes below an executor while it runs, and notes
// which of them hold its control socket.
type sample struct {
	mu      sync.Mutex
	tools   map[isolation.Identity]bool
	holders []string
}

func newSample() *sample { return &sample{tools: map[isolation.Identity]bool{}} }

// watch samples until the returned function is called.
func (s *sample) watch(p *shim.Process) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.Started():
		case <-quit:
			return
		}
		pid, _, ok := p.Running()
		if !ok {
			return
		}
		socket := link(pid, executor.ControlFD)
		own := cmdline(pid)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-p.Done():
				return
			case <-tick.C:
				s.look(pid, socket, own)
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (s *sample) look(pid int, socket string, own []byte) {
	for _, d := range isolation.Descendants(pid) {
		cmd := cmdline(d.Pid)
		// A process with the executor's own command line is a fork of it that
		// has executed nothing yet: a subshell, or a tool about to be.
		if len(cmd) == 0 || bytes.Equal(cmd, own) {
			continue
		}
		s.mu.Lock()
		s.tools[d.Identity] = true
		s.mu.Unlock()
		if socket == "" || !holds(d.Pid, socket) {
			continue
		}
		name := string(bytes.TrimRight(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}), " "))
		s.mu.Lock()
		if !slices.Contains(s.holders, name) {
			s.holders = append(s.holders, name)
		}
		s.mu.Unlock()
	}
}

func (s *sample) seen() (tools int, holders []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tools), slices.Clone(s.holders)
}

func holds(pid int, socket string) bool {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); err == nil && target == socket {
			return true
		}
	}
	return false
}

// link is what a descriptor stands for, empty unless it is a socket.
func link(pid, fd int) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	if err != nil || !strings.HasPrefix(target, "socket:") {
		return ""
	}
	return target
}

func cmdline(pid int) []byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return b
}
