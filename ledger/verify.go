package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Fault is one thing that is wrong, at the first version where it shows. Kind is
// one of
//
//	chain     a hash, or the name of the predecessor
//	version   versions are not 1, 2, 3 …
//	envelope  event_id or time is not what an append writes
//	payload   the event cannot be read, or does not fit into its stream
//	head      the head is missing, or of another event
//	fold      the head's state is not what the events give
//	closed    closed without a terminal event, or something follows one
//	text      a text that the event names is missing or is another one
//	feed      the event's place in the feed; the feed as such where Stream is ""
type Fault struct {
	Stream  eventstore.StreamID `json:"stream"`
	Version int64               `json:"version,omitempty"`
	Kind    string              `json:"kind"`
	Detail  string              `json:"detail"`
}

func (f Fault) String() string {
	switch {
	case f.Stream == "":
		return fmt.Sprintf("%s: %s", f.Kind, f.Detail)
	case f.Version == 0:
		return fmt.Sprintf("%s: %s: %s", f.Stream, f.Kind, f.Detail)
	}
	return fmt.Sprintf("%s version %d: %s: %s", f.Stream, f.Version, f.Kind, f.Detail)
}

// Report says what a verification saw.
type Report struct {
	Streams     int64                    `json:"streams"`
	Events      int64                    `json:"events"`
	Texts       int64                    `json:"texts"` // that events name and that were not erased
	Rows        int64                    `json:"rows"`  // that the events give
	Faults      []Fault                  `json:"faults"`
	Differences []projections.Difference `json:"differences"`
	Omitted     int64                    `json:"omitted,omitempty"` // faults and differences beyond those named
}

// OK reports whether nothing is wrong.
func (r Report) OK() bool { return len(r.Faults) == 0 && len(r.Differences) == 0 }

// maxNamed is how many faults and how many differences are named.
const maxNamed = 1000

func (r *Report) add(f Fault) {
	if len(r.Faults) >= maxNamed {
		r.Omitted++
		return
	}
	r.Faults = append(r.Faults, f)
}

func (r *Report) differ(ds []projections.Difference) {
	room := min(len(ds), maxNamed-len(r.Differences))
	r.Differences = append(r.Differences, ds[:room]...)
	r.Omitted += int64(len(ds) - room)
}

// Verify checks the whole database in one snapshot and one pass, without locks.
// Whatever is wrong with an event is a fault, and the pass goes on; an error means
// that the database could not be read, and the report says what was seen until
// then. progress, if not nil, is told how many of the events are done.
func Verify(ctx context.Context, pool *projections.Pool, progress func(what string, done, of int)) (Report, error) {
	if progress == nil {
		progress = func(string, int, int) {}
	}
	var r Report
	err := projections.InSnapshot(ctx, pool, func(s projections.Snapshot) error {
		of, err := s.EventCount(ctx)
		if err != nil {
			return err
		}
		c, err := s.Compare(ctx, projections.Tables(), "")
		if err != nil {
			return err
		}
		v := verification{s: s, rows: c, report: &r, progress: func() { progress("events", int(r.Events), int(max(of, r.Events))) }}
		err = s.Walk(ctx, "", 0, func(p projections.Page) error { return v.page(ctx, p) })
		if last := v.wait(); err == nil {
			err = v.settle(ctx, last)
		}
		if err != nil {
			return err
		}
		dangling, holes, beyond, err := s.FeedFaults(ctx)
		if err == nil && (dangling > 0 || holes > 0 || beyond > 0) {
			r.add(Fault{Kind: "feed", Detail: fmt.Sprintf("%d entries name no event, %d numbers are missing, %d entries are of no tick", dangling, holes, beyond)})
		}
		return err
	})
	return r, err
}

// verification is a pass on its way. The database has one connection, the
// snapshot's, and gives the next page and what the page before is compared with
// while a page is folded beside it.
type verification struct {
	s        projections.Snapshot
	rows     *projections.Comparison
	report   *Report
	progress func()
	open     *stream      // the last page ended within it; of fold while one runs
	folding  chan *folded // the page on its way; nil: none
}

func (v *verification) page(ctx context.Context, p projections.Page) error {
	fed, err := v.feed(ctx, p.Events)
	if err != nil {
		return err
	}
	before := v.wait()
	p.Events = slices.Clone(p.Events) // they are valid during this call only
	result := make(chan *folded, 1)
	go func() { result <- v.fold(p, fed) }()
	v.folding = result
	return v.settle(ctx, before)
}

// wait returns the page that is being folded, when it is; nil if there is none.
func (v *verification) wait() *folded {
	if v.folding == nil {
		return nil
	}
	f := <-v.folding
	v.folding = nil
	return f
}

// settle reports what a folded page showed and compares it with the database.
func (v *verification) settle(ctx context.Context, f *folded) error {
	if f == nil {
		return nil
	}
	v.report.Events += f.events
	for _, fault := range f.faults {
		v.report.add(fault)
	}
	for _, s := range f.ended {
		v.report.Streams++
		if s.broken {
			v.rows.Skip(s.id)
		} else {
			v.report.Rows += v.rows.Add(s.id, s.fold)
		}
	}
	if err := v.texts(ctx, f.texts); err != nil {
		return err
	}
	if err := v.heads(ctx, f); err != nil {
		return err
	}
	ds, err := v.rows.Page(ctx, f.page)
	v.report.differ(ds)
	if err == nil {
		v.progress()
	}
	return err
}

func (v *verification) heads(ctx context.Context, f *folded) error {
	heads, err := v.s.HeadsOf(ctx, f.page)
	if err != nil {
		return err
	}
	for _, s := range f.ended {
		head, ok := heads[s.id]
		delete(heads, s.id)
		if !ok {
			v.report.add(Fault{Stream: s.id, Kind: "head", Detail: "the stream has events and no head"})
		} else if f := s.verifyHead(head); f != nil {
			v.report.add(*f)
		}
	}
	for id := range heads {
		v.report.add(Fault{Stream: id, Kind: "head", Detail: "the stream has a head and no events"})
	}
	return nil
}

// places is where the events of a page stand in the feed.
type places struct {
	seq    map[int64]int64 // by position
	missed map[int64]bool  // not there, and should be
}

func (v *verification) feed(ctx context.Context, events []eventstore.Event) (places, error) {
	seq, err := v.s.FeedPlaces(ctx, events)
	if err != nil {
		return places{}, err
	}
	var unfed []eventstore.Event
	for _, e := range events {
		if _, ok := seq[e.Position]; !ok {
			unfed = append(unfed, e)
		}
	}
	missed, err := v.s.Missed(ctx, unfed)
	return places{seq, missed}, err
}

func (s *stream) verifyHead(h eventstore.Head) *Fault {
	fault := func(kind, format string, args ...any) *Fault {
		return &Fault{Stream: s.id, Version: s.version, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	if h.Version != s.version || h.Hash != s.hash {
		return fault("head", "the head says version %d and hash %x, the last event has %x", h.Version, h.Hash[:8], s.hash[:8])
	}
	if terminal(s.last) != h.Closed {
		return fault("closed", "closed is %t, the last event is %s", h.Closed, s.last)
	}
	if s.broken || h.StateVersion != projections.StateVersion(s.id) {
		return nil // told already; or another release wrote it, and readers fold afresh
	}
	if s.noState != nil {
		return fault("fold", "%v", s.noState)
	}
	if !sameJSON(s.state, h.State) {
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
