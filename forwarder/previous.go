package forwarder

import (
	"context"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// rememberStreams is how many streams a tracker keeps in mind at least.
const rememberStreams = 32 << 10

// tracker knows the version of a stream's previous event in the same topic. Only
// heartbeats go another way than the rest of their stream. It serves one reader.
type tracker struct {
	history    History
	young, old map[eventstore.StreamID]lately
}

// lately are the last versions of a stream's heartbeats and of its other events.
type lately struct{ heartbeat, other int64 }

func (l lately) last() int64 { return max(l.heartbeat, l.other) }

func newTracker(h History) *tracker {
	return &tracker{history: h, young: map[eventstore.StreamID]lately{}}
}

// fill sets previous of a page's items. Of each stream the page holds every event
// between its first and its last one there, in order.
func (t *tracker) fill(ctx context.Context, topics Topics, page []*item) error {
	split := topics.Heartbeats != topics.Attempts
	if err := t.ask(ctx, page, split); err != nil {
		return err
	}
	for _, it := range page {
		e := &it.event
		if !split || !splits(e.Stream) {
			it.previous = e.Version - 1
			continue
		}
		l := t.know(e.Stream)
		if e.Type == heartbeat {
			it.previous, l.heartbeat = l.heartbeat, e.Version
		} else {
			it.previous, l.other = l.other, e.Version
		}
		t.keep(e.Stream, l)
	}
	return nil
}

func splits(s eventstore.StreamID) bool { return len(s) > 8 && s[:8] == "attempt/" }

// ask learns from the database, in one go, of the streams that are not known up to
// the version before.
func (t *tracker) ask(ctx context.Context, page []*item, split bool) error {
	if !split {
		return nil
	}
	var streams []eventstore.StreamID
	var below []int64
	seen := map[eventstore.StreamID]bool{}
	for _, it := range page {
		e := &it.event
		if !splits(e.Stream) || seen[e.Stream] {
			continue
		}
		seen[e.Stream] = true
		if t.know(e.Stream).last() != e.Version-1 {
			streams, below = append(streams, e.Stream), append(below, e.Version)
		}
	}
	if len(streams) == 0 {
		return nil
	}
	heartbeats, others, err := t.history.PreviousVersions(ctx, streams, below, heartbeat)
	if err != nil {
		return err
	}
	for i, s := range streams {
		t.keep(s, lately{heartbeats[i], others[i]})
	}
	return nil
}

func (t *tracker) know(s eventstore.StreamID) lately {
	l, ok := t.young[s]
	if !ok {
		l = t.old[s]
	}
	return l
}

func (t *tracker) keep(s eventstore.StreamID, l lately) {
	if len(t.young) >= rememberStreams {
		if _, ok := t.young[s]; !ok {
			t.old, t.young = t.young, map[eventstore.StreamID]lately{}
		}
	}
	t.young[s] = l
}
