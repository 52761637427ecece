package agent

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// drainNotice is how long the service may take to hear that this runner drains.
// Nothing depends on it but that no offer is lost and that people can see it.
const drainNotice = 5 * time.Second

// drain waits for what runs. Past the limit the jobs are ended; what cannot be
// sent then is left to the next agent.
func (a *Agent) drain() error {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	a.tasks.Go(a.announceDrain)
	limit := time.NewTimer(a.config.DrainLimit)
	defer limit.Stop()
	overdue := false
	quiet := a.quiet
	for quiet != nil || a.count() > 0 {
		select {
		case <-quiet:
			quiet = nil
		case <-a.changed:
		case <-limit.C:
			if overdue {
				return nil
			}
			overdue = true
			limit.Reset(a.leaveAll() + 30*time.Second)
		case err := <-a.fatal:
			return a.abandon(err)
		case <-a.life.Done():
			return nil
		}
	}
	return nil
}

// announceDrain tells the service that nothing new is taken. The held request
// goes on meanwhile: it is answered with the drain, or with an offer that crossed
// it and is given back. Cut off, that offer would have to run out.
func (a *Agent) announceDrain() {
	ctx, cancel := context.WithTimeout(a.life, drainNotice)
	defer cancel()
	key := uuid.New()
	err := insist(ctx, callTimeout, func(ctx context.Context) error {
		return a.plane().Drain(ctx, a.cred.RunnerID, key, "the runner was told to end")
	})
	if err != nil {
		if a.life.Err() == nil {
			// One of a release before does not let runners say it.
			a.config.Log.Info("the service does not know that this runner drains", "error", err)
		}
		a.settle()
		poke(a.slotFreed) // ask again, without free slots
		return
	}
	a.mu.Lock()
	a.told = true
	heard := a.planeDrain
	a.mu.Unlock()
	if heard {
		// The held request was answered with the drain before this call was.
		a.settle()
	}
	select {
	case <-a.quiet:
	case <-ctx.Done():
		a.settle()
	}
}

// settle says that no offer can be on its way to this runner any more.
func (a *Agent) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.settled {
		a.settled = true
		close(a.quiet)
	}
}

// answeredInDrain takes note of an answer to the held request. One that came
// after the service knew of the drain brought all that was offered before it.
func (a *Agent) answeredInDrain() {
	a.mu.Lock()
	told := a.told
	a.mu.Unlock()
	if told {
		a.settle()
	}
}
