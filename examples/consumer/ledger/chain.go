package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// Chain puts the chain of every stream together from all topics. Only heartbeats
// stand in a topic of their own, so an attempt's chain over one topic alone has
// holes where previntopic jumps; with both it is whole. The topics may be read in
// any order to each other. What a chain cannot show is a missing tail: the stream's
// end, as the service tells it, does.
//
// It keeps a few bytes for each stream, and one link for each event that waits for
// another one before it.
type Chain struct {
	streams map[string]*links
}

// links is what is known of one stream.
type links struct {
	until   int64 // whole up to this version
	hash    Digest
	waiting map[int64]link // later ones
}

type link struct{ prev, hash Digest }

// NewChain begins with nothing.
func NewChain() *Chain { return &Chain{streams: map[string]*links{}} }

// Add puts a fresh event in. It says whether the event does not follow the one
// before it, or the one after it does not follow it.
func (c *Chain) Add(e Event) error {
	s := c.streams[e.Stream]
	if s == nil {
		s = &links{waiting: map[int64]link{}}
		c.streams[e.Stream] = s
	}
	if e.Version <= s.until {
		return fmt.Errorf("%s: version %d came before", e.Stream, e.Version)
	}
	s.waiting[e.Version] = link{e.PrevHash, e.Hash}
	for {
		next, ok := s.waiting[s.until+1]
		if !ok {
			return nil
		}
		if next.prev != s.hash {
			return fmt.Errorf("%s: version %d does not follow version %d: prev_hash is %s, want %s", e.Stream, s.until+1, s.until, next.prev, s.hash)
		}
		delete(s.waiting, s.until+1)
		s.until, s.hash = s.until+1, next.hash
	}
}

// Whole gives how far the chain of a stream is whole, from version 1 on, and the
// hash there.
func (c *Chain) Whole(stream string) (version int64, hash Digest) {
	s := c.streams[stream]
	if s == nil {
		return 0, Digest{}
	}
	return s.until, s.hash
}

// Hole is a place where a chain is not whole.
type Hole struct {
	Stream  string
	Missing int64 // the first version that is missing, or does not follow
	Waiting int   // events behind it
}

// Holes lists the streams whose chain is not whole, sorted.
func (c *Chain) Holes() []Hole {
	var out []Hole
	for name, s := range c.streams {
		if len(s.waiting) > 0 {
			out = append(out, Hole{name, s.until + 1, len(s.waiting)})
		}
	}
	slices.SortFunc(out, func(a, b Hole) int { return strings.Compare(a.Stream, b.Stream) })
	return out
}
