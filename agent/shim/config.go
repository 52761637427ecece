package shim

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Target says who gets a signal of the stop ladder.
type Target string

// Whom a step may address: the executor alone, its process group, or every
// process of the tree.
const (
	ToProcess Target = "process"
	ToGroup   Target = "group"
	ToTree    Target = "tree"
)

// Step is one rung of a stop ladder: send Signal (a name such as SIGTERM) to
// To, then give the tree Wait to end.
type Step struct {
	Signal string        `json:"signal"`
	To     Target        `json:"to"`
	Wait   time.Duration `json:"wait"`
}

// Ladder is how a tree is asked to end. After its last rung, SIGKILL goes to
// the whole tree; an empty ladder is SIGKILL at once.
type Ladder []Step

// Budget is the time until SIGKILL.
func (l Ladder) Budget() time.Duration {
	var d time.Duration
	for _, s := range l {
		d += s.Wait
	}
	return d
}

func (l Ladder) check() error {
	for i, s := range l {
		if unix.SignalNum(s.Signal) == 0 {
			return fmt.Errorf("step %d of the stop ladder: no signal is called %q", i+1, s.Signal)
		}
		if s.To != ToProcess && s.To != ToGroup && s.To != ToTree {
			return fmt.Errorf("step %d of the stop ladder: target %q is not process, group or tree", i+1, s.To)
		}
		if s.Wait < 0 {
			return fmt.Errorf("step %d of the stop ladder: a wait of %v", i+1, s.Wait)
		}
	}
	return nil
}

// Credential makes the executor another user. Only root can.
type Credential struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Defaults of Config.
const (
	DefaultPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	DefaultLang        = "C.UTF-8"
	DefaultReapTimeout = 10 * time.Second
)

// Config describes one run.
type Config struct {
	// Shim is the command that runs Main, such as {"/proc/self/exe", "shim"}.
	Shim []string
	// Dir is the attempt's private folder, absolute. Start makes it and the
	// folders of Layout(Dir) in it. It belongs to this run alone.
	Dir string
	// Argv is the executor; Argv[0] is an absolute path.
	Argv []string
	// Task goes to the executor's stdin. Protocol, WorkDir and OutputDir are
	// filled in; files and folders for secrets are the caller's.
	Task executor.Task
	// Path and Lang are the executor's PATH and LANG; empty is the default.
	Path, Lang string
	Limits     isolation.Limits
	// Credential, nil for the runner's own user. Files named in the task must
	// be readable to it, and Dir's parents passable.
	Credential *Credential
	// Isolation is what the executor is shut into; its zero value is level process.
	Isolation Isolation
	// Cgroup asks for a private cgroup. Where none can be made the run goes on
	// and Applied.NotApplied says so.
	Cgroup bool
	// Deadline is when the shim ends the tree by itself unless it is extended.
	Deadline isolation.BootTime
	// Ladder is used at the deadline and when the agent is lost, and by Stop
	// with a nil ladder.
	Ladder Ladder
	// ReapTimeout is how long after SIGKILL the proof may take; 0 is the default.
	ReapTimeout time.Duration
	// Private is the attempt's folder of package secretdir; empty without one. The
	// agent removes it; a shim whose agent is gone does so when the tree has ended.
	Private string
	// MessagesDir is where messages of the executor wait that the agent does not
	// take yet, beyond some that wait in memory; empty: in Dir. It is a folder of
	// the agent's, for a run whose messages must reach no disk.
	MessagesDir string
	// Diagnostics takes the shim's own stderr, normally silent. May be nil.
	Diagnostics io.Writer
}

func (c *Config) check() error {
	if len(c.Shim) == 0 {
		return errors.New("the shim's command is missing")
	}
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) {
		return fmt.Errorf("the executor's command %q is not an absolute path", c.Argv)
	}
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("the attempt's folder %q is not an absolute path", c.Dir)
	}
	if c.Deadline <= isolation.BootNow() {
		return errors.New("the deadline has passed")
	}
	if c.ReapTimeout < 0 {
		return fmt.Errorf("a reap timeout of %v", c.ReapTimeout)
	}
	if err := c.Isolation.check(); err != nil {
		return err
	}
	return c.Ladder.check()
}
