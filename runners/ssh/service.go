package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/policy"
)

// serviceReport is a restart with the unit's state before and after.
type serviceReport struct {
	Unit    string            `json:"unit"`
	Before  map[string]string `json:"before"`
	After   map[string]string `json:"after"`
	Restart *commandReport    `json:"restart,omitempty"`
	// Reason says why the restart does not count.
	Reason string `json:"reason,omitempty"`
}

const (
	restartTimeout = 5 * time.Minute
	stateTimeout   = 20 * time.Second
	stateInterval  = 500 * time.Millisecond
	defaultSettle  = 2 * time.Second
	defaultStart   = 30 * time.Second
)

func (j *job) decideRestart() (func(context.Context) executor.Outcome, error) {
	grant, verdict := j.bundle.ServiceGrant(j.input)
	if err := j.rec.decided("restart of "+j.params.Unit, verdict); err != nil {
		return nil, err
	}
	return func(ctx context.Context) executor.Outcome {
		r := &serviceReport{Unit: grant.Unit}
		j.report.Service = r
		o, result := j.restart(ctx, grant, r)
		if result != passed {
			r.Reason = o.Message
		}
		j.finish(result, r)
		return o
	}, nil
}

// restart restarts the unit once, and gives the outcome and what the evidence says.
func (j *job) restart(ctx context.Context, grant policy.ServiceGrant, r *serviceReport) (executor.Outcome, string) {
	var err error
	if r.Before, err = j.unitState(ctx, grant); err != nil {
		return ofError(ctx, err), inconclusive
	}
	done, err := j.runCommand(ctx, grant.Restart, grant.Sudo, sshaccess.Limits{Run: restartTimeout,
		Idle: seconds(j.params.IdleTimeout), Stdout: j.stdout, Stderr: j.stderr})
	if err != nil {
		return ofError(ctx, err), inconclusive
	}
	r.Restart = describe(grant.Restart, grant.Sudo, done)
	o := ended(done, []int{0})
	if o.Result != executor.Succeeded {
		if done.Stopped == "" {
			// A unit that did not come up is the best that can be shown of it.
			r.After, _ = j.unitState(ctx, grant)
		}
		return o, seen(o, done)
	}
	if err := j.settle(ctx, grant, r); err != nil {
		o := ofError(ctx, err)
		o.Code = &done.Exit
		if o.Result == executor.TaskFailed && ctx.Err() == nil {
			return o, failed
		}
		return o, inconclusive
	}
	if r.After["ActiveState"] == "" {
		o.Message = "the restart command ended well; what shows the unit's state names no ActiveState"
		return o, inconclusive
	}
	o.Message = fmt.Sprintf("%s is active after the restart", grant.Unit)
	return o, passed
}

// unitState reads the unit's state. A status other than 0 is no error: it says so of
// a unit that is down.
func (j *job) unitState(ctx context.Context, grant policy.ServiceGrant) (map[string]string, error) {
	r, err := j.client.Run(ctx, grant.State, "", sshaccess.Limits{Run: stateTimeout, Output: 64 << 10})
	if err != nil {
		return nil, err
	}
	if r.Stopped == sshaccess.StopLost {
		return nil, &sshaccess.LostError{Hop: j.report.Host, Cause: errors.New("while the unit's state was read")}
	}
	if r.Stopped != "" {
		return nil, failedf(categoryUnknown, "reading the unit's state was %s", stopped(r))
	}
	if r.Exit == 127 {
		return nil, failedf(categoryUnknown, "the host has no %s to read the unit's state", grant.State[0])
	}
	state := map[string]string{}
	for line := range strings.Lines(string(r.Stdout)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && len(state) < 64 {
			state[clip(key, 100)] = clip(value, 500)
		}
	}
	return state, nil
}

// settle waits until the unit is up as another process, and stays so: a service that
// ends a second after its start is not restarted.
func (j *job) settle(ctx context.Context, grant policy.ServiceGrant, r *serviceReport) error {
	settle := defaultSettle
	if j.params.Settle != nil {
		settle = seconds(*j.params.Settle)
	}
	deadline := time.Now().Add(secondsOr(j.params.StartTimeout, defaultStart))
	var up map[string]string // the state in which it was first seen up
	var since time.Time
	for {
		state, err := j.unitState(ctx, grant)
		if err != nil {
			return err
		}
		r.After = state
		now := time.Now()
		switch {
		case state["ActiveState"] == "":
			return nil
		case up != nil && !sameRun(up, state):
			return failedf(categoryUnknown, "%s came up after the restart and did not stay up: it is %s (%s)", grant.Unit, state["ActiveState"], state["SubState"])
		case state["ActiveState"] == "failed":
			return failedf(categoryUnknown, "%s failed after the restart (%s)", grant.Unit, state["SubState"])
		case state["ActiveState"] == "active" && changed(r.Before, state):
			if up == nil {
				up, since = state, now
			}
			if now.Sub(since) >= settle {
				return nil
			}
		case now.After(deadline):
			return failedf(categoryUnknown, "%s is %s (%s) and %s", grant.Unit, state["ActiveState"], state["SubState"], sameness(r.Before, state))
		}
		pause := stateInterval
		if up != nil {
			pause = min(pause, max(settle-now.Sub(since), 0))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// identity are the properties that another start changes.
var identity = []string{"MainPID", "ExecMainStartTimestamp"}

// changed says whether the unit was started again. A unit that shows neither
// property counts as such.
func changed(before, after map[string]string) bool {
	known := false
	for _, name := range identity {
		if after[name] == "" {
			continue
		}
		known = true
		if before[name] != after[name] {
			return true
		}
	}
	return !known
}

func sameRun(a, b map[string]string) bool {
	for _, name := range append([]string{"ActiveState", "NRestarts"}, identity...) {
		if a[name] != b[name] {
			return false
		}
	}
	return true
}

func sameness(before, after map[string]string) string {
	if changed(before, after) {
		return "was started again"
	}
	return "is the process of before the restart"
}
