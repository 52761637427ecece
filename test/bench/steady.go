package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

const (
	steadyKeys    = 500
	steadyClients = 50
	// steadyWarm is left out at the beginning: connections, plans and caches.
	steadyWarm = 2 * time.Second
	// patience is how long the last events are waited for.
	patience = time.Minute
)

// steady appends one event at a time to many attempts in turn, at a fixed rate that
// waits for nobody, and knows when each was committed and when a consumer had it.
type steady struct {
	store  eventstore.Store
	rate   int
	poison bool // one key gets an event that the topic does not take

	mu      sync.Mutex
	commits map[string]commit // by event id
	heard   map[string]time.Time
}

type commit struct {
	at   time.Time // when Append returned
	warm bool
}

func newSteady(store eventstore.Store, rate int, poison bool) *steady {
	return &steady{store: store, rate: rate, poison: poison, commits: map[string]commit{}, heard: map[string]time.Time{}}
}

// hear takes a record from the consumer.
func (s *steady) hear(h heard) {
	now := time.Now()
	for _, x := range h.Headers {
		if string(x.Key) == "ce_id" {
			s.mu.Lock()
			if _, twice := s.heard[string(x.Value)]; !twice {
				s.heard[string(x.Value)] = now
			}
			s.mu.Unlock()
		}
	}
}

// steadyRun is what one run gave.
type steadyRun struct {
	latencies []float64 // ms, from the return of an append until a consumer has its event
	rate      float64   // appends a second
}

// run appends for so long, warming not counted, and waits until all is heard.
func (s *steady) run(ctx context.Context, lasting time.Duration) (steadyRun, error) {
	warm := min(steadyWarm, lasting)
	began := time.Now()
	each := time.Second / time.Duration(s.rate)
	n := int((warm + lasting) / each)
	var wg sync.WaitGroup
	errs := make([]error, steadyClients)
	for c := range steadyClients {
		wg.Go(func() { errs[c] = s.client(ctx, c, n, began, each, began.Add(warm)) })
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return steadyRun{}, err
	}
	out, err := s.await(ctx)
	return steadyRun{out, float64(n) / took.Seconds()}, err
}

// client does every append whose key is one of its own: a stream is written in order.
func (s *steady) client(ctx context.Context, c, n int, began time.Time, each time.Duration, warm time.Time) error {
	type stream struct {
		id   uuid.UUID
		head eventstore.Head
	}
	streams := map[int]*stream{}
	keys := min(steadyKeys, max(1, n/4))
	for i := range n {
		key := i % keys
		if key%steadyClients != c {
			continue
		}
		x := streams[key]
		if x == nil {
			x = &stream{id: uuid.New()}
			streams[key] = x
		}
		wait(ctx, time.Until(began.Add(time.Duration(i)*each)))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		poisoned := s.poison && key == 0
		a, err := steadyAppend(x.id, x.head, poisoned && x.head.Version == 1)
		if err != nil {
			return err
		}
		events, err := s.store.Append(ctx, a)
		if err != nil {
			return err
		}
		at := time.Now()
		x.head = eventstore.Head{Version: x.head.Version + 1, Hash: events[0].Hash}
		if key == 0 {
			continue // with and without poison only the others count
		}
		s.mu.Lock()
		s.commits[events[0].EventID.String()] = commit{at, at.After(warm)}
		s.mu.Unlock()
	}
	return nil
}

// poisonBytes is what no topic here takes that has poisonLimit.
const (
	poisonBytes = 60_000
	poisonLimit = "32000"
)

func steadyAppend(id uuid.UUID, head eventstore.Head, poison bool) (eventstore.Append, error) {
	e, err := encoded([]domain.Event{domain.Progressed{Epoch: 1, Phase: "probing", Done: head.Version, Total: 1 << 20}})
	if err != nil {
		return eventstore.Append{}, err
	}
	if poison {
		raw := make([]byte, poisonBytes*3/4)
		rand.Read(raw)
		e[0].Payload = fmt.Appendf(nil, `{"epoch":1,"phase":%q,"done":1,"total":2}`, base64.StdEncoding.EncodeToString(raw))
	}
	return eventstore.Append{Stream: eventstore.StreamID("attempt/" + id.String()), Expected: head.Version, PrevHash: head.Hash, Now: time.Now(),
		CommandID: uuid.New(), Actor: benchActor, OperationID: benchNode, PlanNodeID: "check", Events: e, State: benchState, StateVersion: 1}, nil
}

// await returns how long each event took, once all were heard.
func (s *steady) await(ctx context.Context) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		out, missing := s.joined()
		if missing == 0 {
			return out, nil
		}
		// Looking costs as much as there are events: not at every arrival.
		if wait(ctx, 10*lookPause); ctx.Err() != nil {
			return nil, fmt.Errorf("%d of %d events did not reach the consumer within %s", missing, len(s.commits), patience)
		}
	}
}

func (s *steady) joined() (out []float64, missing int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.commits {
		at, ok := s.heard[id]
		switch {
		case !ok:
			missing++
		case c.warm:
			out = append(out, ms(max(0, at.Sub(c.at))))
		}
	}
	return out, missing
}
