package domain_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

var (
	refusedA = domain.NewID[domain.EventID](uuid.MustParse("0f000000-0000-4000-8000-00000000000a"))
	refusedB = domain.NewID[domain.EventID](uuid.MustParse("0f000000-0000-4000-8000-00000000000b"))
)

func parking(id domain.EventID) domain.ParkKey {
	return domain.ParkKey{Parked: domain.ForwarderParked{Topic: "execution.attempts", Key: "k", EventID: id, Stream: "attempt/k", Version: 3, Type: "x", Reason: "too_large"}}
}

// parkedAfter carries commands out one second after the other.
func parkedAfter(t *testing.T, commands ...domain.ParkedCommand) (p domain.Parked, last []domain.Event, err error) {
	t.Helper()
	for i, c := range commands {
		at := t0.Add(time.Duration(i) * time.Second)
		if last, err = domain.DecideParked(p, c, at); err != nil {
			return p, nil, err
		}
		for _, e := range last {
			if p, err = domain.EvolveParked(p, e, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	return p, last, nil
}

func TestKeyIsParkedOnce(t *testing.T) {
	p, events, err := parkedAfter(t, parking(refusedA))
	if err != nil || len(events) != 1 || p.ParkedAt == nil || p.EventID != refusedA || p.Requested {
		t.Errorf("%+v, %v, %v", p, events, err)
	}
	if _, events, _ := parkedAfter(t, parking(refusedA), parking(refusedA)); len(events) != 0 {
		t.Errorf("parked again: %v", events)
	}
}

func TestRetryThatIsRefusedParksAgain(t *testing.T) {
	for name, again := range map[string]domain.EventID{"the same event": refusedA, "one behind it": refusedB} {
		p, events, err := parkedAfter(t, parking(refusedA), domain.RetryKey{ReasonText: domain.TextRef(digestA)}, parking(again))
		if err != nil || len(events) != 1 || p.Requested || p.EventID != again || !p.ParkedAt.Equal(t0) {
			t.Errorf("%s: %+v, %v, %v", name, p, events, err)
		}
	}
	if p, events, _ := parkedAfter(t, parking(refusedA), domain.RetryKey{}, domain.RetryKey{}); len(events) != 0 || !p.Requested {
		t.Errorf("asked for twice: %v", events)
	}
}

func TestOnlyTheRefusedEventIsSkipped(t *testing.T) {
	p, _, err := parkedAfter(t, parking(refusedA), domain.SkipEvent{EventID: refusedA, ReasonText: domain.TextRef(digestA)})
	if err != nil || !p.Requested || p.SkippedEvent != refusedA {
		t.Errorf("%+v, %v", p, err)
	}
	if _, events, _ := parkedAfter(t, parking(refusedA), domain.SkipEvent{EventID: refusedA}, domain.SkipEvent{EventID: refusedA}); len(events) != 0 {
		t.Errorf("skipped twice: %v", events)
	}
	var refused *domain.Error
	if _, _, err := parkedAfter(t, parking(refusedA), domain.SkipEvent{EventID: refusedB}); !errors.As(err, &refused) || refused.Code != "other_event_refused" {
		t.Error(err)
	}
}

// A try that was under way while its event was given up is refused after that.
func TestLateRefusalDoesNotUndoASkip(t *testing.T) {
	p, events, err := parkedAfter(t, parking(refusedA), domain.RetryKey{}, domain.SkipEvent{EventID: refusedA}, parking(refusedA))
	if err != nil || len(events) != 0 || !p.Requested || p.SkippedEvent != refusedA {
		t.Errorf("%+v, %v, %v", p, events, err)
	}
	p, _, err = parkedAfter(t, parking(refusedA), domain.SkipEvent{EventID: refusedA}, parking(refusedB))
	if err != nil || p.Requested || p.EventID != refusedB {
		t.Errorf("the next one is refused: %+v, %v", p, err)
	}
}

func TestKeyThatIsPublishedIsNotParked(t *testing.T) {
	p, events, err := parkedAfter(t, parking(refusedA), domain.RetryKey{}, domain.UnparkKey{Published: 7})
	want := domain.ForwarderUnparked{Topic: "execution.attempts", Key: "k", Published: 7}
	if err != nil || p.ParkedAt != nil || len(events) != 1 || events[0] != domain.Event(want) {
		t.Errorf("%+v, %v, %v", p, events, err)
	}
	for name, c := range map[string]domain.ParkedCommand{"retry": domain.RetryKey{}, "skip": domain.SkipEvent{EventID: refusedA}} {
		if _, _, err := parkedAfter(t, c); !errors.Is(err, domain.ErrNotParked) {
			t.Errorf("%s of a key that is not parked: %v", name, err)
		}
	}
	if _, events, _ := parkedAfter(t, domain.UnparkKey{}); len(events) != 0 {
		t.Error(events)
	}
}
