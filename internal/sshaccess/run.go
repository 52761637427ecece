package sshaccess

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of one run.
type Limits struct {
	// Run is the most that it may take, Idle the most without a byte of output; 0
	// means no limit but the context's.
	Run, Idle time.Duration
	// Output bounds stdout and stderr together, in bytes. Default 1 MiB.
	Output int64
	// Grace is the time between TERM and KILL when it is ended. Default 5 s.
	Grace time.Duration
	// Stdout and Stderr get the output as it comes, beside Result. They may be nil.
	// A writer that fails is not written to again.
	Stdout, Stderr io.Writer
}

// StopReason is why a run was ended, or cannot be followed any more.
type StopReason string

// Reasons of a stop. Empty: it ended by itself.
const (
	StopCancelled StopReason = "cancelled" // the context ended
	StopRun       StopReason = "run_limit"
	StopIdle      StopReason = "idle_limit"
	StopOutput    StopReason = "output_limit"
	StopLost      StopReason = "connection_lost"
)

// Result is what became of a run.
type Result struct {
	// Exit is the program's status as a shell words it: 128+n for signal n, 127 for
	// a program that is not there. -1 if it is not known.
	Exit int
	// Stdout and Stderr are whole unless Stopped is StopOutput.
	Stdout, Stderr []byte
	Started, Ended time.Time
	// Group is its process group on the host, 0 if that is not known.
	Group   int
	Stopped StopReason
	// Confirmed says that the program is known to have ended: it reported its end
	// by itself, or was looked for after it was stopped and nothing was left.
	Confirmed bool
	// Left says what stands against Confirmed, for people.
	Left string
	// SudoRefused says that sudo did not start the program.
	SudoRefused bool
}

const (
	defaultOutput = 1 << 20
	defaultGrace  = 5 * time.Second
	// drain is how long nothing of the output may come after the program's end before
	// it is taken for all: a child of it that lives on can hold it open for ever.
	// drainMost bounds it where such a child goes on writing.
	drain     = 2 * time.Second
	drainMost = 30 * time.Second
	// maxPreamble bounds what a login shell's start files may say before the
	// program starts, in bytes.
	maxPreamble = 64 << 10
)

// Run runs a program on the host, without a terminal and with nothing on its input,
// and waits until it has ended. sudo is the user that sudo runs it as, empty for
// none. When ctx ends or a limit is met, the program and all that it started are
// ended, TERM first and KILL after the grace. When the connection is lost, the host
// does the same as soon as it notices.
//
// The error is ErrArgument, a *NotStartedError or a *LostError; then the program did
// not run. Whatever happened once the host was asked to run it stands in the result.
func (c *Client) Run(ctx context.Context, argv []string, sudo string, limits Limits) (Result, error) {
	text, err := command(argv, sudo)
	if err != nil {
		return Result{Exit: -1}, err
	}
	if limits.Output <= 0 {
		limits.Output = defaultOutput
	}
	limits.Grace = orDefault(limits.Grace, defaultGrace)
	token := newToken()
	variables, err := reapVariables(token, limits.Grace, sudo)
	if err != nil {
		return Result{Exit: -1}, err
	}
	sh, err := c.openShell(ctx, runScript(token, text, variables))
	if err != nil {
		return Result{Exit: -1}, err
	}
	r := &run{client: c, shell: sh, token: token, variables: variables, limits: limits,
		result: Result{Exit: -1, Started: time.Now()}}
	r.out = newOutput(token, limits)
	var readers sync.WaitGroup
	readers.Go(func() { r.out.read(sh.channel, &r.out.stdout, limits.Stdout) })
	readers.Go(func() { r.out.read(sh.channel.Stderr(), &r.out.stderr, limits.Stderr) })
	drained := make(chan struct{})
	c.wg.Go(func() { readers.Wait(); close(drained) })
	r.follow(ctx)
	if r.result.Stopped == "" || r.result.Confirmed {
		r.rest(drained)
	}
	sh.close()
	// A host that is silent does not confirm the close.
	waitFor(drained, c.lost, drain/4)
	return r.finish(sudo)
}

// run is one program under way.
type run struct {
	client    *Client
	shell     *shell
	out       *output
	token     string
	variables string
	limits    Limits
	result    Result
}

// follow waits until the program has ended or must be ended.
func (r *run) follow(ctx context.Context) {
	var limit, idle <-chan time.Time
	if r.limits.Run > 0 {
		t := time.NewTimer(r.limits.Run)
		defer t.Stop()
		limit = t.C
	}
	var quiet *time.Timer
	if r.limits.Idle > 0 {
		quiet = time.NewTimer(r.limits.Idle)
		defer quiet.Stop()
		idle = quiet.C
	}
	for {
		select {
		case <-r.shell.ended:
			return
		case <-r.client.lost:
			return
		case <-r.out.activity:
			if quiet != nil {
				quiet.Reset(r.limits.Idle)
			}
			continue
		case <-ctx.Done():
			r.result.Stopped = StopCancelled
		case <-limit:
			r.result.Stopped = StopRun
		case <-idle:
			r.result.Stopped = StopIdle
		case <-r.out.full:
			r.result.Stopped = StopOutput
		}
		r.stop()
		return
	}
}

// rest waits for what of the output is still on its way.
func (r *run) rest(drained <-chan struct{}) {
	quiet, most := time.NewTimer(drain), time.NewTimer(drainMost)
	defer quiet.Stop()
	defer most.Stop()
	for {
		select {
		case <-drained:
			return
		case <-r.client.lost:
			return
		case <-r.out.full:
			return
		case <-r.out.activity:
			quiet.Reset(drain)
		case <-quiet.C:
			return
		case <-most.C:
			return
		}
	}
}

// finish words what was seen.
func (r *run) finish(sudo string) (Result, error) {
	r.result.Ended = time.Now()
	var began bool
	r.result.Group, began = r.out.group()
	r.result.Stdout, r.result.Stderr = r.out.close()
	if exit, ok := r.shell.status(); ok {
		r.result.Exit = exit
		r.result.Confirmed = r.result.Confirmed || r.result.Stopped == ""
		if r.result.Stopped == "" && r.out.cut() {
			r.result.Stopped = StopOutput
		}
	}
	switch {
	case r.result.Stopped != "" || r.result.Exit >= 0 && began:
	case !began && r.result.Exit >= 0 && r.client.Err() == nil:
		return r.result, &NotStartedError{r.client.hop, r.out.preamble()}
	default:
		r.result.Stopped = StopLost
		switch {
		case r.client.Err() == nil:
			r.result.Left = "the host closed the session without a status"
		case !began:
			r.result.Left = "it is not known whether it began; the host ends it when it notices that the connection is gone"
		default:
			r.result.Left = "the host ends it when it notices that the connection is gone"
		}
	}
	r.result.SudoRefused = sudo != "" && (r.result.Exit == 1 || r.result.Exit == 127) && sudoSays(r.result.Stderr)
	return r.result, nil
}

// sudoWarnings begin what sudo says and then goes on all the same.
var sudoWarnings = []string{"sudo: unable to resolve host", "sudo: setrlimit(", "sudo: unable to send audit message"}

// sudoRefusals are in sudo's words of no where these do not begin with its name.
var sudoRefusals = []string{" is not allowed to execute ", " is not in the sudoers file", " is not allowed to run sudo",
	"sudo: not found", "sudo: command not found"}

// sudoSays recognises sudo's own words; a program that it started seldom begins so.
func sudoSays(stderr []byte) bool {
	for line := range strings.Lines(string(stderr)) {
		within := func(said string) bool { return strings.Contains(line, said) }
		if slices.ContainsFunc(sudoWarnings, func(w string) bool { return strings.HasPrefix(line, w) }) {
			continue
		}
		return strings.HasPrefix(line, "sudo: ") || slices.ContainsFunc(sudoRefusals, within)
	}
	return false
}

// waitFor waits for a channel to close, but not longer than d, nor after the other
// has closed. It says whether the first closed.
func waitFor(done, other <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-other:
	case <-timer.C:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
