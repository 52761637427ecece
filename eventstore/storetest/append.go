package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

func loadOfNothing(t *testing.T, h Harness) {
	before := time.Now().Add(-time.Minute)
	l := load(t, h.Store, "suite/none", uuid.New())
	if diff := cmp.Diff(eventstore.Head{}, l.Head); diff != "" {
		t.Errorf("head of a stream that does not exist (-want +got):\n%s", diff)
	}
	if l.Done != nil {
		t.Errorf("receipt %+v of a command that never ran", l.Done)
	}
	if l.Now.Before(before) || l.Now.Location() != time.UTC || l.Now.Nanosecond()%1000 != 0 {
		t.Errorf("clock %v is not now, in UTC and microseconds", l.Now)
	}
	if got := read(t, h.Store, "suite/none"); len(got) != 0 {
		t.Errorf("%d events in a stream that does not exist", len(got))
	}
}

func appendAndRead(t *testing.T, h Harness) {
	command, cause := uuid.New(), uuid.New()
	a := Command(load(t, h.Store, "suite/a", command), "suite/a", command, 3)
	a.Events[1].Cause = cause
	sealed, err := eventstore.Seal(a)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := h.Store.Append(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	positions := map[int64]bool{}
	for i := range stored {
		if stored[i].Position < 1 || positions[stored[i].Position] {
			t.Errorf("event %d has position %d", i, stored[i].Position)
		}
		positions[stored[i].Position] = true
		sealed[i].Position = stored[i].Position
	}
	if diff := cmp.Diff(sealed, stored); diff != "" {
		t.Errorf("answer of Append (-sealed +stored):\n%s", diff)
	}
	if diff := cmp.Diff(stored, read(t, h.Replica, "suite/a")); diff != "" {
		t.Errorf("stream read by another replica (-stored +read):\n%s", diff)
	}
	l := load(t, h.Replica, "suite/a", command)
	want := eventstore.Head{Version: 3, Hash: stored[2].Hash, State: []byte(`{"version":3}`), StateVersion: 1}
	if diff := cmp.Diff(want, l.Head); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	receipt := &eventstore.Receipt{
		Stream: "suite/a", EventID: stored[0].EventID, Version: 1, Time: stored[0].Time, Hash: stored[0].Hash,
		CommandDigest: a.CommandDigest,
	}
	if diff := cmp.Diff(receipt, l.Done); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if l.Now.Before(stored[2].Time) {
		t.Errorf("clock %v is before the last event's %v", l.Now, stored[2].Time)
	}
}

func readInPieces(t *testing.T, h Harness) {
	must(t, h.Store, "suite/pieces", 7)
	var got []int64
	for after := int64(0); ; {
		piece, err := h.Store.ReadStream(t.Context(), "suite/pieces", after, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(piece) == 0 {
			break
		}
		for _, e := range piece {
			got = append(got, e.Version)
		}
		after = piece[len(piece)-1].Version
	}
	if diff := cmp.Diff([]int64{1, 2, 3, 4, 5, 6, 7}, got); diff != "" {
		t.Errorf("versions read in pieces of three (-want +got):\n%s", diff)
	}
}

func chainHolds(t *testing.T, h Harness) {
	for n := range 5 {
		must(t, h.Store, "suite/chain", n+1)
	}
	events := read(t, h.Store, "suite/chain")
	if len(events) != 15 {
		t.Fatalf("%d events, want 15", len(events))
	}
	var prev eventstore.Digest
	for i, e := range events {
		if e.Version != int64(i)+1 {
			t.Errorf("event %d has version %d", i, e.Version)
		}
		if e.PrevHash != prev {
			t.Errorf("version %d does not follow the hash before it", e.Version)
		}
		if got := eventstore.HashEvent(prev, e.Envelope, e.Payload); got != e.Hash {
			t.Errorf("version %d as read hashes to %x, stored is %x", e.Version, got, e.Hash)
		}
		prev = e.Hash
	}
}

func conflict(t *testing.T, err error, want eventstore.ConflictError) {
	t.Helper()
	var got *eventstore.ConflictError
	if !errors.As(err, &got) {
		t.Fatalf("error %v, want a conflict", err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("conflict (-want +got):\n%s", diff)
	}
}

func staleVersionRefused(t *testing.T, h Harness) {
	command := uuid.New()
	stale := Command(load(t, h.Store, "suite/occ", command), "suite/occ", command, 1)
	must(t, h.Store, "suite/occ", 2)
	_, err := h.Store.Append(t.Context(), stale)
	conflict(t, err, eventstore.ConflictError{Stream: "suite/occ", Expected: 0, Actual: 2, Reason: "version"})

	command = uuid.New()
	stale = Command(load(t, h.Store, "suite/occ", command), "suite/occ", command, 1)
	must(t, h.Replica, "suite/occ", 1)
	_, err = h.Store.Append(t.Context(), stale)
	conflict(t, err, eventstore.ConflictError{Stream: "suite/occ", Expected: 2, Actual: 3, Reason: "version"})

	command = uuid.New()
	ahead := Command(load(t, h.Store, "suite/occ", command), "suite/occ", command, 1)
	ahead.Expected = 9
	_, err = h.Store.Append(t.Context(), ahead)
	conflict(t, err, eventstore.ConflictError{Stream: "suite/occ", Expected: 9, Actual: 3, Reason: "version"})
	if got := read(t, h.Store, "suite/occ"); len(got) != 3 {
		t.Errorf("stream holds %d events after three refusals, want 3", len(got))
	}
}

func absentStreamRefused(t *testing.T, h Harness) {
	_, err := Do(t.Context(), h.Store, "suite/absent", 1, func(a *eventstore.Append) {
		a.Expected, a.PrevHash = 4, eventstore.Digest{1}
	})
	conflict(t, err, eventstore.ConflictError{Stream: "suite/absent", Expected: 4, Actual: 0, Reason: "version"})
	if l := load(t, h.Store, "suite/absent", uuid.New()); l.Head.Version != 0 {
		t.Errorf("the refused append made a head at version %d", l.Head.Version)
	}
}

func closedStreamRefused(t *testing.T, h Harness) {
	must(t, h.Store, "suite/closed", 2, func(a *eventstore.Append) { a.Close = true })
	if !load(t, h.Store, "suite/closed", uuid.New()).Head.Closed {
		t.Error("head is not closed")
	}
	_, err := Do(t.Context(), h.Store, "suite/closed", 1)
	conflict(t, err, eventstore.ConflictError{Stream: "suite/closed", Expected: 2, Actual: 2, Closed: true, Reason: "closed"})
	if got := read(t, h.Store, "suite/closed"); len(got) != 2 {
		t.Errorf("closed stream holds %d events, want 2", len(got))
	}
}

func clockRefused(t *testing.T, h Harness) {
	must(t, h.Store, "suite/clock", 1)
	for _, off := range []time.Duration{-10 * time.Second, 10 * time.Second} {
		for stream, version := range map[eventstore.StreamID]int64{"suite/clock": 1, "suite/clockless": 0} {
			_, err := Do(t.Context(), h.Store, stream, 1, func(a *eventstore.Append) { a.Now = a.Now.Add(off) })
			conflict(t, err, eventstore.ConflictError{Stream: stream, Expected: version, Actual: version, Reason: "clock"})
		}
	}
	last := read(t, h.Store, "suite/clock")[0].Time
	_, err := Do(t.Context(), h.Store, "suite/clock", 1, func(a *eventstore.Append) { a.Now = last.Add(-time.Microsecond) })
	conflict(t, err, eventstore.ConflictError{Stream: "suite/clock", Expected: 1, Actual: 1, Reason: "clock"})
	// A clock that runs ahead by less makes the next event's time, not a refusal.
	ahead := must(t, h.Store, "suite/clock", 1, func(a *eventstore.Append) { a.Now = a.Now.Add(3 * time.Second) })[0]
	if l := load(t, h.Store, "suite/clock", uuid.New()); l.Now.Before(ahead.Time) {
		t.Errorf("clock %v runs behind the stream's last event at %v", l.Now, ahead.Time)
	}
	must(t, h.Store, "suite/clock", 1)
}

func foreignPrevHashRefused(t *testing.T, h Harness) {
	must(t, h.Store, "suite/prev", 1)
	_, err := Do(t.Context(), h.Store, "suite/prev", 1, func(a *eventstore.Append) { a.PrevHash = eventstore.Digest{9} })
	if !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("error %v for a chain that does not go on, want ErrInvalid", err)
	}
	if got := read(t, h.Store, "suite/prev"); len(got) != 1 {
		t.Errorf("stream holds %d events, want 1", len(got))
	}
}

func invalidAppends(t *testing.T, h Harness) {
	status := func(members map[string]any) func(*eventstore.Append) {
		return func(a *eventstore.Append) { a.Rows = []eventstore.Change{{Table: "suite_status", Row: row(members)}} }
	}
	for name, change := range map[string]func(*eventstore.Append){
		"no events":              func(a *eventstore.Append) { a.Events = nil },
		"no command":             func(a *eventstore.Append) { a.CommandID = uuid.Nil },
		"no type":                func(a *eventstore.Append) { a.Events[0].Type = "" },
		"no schema":              func(a *eventstore.Append) { a.Events[0].Schema = 0 },
		"payload is no JSON":     func(a *eventstore.Append) { a.Events[0].Payload = []byte(`{`) },
		"payload is empty":       func(a *eventstore.Append) { a.Events[0].Payload = nil },
		"NUL in payload":         func(a *eventstore.Append) { a.Events[0].Payload = []byte("\"a\x00b\"") },
		"invalid UTF-8":          func(a *eventstore.Append) { a.Events[0].Payload = []byte("\"\xff\"") },
		"NUL in actor":           func(a *eventstore.Append) { a.Actor.ID = "a\x00b" },
		"invalid UTF-8 in node":  func(a *eventstore.Append) { a.PlanNodeID = "\xff" },
		"NUL in stream":          func(a *eventstore.Append) { a.Stream = "suite/\x00" },
		"stream not ASCII":       func(a *eventstore.Append) { a.Stream = "suite/ä" },
		"stream too long":        func(a *eventstore.Append) { a.Stream = eventstore.StreamID(strings.Repeat("s", 201)) },
		"stream empty":           func(a *eventstore.Append) { a.Stream = "" },
		"created with prev hash": func(a *eventstore.Append) { a.PrevHash = eventstore.Digest{1} },
		"text not its digest":    func(a *eventstore.Append) { a.Texts = []eventstore.Text{{Bytes: []byte("x")}} },
		"unknown table":          func(a *eventstore.Append) { a.Rows = []eventstore.Change{{Table: "events", Row: []byte(`{}`)}} },
		"row is no object":       func(a *eventstore.Append) { a.Rows = []eventstore.Change{{Table: "suite_status", Row: []byte(`[]`)}} },
		"NUL in row":             status(map[string]any{"id": "x\x00", "status": "s", "n": 1, "at": nil}),
		"row without key":        status(map[string]any{"status": "s", "n": 1, "at": nil}),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Do(t.Context(), h.Store, "suite/invalid", 1, change); !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
		})
	}
	if got := read(t, h.Store, "suite/invalid"); len(got) != 0 {
		t.Errorf("%d events were stored", len(got))
	}
	// An escaped backslash before u0000 is no NUL, and JSON may hold the escape itself.
	must(t, h.Store, "suite/valid", 1, func(a *eventstore.Append) {
		a.Events[0].Payload = []byte(`{"nul":"\u0000"}`)
		a.Rows = []eventstore.Change{{Table: "suite_status", Row: []byte(`{"id":"\\u0000","status":"s","n":1,"at":null}`)}}
	})
}

func limits(t *testing.T, h Harness) {
	payload := func(n int) []byte { return fmt.Appendf(nil, `"%s"`, strings.Repeat("x", n-2)) }
	events := must(t, h.Store, "suite/limits", 1, func(a *eventstore.Append) {
		a.Events[0].Payload, a.State = payload(eventstore.MaxPayload), payload(eventstore.MaxState)
	})
	if got := read(t, h.Store, "suite/limits"); len(got) != 1 || len(got[0].Payload) != eventstore.MaxPayload || got[0].Hash != events[0].Hash {
		t.Error("the largest payload did not come back whole")
	}
	long := eventstore.StreamID(strings.Repeat("s", eventstore.MaxStreamID))
	if must(t, h.Store, long, 1); len(read(t, h.Store, long)) != 1 {
		t.Error("the longest stream id was not stored")
	}
	for name, change := range map[string]func(*eventstore.Append){
		"payload": func(a *eventstore.Append) { a.Events[0].Payload = payload(eventstore.MaxPayload + 1) },
		"state":   func(a *eventstore.Append) { a.State = payload(eventstore.MaxState + 1) },
	} {
		if _, err := Do(t.Context(), h.Store, "suite/limits", 1, change); !errors.Is(err, eventstore.ErrTooLarge) {
			t.Errorf("error %v for too large a %s, want ErrTooLarge", err, name)
		}
	}
}
