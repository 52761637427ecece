package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

func createRace(t *testing.T, h Harness) {
	const racers = 16
	results := make([]error, racers)
	var wg sync.WaitGroup
	l := load(t, h.Store, "suite/race", uuid.New())
	for i := range racers {
		s := []Store{h.Store, h.Replica}[i%2]
		wg.Go(func() { _, results[i] = s.Append(t.Context(), Command(l, "suite/race", uuid.New(), 2)) })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		if err == nil {
			won++
			continue
		}
		conflict(t, err, eventstore.ConflictError{Stream: "suite/race", Expected: 0, Actual: 2, Reason: "version"})
	}
	if won != 1 || len(read(t, h.Store, "suite/race")) != 2 {
		t.Errorf("%d of %d creators won, stream holds %d events", won, racers, len(read(t, h.Store, "suite/race")))
	}
}

// commandTakesEffectOnce repeats a command that made version 6 with every
// expected version, with another body, and from two connections at once.
func commandTakesEffectOnce(t *testing.T, h Harness) {
	const stream = "suite/once"
	must(t, h.Store, stream, 5)
	command := uuid.New()
	at5 := load(t, h.Store, stream, command)
	first, err := h.Store.Append(t.Context(), Command(at5, stream, command, 1))
	if err != nil {
		t.Fatal(err)
	}
	at6 := load(t, h.Store, stream, command)
	other := Command(at6, stream, command, 2)
	other.CommandDigest = eventstore.Digest{0xff}
	repeats := map[string]eventstore.Append{
		"expected 5": Command(at5, stream, command, 1), "expected 6": Command(at6, stream, command, 1), "other body": other,
	}
	for name, a := range repeats {
		for i := range 2 {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				_, err := []Store{h.Store, h.Replica}[i].Append(t.Context(), a)
				conflict(t, err, eventstore.ConflictError{Stream: stream, Expected: a.Expected, Actual: 6, Reason: "duplicate_command"})
			})
		}
	}
	t.Cleanup(func() {
		got, err := h.Store.ReadStream(context.WithoutCancel(t.Context()), stream, 0, 100)
		if err != nil || len(got) != 6 {
			t.Errorf("stream holds %d events (%v), want 6", len(got), err)
		}
		l, err := h.Store.Load(context.WithoutCancel(t.Context()), stream, command)
		if err != nil || l.Done == nil || l.Done.Hash != first[0].Hash || l.Done.CommandDigest != first[0].CommandDigest {
			t.Errorf("receipt %+v (%v) is not the first one", l.Done, err)
		}
	})
}

// commandOnTwoReplicas runs one command on both replicas at once, many times:
// each loads, decides and appends by itself.
func commandOnTwoReplicas(t *testing.T, h Harness) {
	for round := range 30 {
		stream := eventstore.StreamID(fmt.Sprintf("suite/two/%d", round%3))
		before := load(t, h.Store, stream, uuid.New()).Head.Version
		command := uuid.New()
		results := make([]error, 2)
		var wg sync.WaitGroup
		for i, s := range []Store{h.Store, h.Replica} {
			wg.Go(func() {
				l, err := s.Load(t.Context(), stream, command)
				if err == nil && l.Done == nil {
					_, err = s.Append(t.Context(), Command(l, stream, command, 2))
				}
				results[i] = err
			})
		}
		wg.Wait()
		for _, err := range results {
			var c *eventstore.ConflictError
			if err != nil && !errors.As(err, &c) {
				t.Fatal(err)
			}
		}
		l := load(t, h.Store, stream, command)
		if l.Done == nil || l.Head.Version != before+2 {
			t.Fatalf("round %d: version %d after %d, receipt %v: the command did not take effect once", round, l.Head.Version, before, l.Done)
		}
	}
}

// commandOnTwoStreams runs one command id against two streams at once: a caller's
// error that must not take effect twice.
func commandOnTwoStreams(t *testing.T, h Harness) {
	for round := range 20 {
		command := uuid.New()
		streams := []eventstore.StreamID{eventstore.StreamID(fmt.Sprintf("suite/x/%d", round)), eventstore.StreamID(fmt.Sprintf("suite/y/%d", round))}
		results := make([]error, 2)
		var wg sync.WaitGroup
		for i, s := range []Store{h.Store, h.Replica} {
			wg.Go(func() {
				l, err := s.Load(t.Context(), streams[i], uuid.New())
				if err == nil {
					_, err = s.Append(t.Context(), Command(l, streams[i], command, 1))
				}
				results[i] = err
			})
		}
		wg.Wait()
		won, refused := 0, error(nil)
		for i, err := range results {
			if err == nil {
				won++
				continue
			}
			refused = err
			conflict(t, err, eventstore.ConflictError{Stream: streams[i], Reason: "duplicate_command"})
		}
		if won != 1 || refused == nil {
			t.Fatalf("round %d: the command took effect on %d streams", round, won)
		}
		if n := len(read(t, h.Store, streams[0])) + len(read(t, h.Store, streams[1])); n != 1 {
			t.Fatalf("round %d: %d events", round, n)
		}
	}
}

// quickPairs sends two commands to one stream within a moment, 50 times in
// parallel. The loser of a pair loads and decides anew; both take effect.
func quickPairs(t *testing.T, h Harness) {
	const pairs = 50
	var wg sync.WaitGroup
	failures := make(chan error, 2*pairs)
	for p := range pairs {
		stream := eventstore.StreamID(fmt.Sprintf("suite/pair/%d", p))
		for i, s := range []Store{h.Store, h.Replica} {
			wg.Go(func() {
				for range 10 {
					_, err := Do(t.Context(), s, stream, i+1)
					var c *eventstore.ConflictError
					if errors.As(err, &c) {
						continue
					}
					if err != nil {
						failures <- err
					}
					return
				}
				failures <- fmt.Errorf("%s: conflict ten times", stream)
			})
		}
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	for p := range pairs {
		var versions []int64
		for _, e := range read(t, h.Store, eventstore.StreamID(fmt.Sprintf("suite/pair/%d", p))) {
			versions = append(versions, e.Version)
		}
		if diff := cmp.Diff([]int64{1, 2, 3}, versions); diff != "" {
			t.Fatalf("pair %d (-want +got):\n%s", p, diff)
		}
	}
}

// cancelledCallers gives up on many appends at random places. Whatever came of
// them, Load knows, and the appends of the others are whole.
func cancelledCallers(t *testing.T, h Harness) {
	const callers = 60
	commands := make([]uuid.UUID, callers)
	appended := make([]bool, callers)
	var wg sync.WaitGroup
	for i := range callers {
		commands[i] = uuid.New()
		stream := eventstore.StreamID(fmt.Sprintf("suite/cancel/%d", i))
		l := load(t, h.Store, stream, commands[i])
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := h.Store.Append(ctx, Command(l, stream, commands[i], 2))
			appended[i] = err == nil
			cancel()
		})
		if i%3 == 0 {
			wg.Go(cancel)
		}
	}
	wg.Wait()
	for i := range callers {
		stream := eventstore.StreamID(fmt.Sprintf("suite/cancel/%d", i))
		l := load(t, h.Store, stream, commands[i])
		if i%3 != 0 && !appended[i] {
			t.Errorf("caller %d did not give up and its append failed", i)
		}
		if appended[i] && l.Done == nil {
			t.Errorf("caller %d was told that its append was stored; it was not", i)
		}
		// Repeating the command is what a caller in doubt does.
		if l.Done == nil {
			_, err := h.Store.Append(t.Context(), Command(l, stream, commands[i], 2))
			var c *eventstore.ConflictError
			if err != nil && !errors.As(err, &c) {
				t.Errorf("caller %d repeats: %v", i, err)
			}
		}
		if n := len(read(t, h.Store, stream)); n != 2 {
			t.Errorf("stream of caller %d holds %d events, want 2", i, n)
		}
	}
}
