package ledger

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// VerifyChain checks one whole stream, event by event: versions 1..n, each event's
// hash over its own bytes and its predecessor's hash, its id from its command, its
// time. It returns the first fault, nil if there is none.
func VerifyChain(events []eventstore.Event) *Fault {
	var c chain
	for _, e := range events {
		if f := c.add(e); f != nil {
			return f
		}
	}
	return nil
}

// chain is as much of a stream as the next event is checked against.
type chain struct {
	id      eventstore.StreamID
	version int64
	hash    eventstore.Digest
	time    time.Time
	command uuid.UUID
	index   int // of the last event within its command
}

func (c *chain) add(e eventstore.Event) *Fault {
	prev := *c
	if prev.version == 0 {
		prev.id = e.Stream
	}
	*c = chain{id: prev.id, version: prev.version + 1, hash: e.Hash, time: e.Time, command: e.CommandID}
	if prev.version > 0 && prev.command == e.CommandID {
		c.index = prev.index + 1 // a command appends once
	}
	fault := func(kind, format string, args ...any) *Fault {
		return &Fault{Stream: prev.id, Version: c.version, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case e.Stream != prev.id:
		return fault("version", "the event belongs to %s", e.Stream)
	case e.Version != c.version:
		return fault("version", "the next event says version %d", e.Version)
	case e.PrevHash != prev.hash:
		return fault("chain", "it names the predecessor %x, which has %x", e.PrevHash[:8], prev.hash[:8])
	}
	if h := eventstore.HashEvent(prev.hash, e.Envelope, e.Payload); h != e.Hash {
		return fault("chain", "its bytes hash to %x, it says %x", h[:8], e.Hash[:8])
	}
	if e.Time.Before(prev.time) {
		return fault("envelope", "it is earlier than its predecessor")
	}
	if want := eventstore.EventID(e.CommandID, c.index); e.EventID != want {
		return fault("envelope", "its id is %s; event %d of command %s has %s", e.EventID, c.index, e.CommandID, want)
	}
	return nil
}

// stream is a stream on its way past. Of each kind of fault only the first is
// told: the rest follows from it.
type stream struct {
	id      eventstore.StreamID
	version int64 // that the last event says
	hash    eventstore.Digest
	last    string // type of the last event
	chain   chain
	told    map[string]bool // kinds
	fold    *projections.StreamFold
	broken  bool // it cannot be folded
	closed  bool // a terminal event was there
	place   int64
	unfed   bool
	state   []byte // at its end, as a head would carry it; nil where it is broken
	noState error
}

func openStream(id eventstore.StreamID) *stream { return &stream{id: id} }

// settle makes ready, at the stream's end, what it is compared by.
func (s *stream) settle() {
	if s.broken {
		return
	}
	s.fold.Settle()
	s.state, s.noState = s.fold.State()
}

// add checks the stream's next event.
func (s *stream) add(e eventstore.Event, fed places, texts *references) []Fault {
	var out []Fault
	tell := func(f *Fault) {
		if f != nil && !s.told[f.Kind] {
			if s.told == nil {
				s.told = map[string]bool{}
			}
			s.told[f.Kind] = true
			out = append(out, *f)
		}
	}
	fault := func(kind, format string, args ...any) {
		tell(&Fault{Stream: s.id, Version: e.Version, Kind: kind, Detail: fmt.Sprintf(format, args...)})
	}
	if !s.told["chain"] && !s.told["version"] {
		tell(s.chain.add(e))
	}
	if s.closed {
		fault("closed", "%s follows the terminal event", e.Type)
	}
	s.closed = s.closed || terminal(e.Type)
	seq, there := fed.seq[e.Position]
	switch {
	case !there && fed.missed[e.Position]:
		fault("feed", "it was stored before the latest tick and is not in the feed")
	case there && (s.unfed || seq < s.place):
		fault("feed", "it stands in the feed, at %d, before its predecessor", seq)
	}
	s.unfed, s.place = s.unfed || !there, max(s.place, seq)
	s.version, s.hash, s.last = e.Version, e.Hash, e.Type
	if err := s.apply(e, texts); err != nil {
		fault("payload", "%v", err)
	}
	return out
}

func (s *stream) apply(e eventstore.Event, texts *references) (err error) {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	if err == nil {
		texts.collect(e, d)
		if s.fold == nil && !s.broken {
			s.fold, err = projections.NewStreamFold(s.id)
		}
		if err == nil && !s.broken {
			err = s.fold.Apply(d, e)
		}
	}
	s.broken = s.broken || err != nil
	return err
}
