package ansible

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// run is what one ansible-playbook came to.
type run struct {
	tally       *tally
	reader      *eventReader
	code        int
	refused     error // what the guard refused
	stopped     bool
	interrupted []remoteEnd
}

// trouble is why the event stream cannot be trusted; nil if it can.
func (r *run) trouble() error { return errors.Join(r.reader.broken, r.tally.err) }

// arguments are those of ansible-playbook: only names and numbers that passed
// their grammars, and files of ours.
func (a *attempt) arguments() ([]string, error) {
	args := []string{"--extra-vars=@" + a.path("variables.yml")}
	if len(a.p.SecretVariables) > 0 {
		args = append(args, "--extra-vars=@"+a.path("secrets"))
	}
	args = append(args, "--extra-vars=@"+a.path("fixed.yml"))
	if a.checkMode() {
		args = append(args, "--check", "--diff")
	} else if a.p.Diff {
		args = append(args, "--diff")
	}
	if a.p.Become {
		args = append(args, "--become", "--become-user="+a.p.BecomeUser)
	}
	limit, err := a.limit()
	if err != nil {
		return nil, err
	}
	for _, o := range [][2]string{
		{"--limit", limit}, {"--tags", strings.Join(a.p.Tags, ",")}, {"--skip-tags", strings.Join(a.p.SkipTags, ",")},
	} {
		if o[1] != "" {
			args = append(args, o[0]+"="+o[1])
		}
	}
	if a.p.Verbosity > 0 {
		args = append(args, "-"+strings.Repeat("v", a.p.Verbosity))
	}
	return append(args, "--", a.playbook), nil
}

// run runs ansible-playbook to its end, or until the attempt is stopped.
func (a *attempt) run() executor.Outcome {
	args, err := a.arguments()
	if err != nil {
		return outcomeOf(err)
	}
	stopSecrets := func() {}
	if len(a.p.SecretVariables) > 0 {
		data, err := a.secretVariables()
		if err != nil {
			return outcomeOf(err)
		}
		if stopSecrets, err = servePipe(a.ctx, a.path("secrets"), data); err != nil {
			return outcomeOf(err)
		}
	}
	r, err := a.play(args)
	stopSecrets()
	if err != nil {
		return outcomeOf(err)
	}
	outcome := a.outcome(r)
	if err := a.report(r); err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Code: outcome.Code, RecommendedCategory: categoryInfrastructure,
			Message: "what the run left could not be kept: " + err.Error()}
	}
	return outcome
}

// play starts ansible-playbook and follows it.
func (a *attempt) play(args []string) (*run, error) {
	keep, err := os.OpenFile(filepath.Join(a.task.OutputDir, artifactEvents+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making the file of the event stream: %w", err)
	}
	defer keep.Close()
	events, eventsEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making the event pipe: %w", err)
	}
	defer events.Close()
	refusals, guardEnd, err := guardPipe()
	if err != nil {
		eventsEnd.Close()
		return nil, err
	}
	cmd := exec.Command(a.tools.playbook, args...)
	cmd.Dir, cmd.Env = a.dir, a.environment()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{eventsEnd, guardEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	eventsEnd.Close()
	guardEnd.Close()
	if err != nil {
		_ = refusals.wait() // nothing has run that could be refused
		return nil, fmt.Errorf("starting ansible-playbook: %w", err)
	}
	r := &run{tally: newTally()}
	r.reader = &eventReader{keep: keep, handle: r.tally.handle}
	a.follow(r, cmd, events, refusals)
	if err := keep.Sync(); err != nil {
		r.reader.fail(fmt.Errorf("keeping the event stream: %w", err))
	}
	return r, nil
}

// drainWait is how long the event pipe may stay open after ansible has ended:
// something that it started holds it.
const drainWait = 2 * time.Second

// follow waits for the end of a run, and ends it when the attempt is stopped or the
// guard refused something.
func (a *attempt) follow(r *run, cmd *exec.Cmd, events *os.File, refusals *refusals) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.reader.run(events)
	}()
	reporting, stopReporting := context.WithCancel(context.Background())
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		a.reportProgress(reporting, r.tally)
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var err error
	select {
	case err = <-ended:
		r.interrupted = a.endLeft()
	case <-a.ctx.Done():
		r.stopped = true
		a.logf("stopping: ending what runs on the hosts")
		r.interrupted = a.stopRun(cmd.Process.Pid)
		err = <-ended
	case <-refusals.first:
		r.interrupted = a.stopRun(cmd.Process.Pid)
		err = <-ended
	}
	var waitErr error
	if r.code, waitErr = exitCode(err); waitErr != nil {
		r.reader.fail(waitErr)
	}
	select {
	case <-read:
	case <-time.After(drainWait):
		endTree(cmd.Process.Pid)
		events.Close()
		<-read
	}
	r.refused = refusals.wait()
	stopReporting()
	<-reported
}

// reportProgress tells where the run stands, when that has changed. It may wait for
// the reader of the control socket, while events go on being read.
func (a *attempt) reportProgress(ctx context.Context, t *tally) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	told := int64(-1)
	before := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		phase, last, done := t.standing()
		if phase == "" || (done == told && last == before) {
			continue
		}
		told, before = done, last
		// The end of a reader ends the executor by other means.
		_ = a.control.Progress(phase, done, 0, last)
	}
}

// refusals are what the guard said, on a pipe of its own.
type refusals struct {
	first chan struct{} // closed at the first
	done  chan struct{}
	err   error
	pipe  *os.File
}

// guardPipe gives the reader and the end for the tool, which the caller closes once
// the tool has it.
func guardPipe() (*refusals, *os.File, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making the guard's pipe: %w", err)
	}
	r := &refusals{first: make(chan struct{}), done: make(chan struct{}), pipe: reader}
	go r.read()
	return r, writer, nil
}

func (r *refusals) read() {
	defer close(r.done)
	lines := bufio.NewScanner(r.pipe)
	for lines.Scan() {
		var said struct {
			Kind  string `json:"kind"`
			Value string `json:"value"`
		}
		if r.err != nil || json.Unmarshal(lines.Bytes(), &said) != nil {
			continue
		}
		r.err = denied("the run wanted the %s %s, which policy does not give", said.Kind, strconv.QuoteToASCII(clip(said.Value, 200)))
		close(r.first)
	}
}

// wait gives what was refused first, nil if nothing was. The tool has ended.
func (r *refusals) wait() error {
	select {
	case <-r.done:
	case <-time.After(drainWait):
		r.pipe.Close()
		<-r.done
	}
	r.pipe.Close()
	return r.err
}
