package domain_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/platform-core/execution-plane-service/domain"
)

const window = 72 * time.Hour

var theResult = domain.ResultDigest{SHA256: digestA, Bytes: 2048}

func scheduling() domain.ScheduleCallback {
	return domain.ScheduleCallback{Endpoint: "control-plane", AttemptID: attemptA, Result: theResult, Window: window}
}

func failedTry(round, try int, delay time.Duration) domain.RecordTry {
	return domain.RecordTry{Try: domain.CallbackTry{Round: round, Try: try, Status: 503, ErrorClass: "status", LatencyMS: 3, Delay: delay}}
}

func delivery(round, try int) domain.RecordTry {
	return domain.RecordTry{Try: domain.CallbackTry{Round: round, Try: try, Delivered: true, Status: 204, LatencyMS: 3}}
}

// callbackAfter carries commands out one second after the other.
func callbackAfter(t *testing.T, commands ...domain.CallbackCommand) (c domain.Callback, last []domain.Event, at time.Time) {
	t.Helper()
	at = t0
	for _, cmd := range commands {
		at = at.Add(time.Second)
		events, err := domain.DecideCallback(c, cmd, at)
		if err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
		for _, e := range events {
			if c, err = domain.EvolveCallback(c, e, at); err != nil {
				t.Fatal(err)
			}
		}
		last = events
	}
	return c, last, at
}

func TestCallbackIsScheduledOnce(t *testing.T) {
	c, events, at := callbackAfter(t, scheduling())
	want := []domain.Event{domain.CallbackScheduled{Endpoint: "control-plane", AttemptID: attemptA, CallbackID: domain.CallbackIDOf("control-plane", attemptA),
		ResultSHA256: digestA, ResultBytes: 2048, GiveUpAt: at.Add(window)}}
	if d := cmp.Diff(want, events, cmpopts.EquateComparable(domain.AttemptID{}, domain.CallbackID{})); d != "" {
		t.Error(d)
	}
	if c.State != domain.CallbackPending || c.Round != 1 || c.Tries != 0 || !c.NextAt.Equal(at) {
		t.Errorf("%+v", c)
	}
	if _, events, _ := callbackAfter(t, scheduling(), scheduling()); len(events) != 0 {
		t.Errorf("scheduled again: %v", events)
	}
	other := scheduling()
	other.Result.SHA256 = digestB
	var refused *domain.Error
	if _, err := domain.DecideCallback(c, other, at); !errors.As(err, &refused) || refused.Code != "result_changed" {
		t.Errorf("another result: %v", err)
	}
	if domain.CallbackIDOf("control-plane", attemptA) == domain.CallbackIDOf("audit", attemptA) {
		t.Error("two endpoints have one callback id")
	}
}

func TestCallbackIsTriedUntilItIsDelivered(t *testing.T) {
	c, events, at := callbackAfter(t, scheduling(), failedTry(1, 1, time.Minute))
	if len(events) != 1 || c.State != domain.CallbackPending || c.Tries != 1 || !c.NextAt.Equal(at.Add(time.Minute)) || c.LastError != "status" || c.LastStatus != 503 {
		t.Errorf("%+v after %v", c, events)
	}
	c, _, at = callbackAfter(t, scheduling(), failedTry(1, 1, time.Minute), delivery(1, 2))
	if c.State != domain.CallbackDone || c.DeliveredAt == nil || !c.DeliveredAt.Equal(at) || c.LastError != "" {
		t.Errorf("%+v", c)
	}
}

// TestTriesThatAreNoNews are those of a worker that was overtaken by another one or
// by a replay.
func TestTriesThatAreNoNews(t *testing.T) {
	for name, commands := range map[string][]domain.CallbackCommand{
		"told twice":                 {scheduling(), failedTry(1, 1, 0), failedTry(1, 1, 0)},
		"one is missing":             {scheduling(), failedTry(1, 2, 0)},
		"after the delivery":         {scheduling(), delivery(1, 1), failedTry(1, 2, 0)},
		"delivered twice":            {scheduling(), delivery(1, 1), delivery(1, 1)},
		"of a round that is over":    {scheduling(), domain.ReplayCallback{ReasonText: domain.TextRef(digestA), Window: window}, delivery(1, 1)},
		"after it was given up":      {scheduling(), failedTry(1, 1, 2*window), failedTry(1, 2, 0)},
		"of a round that is to come": {scheduling(), delivery(2, 1)},
	} {
		if _, events, _ := callbackAfter(t, commands...); len(events) != 0 {
			t.Errorf("%s: %v", name, events)
		}
	}
}

func TestCallbackIsGivenUpAtTheEndOfItsWindow(t *testing.T) {
	c, events, _ := callbackAfter(t, scheduling(), failedTry(1, 1, window-time.Second))
	if len(events) != 1 || c.State != domain.CallbackPending {
		t.Errorf("the last moment is still in the window: %v", events)
	}
	c, events, _ = callbackAfter(t, scheduling(), failedTry(1, 1, window))
	want := domain.CallbackExhausted{Round: 1, Tries: 1, Reason: domain.ExhaustedWindow}
	if len(events) != 2 || events[1] != domain.Event(want) || events[0].(domain.CallbackFailed).NextAt != nil || c.State != domain.CallbackAbandoned {
		t.Errorf("%v, %+v", events, c)
	}
	// An endpoint that wants no more is stopped; its callbacks wait for the operator.
	gone := failedTry(1, 1, 2*window)
	gone.Try.Gone = true
	if c, events, _ := callbackAfter(t, scheduling(), gone); len(events) != 1 || c.State != domain.CallbackPending {
		t.Errorf("%v, %+v", events, c)
	}
}

func TestReplayBeginsARound(t *testing.T) {
	replay := domain.ReplayCallback{ReasonText: domain.TextRef(digestA), Window: time.Hour}
	for name, before := range map[string][]domain.CallbackCommand{
		"pending":   {scheduling(), failedTry(1, 1, time.Minute)},
		"delivered": {scheduling(), delivery(1, 1)},
		"exhausted": {scheduling(), failedTry(1, 1, 2*window)},
	} {
		c, _, at := callbackAfter(t, append(before, replay)...)
		if c.State != domain.CallbackPending || c.Round != 2 || c.Tries != 0 || !c.NextAt.Equal(at) || !c.GiveUpAt.Equal(at.Add(time.Hour)) {
			t.Errorf("%s: %+v", name, c)
		}
		if c.CallbackID != domain.CallbackIDOf("control-plane", attemptA) || c.ResultSHA256 != digestA {
			t.Errorf("%s: the replay is of something else: %+v", name, c)
		}
	}
	if _, err := domain.DecideCallback(domain.Callback{}, replay, t0); !errors.Is(err, domain.ErrUnknownCallback) {
		t.Error(err)
	}
	if _, err := domain.DecideCallback(domain.Callback{}, delivery(1, 1), t0); !errors.Is(err, domain.ErrUnknownCallback) {
		t.Error(err)
	}
}

func TestEndpointIsStoppedAndResumed(t *testing.T) {
	var n domain.Endpoint
	step := func(c domain.EndpointCommand) int {
		t.Helper()
		events, err := domain.DecideEndpoint(n, c, t0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if n, err = domain.EvolveEndpoint(n, e, t0); err != nil {
				t.Fatal(err)
			}
		}
		return len(events)
	}
	stop := domain.StopEndpoint{Stopped: domain.EndpointStopped{Endpoint: "control-plane", Cause: domain.EndpointGone, AttemptID: ptr(attemptA)}}
	resume := domain.ResumeEndpoint{Resumed: domain.EndpointResumed{Endpoint: "control-plane", ReasonText: domain.TextRef(digestA)}}
	if step(resume) != 0 || step(stop) != 1 || n.StoppedAt == nil || n.Cause != domain.EndpointGone {
		t.Errorf("%+v", n)
	}
	if step(stop) != 0 || step(resume) != 1 || n.StoppedAt != nil || step(resume) != 0 {
		t.Errorf("%+v", n)
	}
}

func TestEndpointNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "control-plane": true, "9to5": true, "": false, "-a": false, "A": false, "a/b": false, "a.b": false, "ä": false, "a b": false,
		"a123456789012345678901234567890123456789012345678901234567890123": false,
	} {
		if domain.ValidEndpointName(name) != good {
			t.Errorf("%q: not %v", name, good)
		}
	}
}
