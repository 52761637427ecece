package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Requested is a callback that somebody asked for.
type Requested struct {
	Callback domain.Callback
	First    bool // it had not been scheduled before
}

// RequestDelivery delivers a result because somebody asks for it, whatever became of
// it before. One that was never scheduled is scheduled in the same append, so that
// every delivery asked for says who wanted it and why; it begins with round 2.
func (s *Service) RequestDelivery(ctx context.Context, m Meta, endpoint string, attempt domain.AttemptID, result domain.ResultDigest, window time.Duration, text string) (Requested, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return Requested{}, err
	}
	r, err := carryOut(ctx, s, callbacks, CallbackStream(endpoint, attempt), m, eventstore.ClassUrgent,
		func(st domain.Callback, now time.Time) (decision, error) {
			first, err := domain.DecideCallback(st, domain.ScheduleCallback{Endpoint: endpoint, AttemptID: attempt, Result: result, Window: window}, now)
			if err != nil {
				return decision{}, err
			}
			for _, e := range first {
				if st, err = domain.EvolveCallback(st, e, now); err != nil {
					return decision{}, err
				}
			}
			again, err := domain.DecideCallback(st, domain.ReplayCallback{ReasonText: ref, Window: window}, now)
			return decision{append(first, again...), texts}, err
		})
	// Of a repeated request the receipt is that of the first one.
	return Requested{r.State, err == nil && r.Receipt.Version == 1}, err
}

// CheckReason is the rule for what somebody gives as a reason, for requests that may
// turn out to have nothing to do.
func CheckReason(text string) error {
	_, _, err := reasonText(text)
	return err
}
