package forwarder

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// keyOf names what is parked: a key of a topic, or a whole topic.
type keyOf struct{ topic, key string }

// parkedKey is a key whose events are passed over.
type parkedKey struct {
	row projections.ParkedKey
	// open: its events are passed over. It closes when a retry has caught up; then
	// those up to through were published by the retry, and later ones are published
	// again as they come. recorded is closed when the database knows as much.
	open     bool
	through  int64
	recorded chan struct{}
	// passed is the highest seq that was passed over: what a retry has to reach.
	passed   int64
	retrying bool
	// held is there while a retry does its last part: the events that come wait in
	// their lanes until it is closed. A key that is written faster than the broker
	// answers would never be caught up with otherwise.
	held chan struct{}
	// unlisted: the database does not list it, though nobody here unparked it.
	unlisted bool
}

const (
	// holdMost bounds how long a retry holds up the lanes.
	holdMost = 2 * time.Second
	// retriesAtOnce bounds the retries of single keys: they read the database that
	// everything else needs too.
	retriesAtOnce = 32
)

// parkedSet is what is parked, as the leader knows it.
type parkedSet struct {
	mu   sync.Mutex
	keys map[keyOf]*parkedKey
}

func newParkedSet(rows []projections.ParkedKey) *parkedSet {
	s := &parkedSet{keys: map[keyOf]*parkedKey{}}
	for _, row := range rows {
		s.keys[keyOf{row.Topic, row.Key}] = &parkedKey{row: row, open: true}
	}
	return s
}

// passOver reports whether an event is not to be published by its lane: its key or
// its topic is parked, or a retry has published it. Where held is not nil, nobody
// knows before it is closed.
func (s *parkedSet) passOver(it *item) (over bool, held <-chan struct{}) {
	return s.mark(it, keyOf{it.topic, it.key}, keyOf{it.topic, domain.WholeTopic})
}

// passOverKey is the same for a retry of the whole topic. The stream of a whole
// topic's parking has the record key that stands for a whole topic here.
func (s *parkedSet) passOverKey(it *item) (over bool, held <-chan struct{}) {
	if it.key == domain.WholeTopic {
		return false, nil
	}
	return s.mark(it, keyOf{it.topic, it.key})
}

func (s *parkedSet) mark(it *item, keys ...keyOf) (over bool, held <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		p := s.keys[k]
		switch {
		case p == nil:
		case p.open && p.held != nil && it.cursor.Seq > p.passed:
			held = p.held
		case p.open:
			p.passed = max(p.passed, it.cursor.Seq)
			over = true
		case it.cursor.Seq <= p.through:
			over = true
		}
	}
	if over {
		return true, nil // what passed it over has it published later
	}
	return false, held
}

// settle answers passOver or passOverKey for good.
func settle(ctx context.Context, it *item, ask func(*item) (bool, <-chan struct{})) (over bool, err error) {
	for {
		over, held := ask(it)
		if held == nil {
			return over, nil
		}
		select {
		case <-held:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// hold lets a key's events wait from now on, for a retry that is nearly done.
func (s *parkedSet) hold(k keyOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	if p.held != nil {
		return
	}
	held := make(chan struct{})
	p.held = held
	time.AfterFunc(holdMost, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.held == held {
			p.release()
		}
	})
}

// release ends a hold, if there is one. The set's lock is held.
func (p *parkedKey) release() {
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// open reports whether a key is parked.
func (s *parkedSet) open(k keyOf) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	return p != nil && p.open
}

// unrecorded returns the wait for the end of an unparking that the database does
// not know yet; nil if there is none.
func (s *parkedSet) unrecorded(k keyOf) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.keys[k]; p != nil && !p.open {
		return p.recorded
	}
	return nil
}

// park notes that the database has a key as parked.
func (s *parkedSet) park(k keyOf, row projections.ParkedKey, passed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	if p == nil || !p.open {
		p = &parkedKey{open: true}
		s.keys[k] = p
	}
	p.row, p.passed = row, max(p.passed, passed)
}

// unpark lets a key's events be published by their lanes again, if a retry that
// has published all up to covered has left none out.
func (s *parkedSet) unpark(k keyOf, covered int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	if p.passed > covered {
		return false
	}
	p.open, p.through, p.recorded = false, covered, make(chan struct{})
	p.release()
	return true
}

// record notes that the database has a key as unparked.
func (s *parkedSet) record(k keyOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	close(p.recorded)
	p.retrying = false
}

// gaveUp ends a retry that met another refusal, or the end of the term.
func (s *parkedSet) gaveUp(k keyOf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.keys[k]
	p.retrying = false
	p.release()
}

// adopt brings the set up to what the database lists, and returns the keys whose
// retry is to begin now. Those of a topic that is parked as a whole wait for it;
// wholeDue says whether it is time for those.
func (s *parkedSet) adopt(rows []projections.ParkedKey, reached eventstore.Cursor, wholeDue bool) []keyOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := map[keyOf]bool{}
	for _, row := range rows {
		k := keyOf{row.Topic, row.Key}
		listed[k] = true
		p := s.keys[k]
		switch {
		case p == nil: // by a leader before this one
			s.keys[k] = &parkedKey{row: row, open: true}
		case p.open && !p.retrying:
			p.row = row
		}
	}
	running := 0
	for k, p := range s.keys {
		if p.retrying && k.key != domain.WholeTopic {
			running++
		}
	}
	var due []keyOf
	for k, p := range s.keys {
		if !p.open {
			// Its retry ends with the record of it.
			if p.through <= reached.Seq && !listed[k] && !p.retrying {
				delete(s.keys, k)
			}
			continue
		}
		// One that was parked after the list was read is in the next list.
		unlisted := p.unlisted && !listed[k]
		p.unlisted = !listed[k]
		whole := s.keys[keyOf{k.topic, domain.WholeTopic}]
		behindWhole := k.key != domain.WholeTopic && whole != nil && whole.open
		wanted := p.row.RetryRequested || unlisted || k.key == domain.WholeTopic && wholeDue
		if !wanted || p.retrying || behindWhole {
			continue
		}
		if k.key != domain.WholeTopic {
			if running == retriesAtOnce {
				continue
			}
			running++
		}
		p.retrying = true
		due = append(due, k)
	}
	return due
}

// given reports whether an event of a parked key was given up by an operator.
func given(row projections.ParkedKey, it *item) bool {
	return row.SkippedEvent != nil && *row.SkippedEvent == it.event.EventID
}

// row returns what is known of a parked key.
func (s *parkedSet) row(k keyOf) projections.ParkedKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[k].row
}

// park records that the broker refused an event, in the database first: only then
// may the checkpoint pass it. For a topic that is refused as a whole, the first of
// its events that is not done in the flow stands for all.
func (t *term) park(ctx context.Context, in *flow, it *item, r *refusal) error {
	k := r.parkedAs(it)
	if r.topic {
		t.parking.Lock()
		defer t.parking.Unlock()
		if t.parked.open(k) && in == t.flow {
			return nil // by another lane
		}
		if first := in.first(it.topic); first != nil {
			it = first
		}
	}
	if wait := t.parked.unrecorded(k); wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return t.recordParked(ctx, k, it, r)
}

func (t *term) recordParked(ctx context.Context, k keyOf, it *item, r *refusal) error {
	e := &it.event.Envelope
	p := domain.ForwarderParked{
		Topic: k.topic, Key: k.key, EventID: domain.NewID[domain.EventID](e.EventID), Stream: string(e.Stream), Version: e.Version, Type: e.Type,
		Reason: r.reason, Detail: clip(r.cause.Error()),
	}
	if err := t.insist(ctx, "park "+k.key+" of "+k.topic, func(ctx context.Context) error { return t.f.Commands.ParkKey(ctx, p) }); err != nil {
		return err
	}
	t.parked.park(k, projections.ParkedKey{
		Topic: k.topic, Key: k.key, EventID: e.EventID, Stream: string(e.Stream), Version: e.Version, Type: e.Type, Reason: r.reason, Detail: &p.Detail,
	}, it.cursor.Seq)
	t.f.Log.WarnContext(ctx, "the broker refuses an event; its key is parked", "topic", k.topic, "key", k.key, "reason", r.reason, "error", p.Detail)
	return nil
}

// clip shortens a text for an event.
func clip(s string) string {
	const most = 500
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
