package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Fault is one thing that is wrong, at the first version where it shows.
type Fault struct {
	Stream  eventstore.StreamID `json:"stream"`
	Version int64               `json:"version,omitempty"`
	Kind    string              `json:"kind"` // chain, version, envelope, head, fold, closed, feed
	Detail  string              `json:"detail"`
}

func (f Fault) String() string {
	if f.Version == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Stream, f.Kind, f.Detail)
	}
	return fmt.Sprintf("%s version %d: %s: %s", f.Stream, f.Version, f.Kind, f.Detail)
}

// Report says what a verification saw.
type Report struct {
	Streams     int64                    `json:"streams"`
	Events      int64                    `json:"events"`
	Rows        int64                    `json:"rows"`
	Faults      []Fault                  `json:"faults"`
	Differences []projections.Difference `json:"differences"`
}

// OK reports whether nothing is wrong.
func (r Report) OK() bool { return len(r.Faults) == 0 && len(r.Differences) == 0 }

const maxFaults = 1000

// Verify checks the whole database in one snapshot each for chains and for
// tables, without locks. progress, if not nil, is told how far it has come.
func Verify(ctx context.Context, pool *projections.Pool, progress func(what string, done, of int)) (Report, error) {
	if progress == nil {
		progress = func(string, int, int) {}
	}
	var r Report
	err := projections.InSnapshot(ctx, pool, func(s projections.Snapshot) error {
		stripes, err := s.Stripes(ctx)
		if err != nil {
			return err
		}
		for i := range stripes {
			if err := verifyStripe(ctx, s, i, stripes, &r); err != nil {
				return err
			}
			progress("chains", i+1, stripes)
		}
		dangling, holes, err := s.FeedFaults(ctx)
		if err != nil {
			return err
		}
		if dangling > 0 || holes > 0 {
			r.add(Fault{Kind: "feed", Detail: fmt.Sprintf("%d entries name no event, %d numbers are missing", dangling, holes)})
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	check, err := projections.Check(ctx, pool, func(done, of int) { progress("projections", done, of) })
	r.Rows, r.Differences = check.Rows, check.Differences
	return r, err
}

func (r *Report) add(f Fault) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, f)
	}
}

func verifyStripe(ctx context.Context, s projections.Snapshot, stripe, of int, r *Report) error {
	heads, err := s.HeadsOf(ctx, stripe, of)
	if err != nil {
		return err
	}
	err = s.StreamsOf(ctx, stripe, of, func(stream eventstore.StreamID, events []eventstore.Event) error {
		r.Streams++
		r.Events += int64(len(events))
		if f := VerifyChain(events); f != nil {
			r.add(*f)
		}
		head, ok := heads[stream]
		delete(heads, stream)
		if !ok {
			r.add(Fault{Stream: stream, Kind: "head", Detail: "the stream has events and no head"})
			return nil
		}
		if f := verifyHead(stream, events, head); f != nil {
			r.add(*f)
		}
		return nil
	})
	for stream := range heads {
		r.add(Fault{Stream: stream, Kind: "head", Detail: "the stream has a head and no events"})
	}
	return err
}

// VerifyChain checks one whole stream, event by event: versions 1..n, each event's
// hash over its own bytes and its predecessor's hash. It returns the first fault,
// nil if there is none.
func VerifyChain(events []eventstore.Event) *Fault {
	var prev eventstore.Digest
	for i, e := range events {
		fault := func(kind, format string, args ...any) *Fault {
			return &Fault{Stream: e.Stream, Version: int64(i) + 1, Kind: kind, Detail: fmt.Sprintf(format, args...)}
		}
		switch {
		case e.Version != int64(i)+1:
			return fault("version", "the next event says version %d", e.Version)
		case e.Stream != events[0].Stream:
			return fault("version", "the event belongs to %s", e.Stream)
		case e.PrevHash != prev:
			return fault("chain", "it names the predecessor %x, which has %x", e.PrevHash[:8], prev[:8])
		}
		if h := eventstore.HashEvent(prev, e.Envelope, e.Payload); h != e.Hash {
			return fault("chain", "its bytes hash to %x, it says %x", h[:8], e.Hash[:8])
		}
		if i > 0 && e.Time.Before(events[i-1].Time) {
			return fault("envelope", "it is earlier than its predecessor")
		}
		prev = e.Hash
	}
	return nil
}

func verifyHead(stream eventstore.StreamID, events []eventstore.Event, h eventstore.Head) *Fault {
	last := events[len(events)-1]
	fault := func(kind, format string, args ...any) *Fault {
		return &Fault{Stream: stream, Version: last.Version, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	if h.Version != last.Version || h.Hash != last.Hash {
		return fault("head", "the head says version %d and hash %x, the last event has %x", h.Version, h.Hash[:8], last.Hash[:8])
	}
	f, err := projections.NewStreamFold(stream)
	if err != nil {
		return fault("fold", "%v", err)
	}
	for _, e := range events {
		if err := f.Add(e); err != nil {
			return fault("fold", "%v", err)
		}
	}
	if terminal(last.Type) != h.Closed {
		return fault("closed", "closed is %t, the last event is %s", h.Closed, last.Type)
	}
	if h.StateVersion != projections.StateVersion(stream) {
		return nil // another release wrote it; readers fold afresh
	}
	state, err := f.State()
	if err != nil {
		return fault("fold", "%v", err)
	}
	if !sameJSON(state, h.State) {
		return fault("fold", "the head's folded state is not what the events give")
	}
	return nil
}

// terminal reports whether an event ends its stream.
func terminal(name string) bool {
	switch name {
	case domain.Succeeded{}.EventType(), domain.Failed{}.EventType(), domain.Cancelled{}.EventType(), domain.TimedOut{}.EventType():
		return true
	}
	return false
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(p, q)
}
