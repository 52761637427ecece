package commands_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

const endpoint = "control-plane"

var delivered = domain.ResultDigest{SHA256: "aa", Bytes: 2}

func (b *bench) scheduled() domain.AttemptID {
	b.t.Helper()
	id := domain.NewID[domain.AttemptID](uuid.New())
	b.must(b.s.ScheduleCallback(b.t.Context(), endpoint, id, delivered, time.Hour))
	return id
}

func TestSchedulingAgainIsNoNews(t *testing.T) {
	b := newBench(t)
	id := b.scheduled()
	b.must(b.s.ScheduleCallback(t.Context(), endpoint, id, delivered, time.Minute))
	if n := len(b.events(commands.CallbackStream(endpoint, id))); n != 1 {
		t.Errorf("%d events", n)
	}
	var refused *domain.Error
	other := domain.ResultDigest{SHA256: "bb", Bytes: 2}
	if err := b.s.ScheduleCallback(t.Context(), endpoint, id, other, time.Hour); !errors.As(err, &refused) || refused.Code != "result_changed" {
		t.Errorf("another result: %v", err)
	}
}

// TestTryIsRecordedOnce: two workers may tell of one try, with different answers.
func TestTryIsRecordedOnce(t *testing.T) {
	b := newBench(t)
	id := b.scheduled()
	for _, try := range []domain.CallbackTry{
		{Round: 1, Try: 1, Status: 500, ErrorClass: "status", Delay: time.Second},
		{Round: 1, Try: 1, Status: 200, Delivered: true},
		{Round: 1, Try: 2, Status: 200, Delivered: true},
		{Round: 1, Try: 2, ErrorClass: "timeout", Delay: time.Second},
	} {
		c, err := b.s.RecordTry(t.Context(), endpoint, id, try)
		b.must(err)
		if c.Tries != try.Try {
			t.Errorf("%+v gives %+v", try, c)
		}
	}
	events := b.events(commands.CallbackStream(endpoint, id))
	if len(events) != 3 || events[2].EventType() != "execution.callback.delivered" {
		t.Errorf("%v", events)
	}
}

func TestGoneStopsTheEndpointForAll(t *testing.T) {
	b := newBench(t)
	id := b.scheduled()
	gone := domain.CallbackTry{Round: 1, Try: 1, Gone: true, Status: 410, ErrorClass: "gone", Delay: time.Second}
	for range 2 { // the second time as after a crash between the two appends
		if _, err := b.s.RecordTry(t.Context(), endpoint, id, gone); err != nil {
			t.Fatal(err)
		}
	}
	stops := b.events(commands.EndpointStream(endpoint))
	if len(stops) != 1 || stops[0].(domain.EndpointStopped).Cause != domain.EndpointGone || *stops[0].(domain.EndpointStopped).AttemptID != id {
		t.Errorf("%v", stops)
	}
	m := meta("resume")
	for range 2 {
		b.must(b.s.ResumeEndpoint(t.Context(), m, endpoint, "they are back"))
	}
	if n := len(b.events(commands.EndpointStream(endpoint))); n != 2 {
		t.Errorf("%d events after one resume that was sent twice", n)
	}
}

func TestReplayNeedsAReasonAndHappensOnce(t *testing.T) {
	b := newBench(t)
	id := b.scheduled()
	if _, err := b.s.ReplayCallback(t.Context(), meta("replay"), endpoint, id, " ", time.Hour); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("without a reason: %v", err)
	}
	m := meta("replay")
	for range 2 {
		c, err := b.s.ReplayCallback(t.Context(), m, endpoint, id, "they lost it", time.Hour)
		b.must(err)
		if c.Round != 2 || c.State != domain.CallbackPending {
			t.Errorf("%+v", c)
		}
	}
	never := domain.NewID[domain.AttemptID](uuid.New())
	if _, err := b.s.ReplayCallback(t.Context(), meta("replay"), endpoint, never, "why not", time.Hour); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("one that was never scheduled: %v", err)
	}
}

func TestParkedKeyIsRetriedAndUnparked(t *testing.T) {
	b := newBench(t)
	p := domain.ForwarderParked{Topic: "execution.attempts", Key: "k", EventID: domain.NewID[domain.EventID](uuid.New()), Stream: "attempt/k", Version: 1, Type: "x", Reason: "too_large"}
	if err := b.s.RetryKey(t.Context(), meta("retry"), p.Topic, p.Key, "try"); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("a key that is not parked: %v", err)
	}
	for range 2 {
		b.must(b.s.ParkKey(t.Context(), p))
	}
	if err := b.s.SkipEvent(t.Context(), meta("skip"), p.Topic, p.Key, uuid.New(), "away with it"); domain.KindOf(err) != domain.KindConflict {
		t.Errorf("another event than the refused one: %v", err)
	}
	b.must(b.s.RetryKey(t.Context(), meta("retry"), p.Topic, p.Key, "the broker takes more now"))
	b.must(b.s.ParkKey(t.Context(), p))
	b.must(b.s.SkipEvent(t.Context(), meta("skip"), p.Topic, p.Key, p.EventID.UUID(), "away with it"))
	b.must(b.s.UnparkKey(t.Context(), p.Topic, p.Key, 4))
	var names []string
	for _, e := range b.events(commands.ParkedStream(p.Topic, p.Key)) {
		names = append(names, e.EventType()[len("execution.forwarder."):])
	}
	if want := "[parked retry_requested parked event_skipped unparked]"; fmt.Sprint(names) != want {
		t.Errorf("%v, want %v", names, want)
	}
}

func TestSubmitKnowsTheEndpoints(t *testing.T) {
	for name, known := range map[string]func(string) bool{
		"none is configured":    nil,
		"another is configured": func(n string) bool { return n == "other" },
		"it is configured":      func(n string) bool { return n == endpoint },
	} {
		b := newBench(t, func(c *commands.Config) { c.Endpoint = known })
		s, _ := newSpec()
		s.Controls.CallbackRef = endpoint
		_, err := b.s.Submit(t.Context(), meta("submit"), s, encode(s))
		var refused *domain.Error
		if name == "it is configured" {
			b.must(err)
		} else if !errors.As(err, &refused) || refused.Violations[0].Pointer != "/controls/callback_ref" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
