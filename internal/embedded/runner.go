package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/runners"
)

// RunnerTypes are the job types that this program can run.
func RunnerTypes() []string {
	return []string{runners.TypeVerification, runners.TypeAnsible, runners.TypeSSH}
}

// startRunners starts a runner for each job type whose tools are here.
func (s *Stack) startRunners(ctx, run context.Context, o Options) error {
	if o.Runner == nil {
		return nil
	}
	types := o.Runner.JobTypes
	if len(types) == 0 {
		types = []string{runners.TypeVerification}
	}
	for _, jobType := range types {
		err := s.startRunner(ctx, run, o, jobType)
		var missing *MissingToolError
		if errors.As(err, &missing) {
			o.Progress("no " + jobType + " runner: " + missing.Error())
			continue
		}
		if err != nil {
			return err
		}
		s.running = append(s.running, jobType)
	}
	return nil
}

// Runs says whether a runner of the job type was started.
func (s *Stack) Runs(jobType string) bool { return slices.Contains(s.running, jobType) }

func (s *Stack) startRunner(ctx, run context.Context, o Options, jobType string) error {
	o.Progress("starting the " + jobType + " runner")
	part := "runner"
	if jobType != runners.TypeVerification {
		part += "-" + jobType
	}
	dir, err := s.dir(o, part)
	if err != nil {
		return fmt.Errorf("make the runner's folder: %w", err)
	}
	enrolment, err := plane.IssueEnrolment(ctx, s.Plane.Commands, o.Runner.Pool, time.Hour)
	if err != nil {
		return fmt.Errorf("enrol the runner: %w", err)
	}
	connect, err := agent.Dial(s.URL, "execution-plane/"+o.Version)
	if err != nil {
		return err
	}
	c, err := RunnerConfig(ctx, jobType, o.Runner.Executable, o.Version, agent.Config{
		Connect: connect, EnrolmentToken: enrolment, StateDir: dir, Slots: o.Runner.Slots, Log: o.Log, DrainLimit: 20 * time.Second, Vault: o.Runner.Vault,
	})
	if err != nil {
		return err
	}
	a, err := agent.New(c)
	if err != nil {
		return fmt.Errorf("start the %s runner: %w", jobType, err)
	}
	done := make(chan struct{})
	agentRun, stop := context.WithCancel(run)
	go func() {
		defer close(done)
		if err := a.Run(agentRun); err != nil && agentRun.Err() == nil {
			s.failed <- err
		}
	}()
	s.closers = append(s.closers, func() error { stop(); <-done; return nil })
	return nil
}

// RunnerConfig fills in what the runner of one job type of this program is. The
// error is a *MissingToolError where its tools are not on this machine.
func RunnerConfig(ctx context.Context, jobType, executable, version string, c agent.Config) (agent.Config, error) {
	if !slices.Contains(RunnerTypes(), jobType) {
		return c, fmt.Errorf("this program has no runner of type %q; it has %v", jobType, RunnerTypes())
	}
	tools, err := toolsOf(ctx, jobType)
	if err != nil {
		return c, err
	}
	c.Name, c.Version, c.Tools = jobType+"-runner", version, tools
	c.Cgroup = true // where one can be made; what was applied is recorded
	c.Executors = map[string]agent.Executor{jobType: {Argv: []string{executable, "executor", "serve", jobType}}}
	c.Shim = []string{executable, "shim"}
	for _, a := range runners.Catalogue().List() {
		if a.JobType == jobType {
			c.Actions = append(c.Actions, a.Name)
		}
	}
	if c.Host == "" {
		c.Host, _ = os.Hostname() // a name for people; empty is fine
	}
	return c, nil
}

// MissingToolError says which program a runner needs and what installs it.
type MissingToolError struct {
	Tool, Install string
}

func (e *MissingToolError) Error() string {
	return e.Tool + " is not installed; " + e.Install
}

// coreVersion is in the first line of ansible-playbook --version, which was
// "ansible 2.9.6" before the package was split.
var coreVersion = regexp.MustCompile(`^ansible-playbook \[core ([0-9]+\.[0-9]+\.[0-9]+)`)

// toolTimeout bounds how long a tool may take to tell its version: a Python program
// on a busy machine.
const toolTimeout = time.Minute

// toolsOf finds the tools of a job type with their versions, by which jobs may ask
// for them.
func toolsOf(ctx context.Context, jobType string) (map[string]string, error) {
	if jobType != runners.TypeAnsible {
		return nil, nil
	}
	const install = "apt-get install ansible-core openssh-client, or pip install ansible-core"
	for _, tool := range []string{"ansible-playbook", "ansible-inventory", "ssh"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, &MissingToolError{Tool: tool, Install: install}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	home, err := os.MkdirTemp("", "execution-plane-ansible-")
	if err != nil {
		return nil, fmt.Errorf("ask ansible for its version: %w", err)
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, "ansible-playbook", "--version")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "ANSIBLE_HOME=" + filepath.Join(home, ".ansible")}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask ansible-playbook for its version: %w", err)
	}
	m := coreVersion.FindSubmatch(out)
	if m == nil {
		return nil, &MissingToolError{Tool: "ansible-core", Install: "the ansible-playbook found is too old; " + install}
	}
	return map[string]string{"ansible-core": string(m[1])}, nil
}
