package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// Sealer seals the bundles of attempts whose bytes have arrived, and writes the
// canonical empty bundles. Any number of replicas may run one; one works at a
// time, and two that overlap do no harm: the append decides.
type Sealer struct {
	Store    eventstore.Store
	Feed     eventstore.Feed
	Commands *commands.Service
	Reads    SealReads
	Objects  Objects
	Leases   Leases
	Holder   string
	// Woken returns a channel that is closed when there may be something to seal.
	Woken func() <-chan struct{}
	Log   *slog.Logger
	// Stalls is how long a transfer of one object may make no progress; 0 for 30 s.
	Stalls time.Duration

	// Keys are those that fingerprints were made with, and ScanLimit is how long one
	// bundle may be scanned for secrets; 0 for ten minutes.
	Keys      *commands.FingerprintKeys
	ScanLimit time.Duration

	scans   scans
	instead func(context.Context, domain.AttemptID) error // of Seal, in tests
	trouble trouble
}

// SealReads are the read models that sealing needs; see projections.Reader, which
// is the one there is.
type SealReads interface {
	Now(ctx context.Context) (time.Time, error)
	SealableAttempts(ctx context.Context, now time.Time, after *projections.Sealable, limit int) ([]projections.Sealable, error)
	Node(ctx context.Context, id domain.AttemptID) (domain.OperationID, string, error)
	// Fingerprints are what an attempt's bundle is scanned for; false if they are lost.
	Fingerprints(ctx context.Context, id domain.AttemptID) (projections.Fingerprints, bool, error)
	Checkpoint(ctx context.Context, reader string) (eventstore.Cursor, error)
	SetCheckpoint(ctx context.Context, reader string, c eventstore.Cursor) error
}

// objects is object storage as sealing uses it.
func (w *Sealer) objects() Objects {
	if w.Stalls <= 0 {
		return watched{w.Objects, stallsAfter}
	}
	return watched{w.Objects, w.Stalls}
}

const (
	sealerLease    = "sealer"
	emptyLease     = "empty-bundles"
	sealEvery      = time.Second
	sealPage       = 256
	sealParallel   = 4
	sealTroubled   = 2                // of these, how many may be tries of what failed before
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
	wg.Go(func() { w.lease(sealerLease).hold(ctx, w.sealAll) })
	wg.Go(func() { w.lease(emptyLease).hold(ctx, w.writeAllEmpty) })
	wg.Wait()
	return nil
}

func (w *Sealer) lease(name string) workLease { return workLease{w.Leases, name, w.Holder, w.Log} }

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
	// again are the slots that tries of what failed before may have: however many of
	// those hang, the others have slots of their own.
	again chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	busy   map[domain.AttemptID]bool // guarded by mu
	failed []error                   // the first of them; guarded by mu
}

const maxFailed = 16 // errors that Once tells

func newSealRun(w *Sealer) *sealRun {
	return &sealRun{w: w, slots: make(chan struct{}, sealParallel), again: make(chan struct{}, sealTroubled), busy: map[domain.AttemptID]bool{}}
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
	var troubled []domain.AttemptID
	var after *projections.Sealable
	for {
		page, err := r.w.Reads.SealableAttempts(ctx, now, after, sealPage)
		if err != nil {
			return err
		}
		for _, x := range page {
			id := domain.NewID[domain.AttemptID](x.AttemptID)
			listed[id] = true
			if !r.all && r.w.trouble.has(id) {
				troubled = append(troubled, id)
				continue
			}
			if !r.start(ctx, id) {
				return ctx.Err()
			}
		}
		if len(page) < sealPage {
			r.w.trouble.keep(listed)
			return r.tryAgain(ctx, troubled)
		}
		after = &page[len(page)-1]
	}
}

// tryAgain starts those whose next try is due, the longest due first.
func (r *sealRun) tryAgain(ctx context.Context, troubled []domain.AttemptID) error {
	for _, id := range r.w.trouble.inTurn(troubled, time.Now()) {
		if !r.start(ctx, id) {
			return ctx.Err()
		}
	}
	return nil
}

// start seals an attempt as soon as a slot is free; false if ctx ended before. What
// failed before is left to the next look if as many of its kind are being tried.
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
	if !r.all && r.w.trouble.has(id) {
		select {
		case r.again <- struct{}{}:
			free := done
			done = func() { <-r.again; free() }
		default:
			done()
			return true
		}
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
	limited, cancel := context.WithTimeout(ctx, sealLongest+r.w.scanLimit())
	defer cancel()
	err := r.w.sealOne(limited, id)
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

// inTurn are those of ids whose next try is due, the longest due first.
func (t *trouble) inTurn(ids []domain.AttemptID, now time.Time) []domain.AttemptID {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := slices.DeleteFunc(slices.Clone(ids), func(id domain.AttemptID) bool { return now.Before(t.all[id].at) })
	slices.SortStableFunc(due, func(a, b domain.AttemptID) int { return t.all[a].at.Compare(t.all[b].at) })
	return due
}

func (t *trouble) has(id domain.AttemptID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.all[id]
	return ok
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

// over forgets an attempt that was sealed. If it had failed before, what ailed it
// may be over for the others too: all of them are due.
func (t *trouble) over(id domain.AttemptID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[id]; ok {
		clear(t.all)
	}
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

func (w *Sealer) sealOne(ctx context.Context, id domain.AttemptID) error {
	if w.instead != nil {
		return w.instead(ctx, id)
	}
	return w.Seal(ctx, id)
}

// Seal seals one attempt, if it may be sealed.
func (w *Sealer) Seal(ctx context.Context, id domain.AttemptID) error {
	var verdict *domain.ScanVerdict
	_, err := w.Commands.Seal(ctx, id, func(a domain.Attempt, _ time.Time) (domain.Seal, error) {
		seal, err := w.buildAndScan(ctx, a)
		verdict = seal.Scan
		return seal, err
	})
	if err == nil && verdict != nil {
		w.scans.count(verdict)
	}
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
// manifests that are a function of their stream, of empty bundles and of those that
// an operator sealed, under the digest that their events name. more says that the
// feed goes on.
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
				if err := w.writeDerivedOf(ctx, f.Event); err != nil {
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

// writeDerivedOf writes the manifest of an attempt whose manifest is a function of
// its stream; any other one the sealer wrote before it was named.
func (w *Sealer) writeDerivedOf(ctx context.Context, e eventstore.Event) error {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	if err != nil {
		return err
	}
	sealed, ok := d.(domain.Sealed)
	if !ok || sealed.State == string(bundle.Complete) {
		return nil
	}
	id, err := domain.ParseID[domain.AttemptID](string(e.Stream)[len("attempt/"):])
	if err != nil {
		return err
	}
	if sealed.State == string(bundle.Incomplete) {
		// An operator's order stands before the seal, in the same append.
		before, err := w.Store.ReadStream(ctx, e.Stream, e.Version-2, 1)
		if err != nil {
			return err
		}
		if len(before) == 0 || before[0].Type != (domain.SealForced{}).EventType() {
			return nil
		}
	}
	all, err := readStream(ctx, w.Store, id)
	if err != nil {
		return err
	}
	logs := Logs{Store: w.Store, Objects: w.objects()}
	b, _, err := logs.manifest(ctx, id, all)
	if err != nil {
		return err
	}
	sum := bundle.Sum(b)
	op, node, err := w.Reads.Node(ctx, id)
	if err != nil {
		return err
	}
	key := bundle.ManifestKey(bundle.Prefix(op.UUID(), node, id.UUID()), sum)
	if err := w.objects().Put(ctx, key, bytes.NewReader(b), int64(len(b)), sum, objects.PutOptions{ContentType: "application/json"}); err != nil {
		return storageError("store a manifest", err)
	}
	crashpoint.Here("empty.put")
	return nil
}
