package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// enter registers for the first time in this process's life, repeating until
// the service answers or ctx ends.
func (a *Agent) enter(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	return a.register(ctx)
}

// register makes the runner known: with the enrolment token once, with its own
// token ever after.
func (a *Agent) register(ctx context.Context) error {
	a.identify.Lock()
	defer a.identify.Unlock()
	req := a.registration()
	bearer := a.cred.bearer()
	if a.cred.TokenID.IsZero() {
		if a.config.EnrolmentToken == "" {
			return errors.New("this runner is not enrolled; get a token from an operator (execution-plane runner enroll) and start it with that")
		}
		bearer = a.config.EnrolmentToken
		req.TokenSHA256 = secretSHA256(a.cred.Secret)
	}
	p := a.config.Connect(bearer)
	defer p.Close()
	key := uuid.New()
	var got wire.Registered
	warned := false
	final := func(err error) bool { return definite(err) || identityRefused(err) }
	err := insistUntil(ctx, callTimeout, final, func(ctx context.Context) (err error) {
		got, err = p.Register(ctx, key, req)
		if err != nil && !final(err) && !warned {
			warned = true
			a.config.Log.Warn("the service is not reached; trying on", "error", err)
		}
		return err
	})
	switch {
	case err == nil:
		return a.registered(got)
	case final(err) && !a.cred.TokenID.IsZero():
		return fmt.Errorf("register this runner: its own token is refused: %w; if it was evicted and is to come back, move the state folder %s away and enrol it anew", err, a.config.StateDir)
	case final(err):
		return fmt.Errorf("register this runner: the enrolment is refused: %w; ask an operator for a new token (execution-plane runner enroll)", err)
	}
	return fmt.Errorf("register this runner: %w", err)
}

func (a *Agent) registered(got wire.Registered) error {
	if got.RunnerID != a.cred.RunnerID || got.TokenID.IsZero() || got.Timing.FenceSeconds <= 0 || got.Timing.ReportSeconds <= 0 {
		return errors.New("register this runner: the service's answer names no runner, token or timing")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cred.TokenID != got.TokenID {
		a.cred.TokenID = got.TokenID
		if err := a.cred.save(a.config.StateDir); err != nil {
			return err
		}
	}
	if a.current == nil {
		a.current = a.config.Connect(a.cred.bearer())
	}
	a.timing, a.slots = got.Timing, max(0, min(got.Slots, a.config.Slots))
	a.config.Log.Info("registered", "runner_id", got.RunnerID.String(), "pool", got.Pool, "status", got.Status,
		"slots", a.slots, "profile", got.Timing.Profile)
	if got.Status == "unapproved" {
		a.config.Log.Warn("policy does not approve this runner implementation, so it gets no work; approve its name and version in the policy bundle")
	}
	return nil
}

// reidentify registers again after the service refused the runner as such. If
// it is refused again, the agent ends.
func (a *Agent) reidentify(cause error) {
	a.config.Log.Warn("the service does not know this runner any more; registering again", "error", cause)
	err := a.register(a.life)
	if err == nil || a.life.Err() != nil {
		return
	}
	select {
	case a.fatal <- err:
	default:
	}
}

// reidentifyBeside is reidentify without waiting: a service that is slow to say
// who we are must not hold up the reports. One at a time.
func (a *Agent) reidentifyBeside(cause error) {
	if !a.reidentifying.CompareAndSwap(false, true) {
		return
	}
	a.tasks.Go(func() {
		defer a.reidentifying.Store(false)
		a.reidentify(cause)
	})
}

func (a *Agent) registration() wire.Registration {
	c := &a.config
	return wire.Registration{
		RunnerID: a.cred.RunnerID, Name: c.Name, Version: c.Version, BinarySHA256: c.BinarySHA256, Host: c.Host,
		JobTypes: slices.Sorted(maps.Keys(c.Executors)), Actions: nonNil(c.Actions), Environments: c.Environments,
		Labels: c.Labels, Tools: c.Tools, Isolation: c.Isolation, Slots: c.Slots,
	}
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func fileSHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
