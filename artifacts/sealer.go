package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

// Leases are fenced row leases; see dispatch.Leases for the contract.
type Leases interface {
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error)
	RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (ok bool, err error)
	ReleaseLease(ctx context.Context, name, holder string, term int64) error
}

// Sealer seals the bundles of attempts whose bytes have arrived, and writes the
// canonical empty bundles. Any number of replicas may run one; one works at a
// time, and two that overlap do no harm: the append decides.
type Sealer struct {
	Store    eventstore.Store
	Feed     eventstore.Feed
	Commands *commands.Service
	Reads    *projections.Reader
	Objects  Objects
	Leases   Leases
	Holder   string
	// Woken returns a channel that is closed when there may be something to seal.
	Woken func() <-chan struct{}
	Log   *slog.Logger

	trouble trouble
}

const (
	sealerLease    = "sealer"
	emptyLease     = "empty-bundles"
	workTerm       = 10 * time.Second
	sealEvery      = time.Second
	sealPage       = 256
	sealParallel   = 4
	sealLongest    = 10 * time.Minute // one attempt's bundle; then others have their turn
	emptyReader    = "empty-bundles"
	emptyBatch     = 200
	emptyRounds    = 5 // batches between two looks at the row lease
	leastSealPause = 20 * time.Millisecond
	firstRetry     = time.Second
	lastRetry      = 30 * time.Second
)

// Waiting is how many attempts could not be sealed when they were tried last, for
// metrics.
func (w *Sealer) Waiting() int64 { return w.trouble.count() }

// Run seals until ctx ends. Empty bundles are written beside it, so that neither
// waits for the other.
func (w *Sealer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { w.hold(ctx, sealerLease, w.sealAll) })
	wg.Go(func() { w.hold(ctx, emptyLease, w.writeAllEmpty) })
	wg.Wait()
	return nil
}

// hold runs work whenever it has the named row lease, until ctx ends. The lease is
// renewed while work runs; if it is lost, work's context ends.
func (w *Sealer) hold(ctx context.Context, name string, work func(context.Context)) {
	for ctx.Err() == nil {
		term, ok, err := w.Leases.AcquireLease(ctx, name, w.Holder, workTerm)
		if err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "a row lease cannot be taken", "lease", name, "error", err)
		}
		if !ok || err != nil {
			pause(ctx, sealEvery, nil)
			continue
		}
		held, lose := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer lose()
			w.renew(held, name, term)
		})
		work(held)
		lose()
		wg.Wait()
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		if err := w.Leases.ReleaseLease(release, name, w.Holder, term); err != nil {
			w.Log.InfoContext(ctx, "giving up a row lease failed; it runs out by itself", "lease", name, "error", err)
		}
		cancel()
	}
}

// renew prolongs a row lease until ctx ends or the lease is another's.
func (w *Sealer) renew(ctx context.Context, name string, term int64) {
	last := time.Now()
	for pause(ctx, workTerm/4, nil) {
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, workTerm/4)
		ok, err := w.Leases.RenewLease(limited, name, w.Holder, term, workTerm)
		cancel()
		switch {
		case err == nil && !ok:
			return
		case err == nil:
			last = asked
		case ctx.Err() == nil && time.Since(last) > workTerm:
			w.Log.WarnContext(ctx, "a row lease cannot be renewed", "lease", name, "error", err)
			return
		}
	}
}

// pause waits for a wake or until d is over; false when ctx ended.
func pause(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-woken:
		// Wakes come in flocks: a moment gathers them.
		return pause(ctx, leastSealPause, nil)
	}
}

// sealAll looks for attempts to seal until ctx ends. A look starts what it finds
// and does not wait for it: an attempt that takes long holds up one slot only.
func (w *Sealer) sealAll(ctx context.Context) {
	run := newSealRun(w)
	defer run.wait()
	for {
		woken := w.Woken()
		if err := run.look(ctx); err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "attempts to seal cannot be listed; it is tried again", "error", err)
		}
		if !pause(ctx, sealEvery, woken) {
			return
		}
	}
}

// Once seals what can be sealed now, whatever failed before, and returns what
// failed.
func (w *Sealer) Once(ctx context.Context) error {
	run := newSealRun(w)
	run.all = true
	err := run.look(ctx)
	run.wait()
	return errors.Join(append(run.failed, err)...)
}

// sealRun starts seals, each attempt once at a time.
type sealRun struct {
	w     *Sealer
	all   bool // also those whose next try is not due
	slots chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	busy   map[domain.AttemptID]bool // guarded by mu
	failed []error                   // the first of them; guarded by mu
}

const maxFailed = 16 // errors that Once tells

func newSealRun(w *Sealer) *sealRun {
	return &sealRun{w: w, slots: make(chan struct{}, sealParallel), busy: map[domain.AttemptID]bool{}}
}

func (r *sealRun) wait() { r.wg.Wait() }

// look goes once over all attempts that may be sealed and starts those whose turn
// it is.
func (r *sealRun) look(ctx context.Context) error {
	now, err := r.w.Reads.Now(ctx)
	if err != nil {
		return err
	}
	listed := map[domain.AttemptID]bool{}
	var after *projections.Sealable
	for {
		page, err := r.w.Reads.SealableAttempts(ctx, now, after, sealPage)
		if err != nil {
			return err
		}
		for _, x := range page {
			id := domain.NewID[domain.AttemptID](x.AttemptID)
			listed[id] = true
			if !r.all && !r.w.trouble.due(id, time.Now()) {
				continue
			}
			if !r.start(ctx, id) {
				return ctx.Err()
			}
		}
		if len(page) < sealPage {
			r.w.trouble.keep(listed)
			return nil
		}
		after = &page[len(page)-1]
	}
}

// start seals an attempt as soon as a slot is free; false if ctx ended before.
func (r *sealRun) start(ctx context.Context, id domain.AttemptID) bool {
	r.mu.Lock()
	busy := r.busy[id]
	r.busy[id] = true
	r.mu.Unlock()
	if busy {
		return true
	}
	done := func() {
		r.mu.Lock()
		delete(r.busy, id)
		r.mu.Unlock()
	}
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		done()
		return false
	}
	r.wg.Go(func() {
		defer func() { <-r.slots }()
		defer done()
		r.seal(ctx, id)
	})
	return true
}

func (r *sealRun) seal(ctx context.Context, id domain.AttemptID) {
	limited, cancel := context.WithTimeout(ctx, sealLongest)
	defer cancel()
	err := r.w.Seal(limited, id)
	if err == nil {
		r.w.trouble.over(id)
		return
	}
	if ctx.Err() != nil {
		return // the lease or the process ended; the attempt is not to blame
	}
	wait := r.w.trouble.again(id, time.Now())
	r.w.Log.WarnContext(ctx, "an attempt cannot be sealed; it is tried again", "attempt_id", id.String(), "in", wait, "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) < maxFailed {
		r.failed = append(r.failed, fmt.Errorf("seal attempt %s: %w", id, err))
	}
}

// trouble remembers which attempts could not be sealed, and when each is tried
// again: the longer, the more often it failed.
type trouble struct {
	mu  sync.Mutex
	all map[domain.AttemptID]retry // guarded by mu
}

type retry struct {
	at    time.Time
	pause time.Duration
}

func (t *trouble) due(id domain.AttemptID, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !now.Before(t.all[id].at)
}

func (t *trouble) again(id domain.AttemptID, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[domain.AttemptID]retry{}
	}
	d := min(max(firstRetry, 2*t.all[id].pause), lastRetry)
	t.all[id] = retry{now.Add(d), d}
	return d
}

func (t *trouble) over(id domain.AttemptID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, id)
}

// keep forgets all attempts but those listed.
func (t *trouble) keep(listed map[domain.AttemptID]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.all {
		if !listed[id] {
			delete(t.all, id)
		}
	}
}

func (t *trouble) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.all))
}

// Seal seals one attempt, if it may be sealed.
func (w *Sealer) Seal(ctx context.Context, id domain.AttemptID) error {
	_, err := w.Commands.Seal(ctx, id, func(a domain.Attempt, _ time.Time) (domain.Sealed, error) { return w.build(ctx, a) })
	if domain.KindOf(err) == domain.KindGone {
		return nil
	}
	return err
}

// writeAllEmpty follows the feed until ctx ends.
func (w *Sealer) writeAllEmpty(ctx context.Context) {
	for {
		more, err := w.writeEmpty(ctx)
		if err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "empty bundles cannot be written; it is tried again", "error", err)
		}
		wait := sealEvery
		if more && err == nil {
			wait = 0
		}
		if !pause(ctx, wait, nil) {
			return
		}
	}
}

// writeEmpty follows the feed for a bounded number of batches and writes the
// canonical empty bundles under the digest that their events name. more says that
// the feed goes on.
func (w *Sealer) writeEmpty(ctx context.Context) (more bool, err error) {
	at, err := w.Reads.Checkpoint(ctx, emptyReader)
	if err != nil {
		return false, err
	}
	for range emptyRounds {
		events, err := w.Feed.ReadFeed(ctx, at, emptyBatch)
		if err != nil || len(events) == 0 {
			return false, err
		}
		for _, f := range events {
			if f.Event.Type == (domain.Sealed{}).EventType() {
				if err := w.writeEmptyOf(ctx, f.Event); err != nil {
					return false, err
				}
			}
			at = f.Cursor
		}
		if err := w.Reads.SetCheckpoint(ctx, emptyReader, at); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (w *Sealer) writeEmptyOf(ctx context.Context, e eventstore.Event) error {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	if err != nil {
		return err
	}
	sealed, ok := d.(domain.Sealed)
	if !ok || sealed.State != string(bundle.Empty) {
		return nil
	}
	id, err := domain.ParseID[domain.AttemptID](string(e.Stream)[len("attempt/"):])
	if err != nil {
		return err
	}
	logs := Logs{Store: w.Store, Reads: w.Reads, Objects: w.Objects}
	b, err := logs.Manifest(ctx, id)
	if err != nil {
		return err
	}
	sum := bundle.Sum(b)
	op, node, err := w.Reads.Node(ctx, id)
	if err != nil {
		return err
	}
	key := bundle.ManifestKey(bundle.Prefix(op.UUID(), node, id.UUID()), sum)
	if err := w.Objects.Put(ctx, key, bytes.NewReader(b), int64(len(b)), sum, objects.PutOptions{ContentType: "application/json"}); err != nil {
		return storageError("store an empty bundle", err)
	}
	crashpoint.Here("empty.put")
	return nil
}
