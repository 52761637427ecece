package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		var before, after atomic.Bool
		fail := func(flag *atomic.Bool) func(eventstore.Append) error {
			return func(eventstore.Append) error {
				if flag.CompareAndSwap(true, false) {
					return fmt.Errorf("injected: %w", eventstore.ErrUnavailable)
				}
				return nil
			}
		}
		s := memory.Open(storetest.Tables(), memory.Options{FailBefore: fail(&before), FailAfter: fail(&after)})
		return storetest.Harness{
			Store: s, Replica: s, Feed: s,
			Settle:   func(context.Context) error { return nil },
			Rows:     func(_ context.Context, table string) (map[string]map[string]any, error) { return rowsOf(s, table) },
			FailNext: func(persisted bool) { before.Store(!persisted); after.Store(persisted) },
		}
	})
}

func rowsOf(s *memory.Store, table string) (map[string]map[string]any, error) {
	out := map[string]map[string]any{}
	for _, r := range s.Rows(table) {
		var members map[string]any
		if err := json.Unmarshal(r.JSON, &members); err != nil {
			return nil, err
		}
		key := fmt.Sprint(members["id"])
		if table == "suite_lease" {
			key = fmt.Sprint(members["pool"], "/", members["slot"])
		}
		members["stream"] = r.Stream
		out[key] = members
	}
	return out, nil
}

func TestRowMustHaveExactlyTheColumns(t *testing.T) {
	s := memory.Open(storetest.Tables(), memory.Options{})
	for name, row := range map[string]string{
		"member missing":   `{"id":"x","status":"s","n":1}`,
		"member too many":  `{"id":"x","status":"s","n":1,"at":null,"stream":"other"}`,
		"key without name": `{"id":null,"status":"s","n":1,"at":null}`,
	} {
		_, err := storetest.Do(t.Context(), s, "suite/row", 1, func(a *eventstore.Append) {
			a.Rows = []eventstore.Change{{Table: "suite_status", Row: json.RawMessage(row)}}
		})
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", name, err)
		}
	}
}

func TestClockIsInjected(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.FixedZone("x", 3600))
	s := memory.Open(nil, memory.Options{Now: func() time.Time { return now }})
	l, err := s.Load(t.Context(), "suite/clock", uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 1, 2, 2, 4, 5, 6000, time.UTC); l.Now != want {
		t.Errorf("clock %v, want %v", l.Now, want)
	}
}

func TestWaitFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.Open(nil, memory.Options{})
		woken := make(chan error, 1)
		go func() { woken <- s.WaitFeed(t.Context(), eventstore.Cursor{}) }()
		synctest.Wait()
		select {
		case err := <-woken:
			t.Fatalf("returned %v before anything was stored", err)
		default:
		}
		if _, err := storetest.Do(t.Context(), s, "suite/wait", 1); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Error(err)
		}
	})
}
