package forwarder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// retryPage is how many events of a key are read at once.
const retryPage = 200

// lookAtParked begins the retries that are asked for, until ctx ends.
func (t *term) lookAtParked(ctx context.Context) {
	var retries sync.WaitGroup
	defer retries.Wait()
	tried := time.Now()
	for pause(ctx, lookEvery) == nil {
		var rows []projections.ParkedKey
		if t.insist(ctx, "look for parked keys that are wanted again", func(ctx context.Context) (err error) {
			rows, err = t.f.Parked.ParkedKeys(ctx)
			return err
		}) != nil {
			return
		}
		whole := time.Since(tried) >= t.f.TopicEvery
		if whole {
			tried = time.Now()
			if t.f.counts.lacking() {
				_ = t.topics(ctx) // what is still missing shows in Status
			}
		}
		for _, k := range t.parked.adopt(rows, t.flow.upTo(), whole) {
			retries.Go(func() { t.retry(ctx, k) })
		}
	}
}

// retry publishes what was passed over of a key, from the refused event on. It
// changes nothing but by publishing, until it has caught up: then the key's lanes
// take over, and the database is told. If this ends in between, the next leader
// begins it anew; consumers see events twice and none too early.
func (t *term) retry(ctx context.Context, k keyOf) {
	row := t.parked.row(k)
	var n int64
	var err error
	if k.key == domain.WholeTopic {
		n, err = t.retryTopic(ctx, k, row)
	} else {
		n, err = t.retryKey(ctx, k, row)
	}
	if err != nil {
		t.parked.gaveUp(k)
		return
	}
	if t.insist(ctx, "unpark "+k.key+" of "+k.topic, func(ctx context.Context) error { return t.unpark(ctx, k, n) }) != nil {
		return
	}
	t.parked.record(k)
	t.f.Log.InfoContext(ctx, "a parked key is published again", "topic", k.topic, "key", k.key, "events", n)
}

// unpark tells the database under a lease that was renewed just now: no other
// leader may know the key as parked and pass over its events.
func (t *term) unpark(ctx context.Context, k keyOf, published int64) error {
	limited, cancel := context.WithTimeout(ctx, leaseTerm/2)
	defer cancel()
	ok, err := t.f.Leases.RenewLease(limited, Lease, t.f.Holder, t.number, leaseTerm)
	if err != nil {
		return err
	}
	if !ok {
		t.lose()
		return context.Canceled
	}
	return t.f.Commands.UnparkKey(limited, k.topic, k.key, published)
}

// before returns the cursor before an event.
func (t *term) before(ctx context.Context, event uuid.UUID) (eventstore.Cursor, error) {
	var at eventstore.Cursor
	err := t.insist(ctx, "find the refused event", func(ctx context.Context) error {
		seq, ok, err := t.f.History.SeqOfEvent(ctx, event)
		if err == nil && ok {
			at.Seq = seq - 1
		}
		return err
	})
	return at, err // of an event that is not there, from the beginning on
}

var errStillParked = errors.New("the key is still parked")

func (t *term) retryKey(ctx context.Context, k keyOf, row projections.ParkedKey) (published int64, err error) {
	cursor, err := t.before(ctx, row.EventID)
	if err != nil {
		return 0, err
	}
	known := newTracker(t.f.History)
	reached := map[eventstore.StreamID]int64{}
	for {
		var page []*item
		var end eventstore.Cursor
		if err := t.insist(ctx, "read the events of a parked key", func(ctx context.Context) (err error) {
			if end, err = t.f.Feed.FeedEnd(ctx); err != nil {
				return err
			}
			page, err = t.f.pageOfKey(ctx, known, k.key, reached, cursor, end)
			return err
		}); err != nil {
			return published, err
		}
		for _, it := range page {
			reached[it.event.Stream], cursor = it.event.Version, it.cursor
			if it.topic != k.topic || it.key != k.key || given(row, it) {
				continue
			}
			if err := t.republish(ctx, it); err != nil {
				return published, err
			}
			published++
		}
		if len(page) == retryPage {
			continue
		}
		if t.parked.unpark(k, end.Seq) {
			return published, nil
		}
		t.parked.hold(k)
	}
}

// pageOfKey reads events of all streams that may hold some of a key, in feed order
// and up to an end of the feed that was read before: behind it there may be some of
// a stream that was not there yet when the streams were looked up. Up to that end
// nothing is missing in a page that is not full.
func (f *Forwarder) pageOfKey(ctx context.Context, known *tracker, key string, reached map[eventstore.StreamID]int64, after, end eventstore.Cursor) ([]*item, error) {
	names, prefixes := streamsNamed(key)
	streams, err := f.History.StreamsOf(ctx, names, prefixes, key)
	if err != nil {
		return nil, err
	}
	slices.Sort(streams)
	streams = slices.Compact(streams)
	versions := make([]int64, len(streams))
	for i, s := range streams {
		versions[i] = reached[s]
	}
	events, err := f.History.ReadFeedOfStreams(ctx, streams, versions, after, retryPage)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(events, func(e eventstore.FeedEvent) bool { return e.Cursor.Seq > end.Seq }); i >= 0 {
		events = events[:i]
	}
	return f.items(ctx, known, events)
}

// republish publishes one event of a parked key; what is refused again is parked
// from there on.
func (t *term) republish(ctx context.Context, it *item) error {
	if t.parked.open(keyOf{it.topic, domain.WholeTopic}) {
		return errStillParked
	}
	err := t.pipe.publish(ctx, it, func(*item) bool { return t.parked.open(keyOf{it.topic, domain.WholeTopic}) })
	var refused *refusal
	if !errors.As(err, &refused) {
		return err
	}
	return errors.Join(errStillParked, t.park(ctx, t.flow, it, refused))
}

// retryTopic does the same for all keys of a topic at once, by lanes of its own. Keys that
// are parked by themselves stay so.
func (t *term) retryTopic(ctx context.Context, k keyOf, row projections.ParkedKey) (published int64, err error) {
	cursor, err := t.before(ctx, row.EventID)
	if err != nil {
		return 0, err
	}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	r := &topicRetry{t: t, row: row, giveUp: giveUp}
	r.flow = newFlow(ctx, &t.f.Config, cursor, r.handle)
	defer r.flow.wait()
	known := newTracker(t.f.History)
	probing := true
	for {
		var page []*item
		var end eventstore.Cursor
		if err := t.insist(ctx, "read a parked topic's events", func(ctx context.Context) (err error) {
			if end, err = t.f.Feed.FeedEnd(ctx); err != nil {
				return err
			}
			page, err = t.f.page(ctx, known, cursor, feedPage)
			return err
		}); err != nil {
			return 0, err
		}
		for _, it := range page {
			cursor = it.cursor
			if it.topic != k.topic {
				continue
			}
			if err := r.flow.admit(ctx, it); err != nil {
				return 0, err
			}
			if probing { // alone, before all lanes run into the same refusal
				if err := r.flow.drain(ctx); err != nil {
					return 0, err
				}
				probing = false
			}
		}
		if len(page) == feedPage {
			continue
		}
		if err := r.flow.drain(ctx); err != nil {
			return 0, err
		}
		if t.parked.unpark(k, max(end.Seq, cursor.Seq)) {
			return r.published(), nil
		}
		t.parked.hold(k)
	}
}

type topicRetry struct {
	t      *term
	row    projections.ParkedKey
	flow   *flow
	giveUp context.CancelFunc

	mu sync.Mutex
	n  int64
}

func (r *topicRetry) published() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *topicRetry) handle(ctx context.Context, it *item) error {
	for {
		if over, err := settle(ctx, it, r.t.parked.passOverKey); over || err != nil || given(r.row, it) {
			return err
		}
		err := r.t.pipe.publish(ctx, it, func(it *item) bool { over, held := r.t.parked.passOverKey(it); return over || held != nil })
		if err == nil {
			r.mu.Lock()
			r.n++
			r.mu.Unlock()
			return nil
		}
		var refused *refusal
		if errors.Is(err, errPassedOver) {
			continue
		}
		if !errors.As(err, &refused) {
			return err
		}
		if err := r.t.park(ctx, r.flow, it, refused); err != nil {
			return err
		}
		if refused.topic {
			r.giveUp()
			return errStillParked
		}
	}
}
