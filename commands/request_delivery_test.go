package commands_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// Who asks for the delivery of a result that was never scheduled, such as to an
// endpoint that is new, is in the ledger with a reason; the request sent again has no
// other effect and the same answer.
func TestRequestedDeliveryIsScheduledAndReplayedAtOnce(t *testing.T) {
	b := newBench(t)
	id := domain.NewID[domain.AttemptID](uuid.New())
	m := meta("history for a new endpoint")
	for range 2 {
		r, err := b.s.RequestDelivery(t.Context(), m, endpoint, id, delivered, time.Hour, "the endpoint is new")
		b.must(err)
		if !r.First || r.Callback.State != domain.CallbackPending || r.Callback.Round != 2 {
			t.Errorf("%+v", r)
		}
	}
	var types []string
	for _, e := range b.events(commands.CallbackStream(endpoint, id)) {
		types = append(types, e.EventType())
	}
	if d := cmp.Diff([]string{"execution.callback.scheduled", "execution.callback.replayed"}, types); d != "" {
		t.Error(d)
	}
}

func TestRequestedDeliveryOfAScheduledResultIsAReplay(t *testing.T) {
	b := newBench(t)
	id := b.scheduled()
	m := meta("once more")
	for range 2 {
		r, err := b.s.RequestDelivery(t.Context(), m, endpoint, id, delivered, time.Hour, "they lost it")
		b.must(err)
		if r.First || r.Callback.Round != 2 {
			t.Errorf("%+v", r)
		}
	}
	if n := len(b.events(commands.CallbackStream(endpoint, id))); n != 2 {
		t.Errorf("%d events after one request that was sent twice", n)
	}
	var refused *domain.Error
	if _, err := b.s.RequestDelivery(t.Context(), meta("other"), endpoint, id, domain.ResultDigest{SHA256: "bb"}, time.Hour, "x"); !errors.As(err, &refused) || refused.Code != "result_changed" {
		t.Errorf("another result: %v", err)
	}
	if _, err := b.s.RequestDelivery(t.Context(), meta("no reason"), endpoint, id, delivered, time.Hour, " "); !errors.As(err, &refused) || refused.Code != "reason_required" {
		t.Errorf("no reason: %v", err)
	}
}
