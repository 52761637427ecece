package isolation

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// Machine says what this machine can do for isolation.
type Machine struct {
	// Levels that a runner here may offer, weakest first.
	Levels []string `json:"levels"`
	Root   bool     `json:"root"`
	// Cgroup: a private cgroup v2 can be made.
	Cgroup bool `json:"cgroup"`
	// Pidfd: signals are sent by a pinned process, not by number.
	Pidfd bool `json:"pidfd"`
	// OtherUser: executors can run as another user.
	OtherUser bool `json:"other_user"`
	// Notes explain for people what is missing.
	Notes []string `json:"notes,omitempty"`
}

// Detect tries, and leaves nothing behind.
func Detect() Machine {
	m := Machine{Levels: []string{LevelProcess}, Root: os.Geteuid() == 0}
	m.OtherUser = m.Root
	c, err := NewCgroup("execution-plane-probe-" + uuid.NewString())
	if err == nil {
		m.Cgroup = true
		err = c.Remove()
	}
	if err != nil {
		m.Notes = append(m.Notes, err.Error())
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	switch {
	case err == nil:
		m.Pidfd = true
		unix.Close(fd)
	case errors.Is(err, unix.ENOSYS):
		m.Notes = append(m.Notes, "no pidfd: Linux 5.3 or later is needed")
	default:
		m.Notes = append(m.Notes, fmt.Sprintf("no pidfd: %v", err))
	}
	return m
}
