package dispatch

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// queueIndex is this replica's picture of the attempts that wait, in buckets of
// one need each, and of the runners' requests that wait for work. It gives each
// attempt that comes to one request that fits it. The picture may be old: an offer
// that it leads to is checked by the append, so an old picture costs a try and
// nothing else.
//
// Invariant: no request waits while a bucket that fits it has an attempt to offer.
type queueIndex struct {
	news news

	mu      sync.Mutex
	synced  time.Time               // when all was last read; zero: never, or in vain
	buckets map[string]*bucket      // by need
	items   map[uuid.UUID]*item     // in a bucket or delayed
	delayed line                    // not to be offered yet, the earliest first
	claimed map[uuid.UUID]*item     // somebody tries to offer it
	aside   map[uuid.UUID]time.Time // cannot be offered, and until when nobody tries
	touched map[*bucket]struct{}    // got an attempt since the last match
	classes map[string]*class       // of waiting requests, by capability
	waiting int                     // requests that wait
	seq     uint64                  // counts waiters
	round   uint64                  // counts readings of all
	looked  chan struct{}           // closed at the end of a refresh
}

// asideFor is how long an attempt that cannot be described is not tried again. Its
// queue timeout ends it.
const asideFor = time.Minute

// item is an attempt that waits.
type item struct {
	id        uuid.UUID
	bucket    *bucket
	priority  int
	createdAt time.Time
	notBefore time.Time // as the row says; zero if at once
	ripe      time.Time // not before, by the local clock
	delayed   bool
	specText  string
	round     uint64 // when it was last read
}

// bucket holds the attempts of one need, in the order of offers.
type bucket struct {
	key  string
	need need
	line line
	fits map[*class]bool
}

// class is what requests of equally capable runners have in common.
type class struct {
	key  string
	fits func(need) bool
	idle []*waiter // first come, first served
}

// waiter is a runner's request that waits for work.
type waiter struct {
	class *class
	seq   uint64
	c     chan struct{} // filled when an attempt was given
	got   *item         // guarded by queueIndex.mu
}

func newQueueIndex() *queueIndex {
	q := &queueIndex{
		buckets: map[string]*bucket{}, items: map[uuid.UUID]*item{}, claimed: map[uuid.UUID]*item{}, aside: map[uuid.UUID]time.Time{},
		touched: map[*bucket]struct{}{}, classes: map[string]*class{}, looked: make(chan struct{}),
	}
	q.delayed.order = func(a, b *item) int {
		return cmp.Or(a.ripe.Compare(b.ripe), bytes.Compare(a.id[:], b.id[:]))
	}
	q.news.kick = make(chan struct{}, 1)
	return q
}

// offerOrder is priority, then age.
func offerOrder(a, b *item) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), a.createdAt.Compare(b.createdAt), bytes.Compare(a.id[:], b.id[:]))
}

// line is a sorted list of items.
type line struct {
	order func(a, b *item) int
	items []*item
}

func (l *line) add(it *item) {
	if i, found := slices.BinarySearchFunc(l.items, it, l.order); !found {
		l.items = slices.Insert(l.items, i, it)
	}
}

func (l *line) remove(it *item) {
	if i, found := slices.BinarySearchFunc(l.items, it, l.order); found {
		l.items = slices.Delete(l.items, i, i+1)
	}
}

// news gathers which attempts to read again. It has a lock of its own, which is
// held for a map's access and never while anything is read: appends take it.
type news struct {
	mu   sync.Mutex
	ids  map[uuid.UUID]bool // true: may have begun to wait; guarded by mu
	all  bool               // guarded by mu
	kick chan struct{}
}

// maxNews is how many attempts are read one by one; with more, all are read.
const maxNews = 2000

// changed says that an attempt may have begun or ceased to wait.
func (q *queueIndex) changed(id uuid.UUID, enters bool) {
	n := &q.news
	n.mu.Lock()
	if len(n.ids) >= maxNews {
		n.ids, n.all = nil, true
	}
	if !n.all {
		if n.ids == nil {
			n.ids = map[uuid.UUID]bool{}
		}
		n.ids[id] = n.ids[id] || enters
	}
	n.mu.Unlock()
	q.stir()
}

// distrust makes the next refresh read all.
func (q *queueIndex) distrust() {
	q.news.mu.Lock()
	q.news.ids, q.news.all = nil, true
	q.news.mu.Unlock()
	q.stir()
}

// stir makes the refresher look now.
func (q *queueIndex) stir() {
	select {
	case q.news.kick <- struct{}{}:
	default:
	}
}

// takeNews returns what to read again, and forgets it.
func (q *queueIndex) takeNews() (ids map[uuid.UUID]bool, all bool) {
	n := &q.news
	n.mu.Lock()
	defer n.mu.Unlock()
	ids, all = n.ids, n.all
	n.ids, n.all = nil, false
	return ids, all
}

// known narrows what is to be read again: an attempt that ceased to wait and is
// not in the picture is none.
func (q *queueIndex) known(ids map[uuid.UUID]bool) []uuid.UUID {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []uuid.UUID
	for id, enters := range ids {
		if _, ok := q.items[id]; ok || enters {
			out = append(out, id)
		}
	}
	return out
}

// update takes over what was read of the attempts named by ids, or of all if ids
// is nil, and gives what came to whoever waits for it.
func (q *queueIndex) update(rows []projections.Queued, ids []uuid.UUID, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.round++
	for i := range rows {
		q.put(&rows[i], now)
	}
	if ids == nil {
		q.synced = now
		for _, it := range q.items {
			if it.round != q.round {
				q.drop(it)
			}
		}
		for id, until := range q.aside {
			if now.After(until) {
				delete(q.aside, id)
			}
		}
		q.prune()
	}
	for _, id := range ids {
		if it := q.items[id]; it != nil && it.round != q.round {
			q.drop(it)
		}
	}
	q.ripen(now)
	q.match()
}

// ripenLag is added to the wait for an attempt's not_before: an offer that is too
// early is refused.
const ripenLag = 5 * time.Millisecond

func (q *queueIndex) put(r *projections.Queued, now time.Time) {
	if q.claimed[r.AttemptID] != nil || now.Before(q.aside[r.AttemptID]) {
		return
	}
	var notBefore time.Time
	if r.NotBefore != nil {
		notBefore = *r.NotBefore
	}
	if it := q.items[r.AttemptID]; it != nil {
		if it.notBefore.Equal(notBefore) {
			it.round = q.round
			return
		}
		q.drop(it)
	}
	b := q.bucketOf(r)
	if b == nil {
		return
	}
	it := &item{id: r.AttemptID, bucket: b, priority: r.Priority, createdAt: r.CreatedAt, notBefore: notBefore, specText: r.SpecText, round: q.round}
	if wait := notBefore.Sub(r.ReadAt); !notBefore.IsZero() && wait > 0 {
		it.ripe = now.Add(wait + ripenLag)
	}
	q.place(it, now)
}

// place puts an item where it belongs.
func (q *queueIndex) place(it *item, now time.Time) {
	q.items[it.id] = it
	if it.delayed = it.ripe.After(now); it.delayed {
		q.delayed.add(it)
		return
	}
	it.bucket.line.add(it)
	q.touched[it.bucket] = struct{}{}
}

func (q *queueIndex) drop(it *item) {
	delete(q.items, it.id)
	if it.delayed {
		q.delayed.remove(it)
	} else {
		it.bucket.line.remove(it)
	}
}

// bucketOf finds the bucket of a row's need; nil if the need cannot be read.
func (q *queueIndex) bucketOf(r *projections.Queued) *bucket {
	key := r.JobType + "\x00" + r.Action + "\x00" + r.Environment + "\x00" + r.Runner
	if b := q.buckets[key]; b != nil {
		return b
	}
	n := need{JobType: r.JobType, Action: r.Action, Environment: r.Environment}
	if err := json.Unmarshal([]byte(r.Runner), &n.Runner); err != nil {
		return nil // no runner can be told to fit; the queue timeout ends it
	}
	b := &bucket{key: key, need: n, line: line{order: offerOrder}, fits: map[*class]bool{}}
	q.buckets[key] = b
	return b
}

// prune forgets empty buckets, and classes that nobody is of when there are many.
func (q *queueIndex) prune() {
	used := map[*bucket]bool{}
	for _, it := range q.items {
		used[it.bucket] = true
	}
	for _, it := range q.claimed {
		used[it.bucket] = true
	}
	for key, b := range q.buckets {
		if !used[b] {
			delete(q.buckets, key)
			delete(q.touched, b)
		}
	}
	if len(q.classes) <= maxIdleClasses {
		return
	}
	for key, c := range q.classes {
		if len(c.idle) == 0 {
			delete(q.classes, key)
		}
	}
	for _, b := range q.buckets {
		clear(b.fits)
	}
}

const maxIdleClasses = 256

// ripen moves what may be offered by now into its bucket.
func (q *queueIndex) ripen(now time.Time) {
	for len(q.delayed.items) > 0 && !q.delayed.items[0].ripe.After(now) {
		it := q.delayed.items[0]
		q.delayed.remove(it)
		q.place(it, now)
	}
}

func (b *bucket) suits(c *class) bool {
	fits, ok := b.fits[c]
	if !ok {
		fits = c.fits(b.need)
		b.fits[c] = fits
	}
	return fits
}

// match gives attempts that came to the requests that wait for them: the first in
// the order of offers to the request that waited longest.
func (q *queueIndex) match() {
	for q.waiting > 0 && len(q.touched) > 0 {
		var first *item
		var to *class
		for b := range q.touched {
			var c *class
			if len(b.line.items) > 0 {
				c = q.longest(b)
			}
			if c == nil {
				delete(q.touched, b)
				continue
			}
			if it := b.line.items[0]; first == nil || offerOrder(it, first) < 0 {
				first, to = it, c
			}
		}
		if first == nil {
			break
		}
		w := to.idle[0]
		q.unwait(w)
		w.got = q.claimItem(first)
		w.c <- struct{}{}
	}
	clear(q.touched)
}

// longest returns the class whose first request waited longest among those that
// the bucket suits; nil if none waits.
func (q *queueIndex) longest(b *bucket) *class {
	var out *class
	for _, c := range q.classes {
		if len(c.idle) > 0 && b.suits(c) && (out == nil || c.idle[0].seq < out.idle[0].seq) {
			out = c
		}
	}
	return out
}

func (q *queueIndex) unwait(w *waiter) {
	if i := slices.Index(w.class.idle, w); i >= 0 {
		w.class.idle = slices.Delete(w.class.idle, i, i+1)
		q.waiting--
	}
}

func (q *queueIndex) claimItem(it *item) *item {
	q.drop(it)
	q.claimed[it.id] = it
	return it
}

// enter makes a request wait for an attempt that fits. fits is asked once for
// each need and key. The caller leaves in any case.
func (q *queueIndex) enter(key string, fits func(need) bool) *waiter {
	q.mu.Lock()
	c := q.classes[key]
	if c == nil {
		c = &class{key: key, fits: fits}
		q.classes[key] = c
	}
	q.seq++
	w := &waiter{class: c, seq: q.seq, c: make(chan struct{}, 1)}
	if it := q.best(c); it != nil {
		w.got = q.claimItem(it)
		w.c <- struct{}{}
	} else {
		c.idle = append(c.idle, w)
		q.waiting++
	}
	q.mu.Unlock()
	q.stir()
	return w
}

// leave ends the wait. The attempt that was given, if any, is to be settled.
func (q *queueIndex) leave(w *waiter) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unwait(w)
	return w.got
}

// claim takes the next attempt of the class; nil if there is none.
func (q *queueIndex) claim(c *class) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.best(c); it != nil {
		return q.claimItem(it)
	}
	return nil
}

func (q *queueIndex) best(c *class) *item {
	var out *item
	for _, b := range q.buckets {
		if len(b.line.items) > 0 && b.suits(c) && (out == nil || offerOrder(b.line.items[0], out) < 0) {
			out = b.line.items[0]
		}
	}
	return out
}

// offered settles an attempt that was leased.
func (q *queueIndex) offered(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.claimed, it.id)
}

// missed settles an attempt that could not be leased: it is read again.
func (q *queueIndex) missed(it *item) {
	q.offered(it)
	q.changed(it.id, true)
}

// putBack settles an attempt that nobody tried: the next may have it.
func (q *queueIndex) putBack(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.claimed, it.id)
	q.place(it, time.Now())
	q.match()
}

// putAside settles an attempt that cannot be described.
func (q *queueIndex) putAside(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.claimed, it.id)
	q.aside[it.id] = time.Now().Add(asideFor)
}

// need is what a job asks of a runner.
type need struct {
	JobType, Action, Environment string
	Runner                       domain.RunnerRequest
}
