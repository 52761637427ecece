package forwarder

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	feedPage  = 500
	saveEvery = 250 * time.Millisecond
	lookEvery = time.Second // for parked keys that are wanted again
	// lastWait is how long a leader that stops waits for what is under way.
	lastWait = time.Second
)

// term is one replica's time as the leader.
type term struct {
	f      *Forwarder
	number int64
	lose   context.CancelFunc
	pipe   *pipe

	parked  *parkedSet
	flow    *flow
	parking sync.Mutex
	saved   eventstore.Cursor
}

// run publishes until ctx ends.
func (t *term) run(ctx context.Context) {
	// The client knows no context: whoever waits for a broker is cut off.
	waiting := context.AfterFunc(ctx, t.pipe.session.cutOff)
	from, ok := t.begin(ctx)
	if !waiting() || !ok {
		t.pipe.letGo()
		return
	}
	t.flow = newFlow(ctx, &t.f.Config, from, t.live)
	t.saved = from
	var work sync.WaitGroup
	work.Go(func() { t.read(ctx, from) })
	work.Go(func() { t.lookAtParked(ctx) })
	t.saveWhileHeld(ctx)
	late := time.AfterFunc(lastWait, t.pipe.letGo)
	work.Wait() // retries have something under way too
	t.flow.wait()
	if late.Stop() {
		t.pipe.letGo()
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTime)
	defer cancel()
	t.save(last)
}

// begin waits for the brokers and reads where to go on; false when ctx ended.
func (t *term) begin(ctx context.Context) (from eventstore.Cursor, ok bool) {
	if t.insist(ctx, "look at the topics", t.topics) != nil {
		return from, false
	}
	err := t.insist(ctx, "read where to go on", func(ctx context.Context) error {
		var rows []projections.ParkedKey
		var end eventstore.Cursor
		var err error
		if from, err = t.f.Checkpoints.Checkpoint(ctx, Lease); err != nil {
			return err
		}
		if end, err = t.f.Feed.FeedEnd(ctx); err != nil {
			return err
		}
		if rows, err = t.f.Parked.ParkedKeys(ctx); err != nil {
			return err
		}
		if from.Seq > end.Seq {
			// No backup does that, the two are in one database. Twice is better than not.
			t.f.Log.ErrorContext(ctx, "the checkpoint is beyond the end of the feed; everything is published again", "checkpoint", from.String(), "end", end.String())
			from = eventstore.Cursor{}
		}
		t.parked = newParkedSet(rows)
		return nil
	})
	return from, err == nil
}

// topics makes sure that there is something to publish to. One that is missing is
// told, and parks when an event for it comes; without any the forwarder waits.
func (t *term) topics(context.Context) error {
	all := t.f.Topics.All()
	missing, err := t.pipe.session.ensureTopics(all)
	if err != nil {
		return err
	}
	var texts []string
	for _, m := range missing {
		texts = append(texts, m.text)
	}
	t.f.counts.missing(texts)
	if len(missing) == len(all) {
		return errors.New(strings.Join(texts, "; "))
	}
	return nil
}

// insist does something until it succeeds or ctx ends.
func (t *term) insist(ctx context.Context, what string, do func(context.Context) error) error {
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		err := do(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			t.f.counts.over(what)
			return nil
		}
		t.f.troubled(what, err)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// read brings the feed into the flow.
func (t *term) read(ctx context.Context, cursor eventstore.Cursor) {
	known := newTracker(t.f.History)
	for ctx.Err() == nil {
		var page []*item
		if t.insist(ctx, "read the feed", func(ctx context.Context) (err error) {
			page, err = t.f.page(ctx, known, cursor, feedPage)
			return err
		}) != nil {
			return
		}
		if len(page) == 0 {
			_ = t.f.Feed.WaitFeed(ctx, cursor) // its only error is that of ctx
			continue
		}
		for _, it := range page {
			if t.flow.admit(ctx, it) != nil {
				return
			}
			cursor = it.cursor
		}
	}
}

// page reads the feed and knows where each event goes.
func (f *Forwarder) page(ctx context.Context, known *tracker, after eventstore.Cursor, limit int) ([]*item, error) {
	events, err := f.Feed.ReadFeed(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	return f.items(ctx, known, events)
}

func (f *Forwarder) items(ctx context.Context, known *tracker, events []eventstore.FeedEvent) ([]*item, error) {
	page := make([]*item, len(events))
	for i, e := range events {
		topic, key := f.Topics.Route(e.Event.Stream, e.Event.Type)
		page[i] = &item{cursor: e.Cursor, event: e.Event, topic: topic, key: key}
	}
	return page, known.fill(ctx, f.Topics, page)
}

// live sees to one event of the feed.
func (t *term) live(ctx context.Context, it *item) error {
	for {
		if over, err := settle(ctx, it, t.parked.passOver); over || err != nil {
			return err
		}
		err := t.pipe.publish(ctx, it, func(it *item) bool { over, held := t.parked.passOver(it); return over || held != nil })
		var refused *refusal
		if errors.Is(err, errPassedOver) {
			continue
		}
		if !errors.As(err, &refused) {
			return err
		}
		if err := t.park(ctx, t.flow, it, refused); err != nil {
			return err
		}
	}
}

// saveWhileHeld saves the checkpoint now and then, until ctx ends.
func (t *term) saveWhileHeld(ctx context.Context) {
	for pause(ctx, saveEvery) == nil {
		t.save(ctx)
	}
}

// save writes the checkpoint if it moved. A term that is over loses its lease.
func (t *term) save(ctx context.Context) {
	at := t.flow.upTo()
	if at == t.saved {
		return
	}
	defer crashpoint.Around("forwarder.checkpoint")()
	const saving = "save the checkpoint"
	ok, err := t.f.Checkpoints.SetCheckpointUnder(ctx, Lease, at, t.f.Holder, t.number)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			t.f.troubled(saving, err)
		}
	case !ok:
		t.lose()
	default:
		t.f.counts.over(saving)
		t.saved = at
	}
}
