package artifacts

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
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

	waiting atomic.Int64 // attempts that could not be sealed at the last look
}

const (
	sealerLease    = "sealer"
	sealerTerm     = 10 * time.Second
	sealEvery      = time.Second
	sealPage       = 64
	sealParallel   = 4
	emptyReader    = "empty-bundles"
	emptyBatch     = 200
	leastSealPause = 20 * time.Millisecond
)

// Waiting is how many attempts could not be sealed at the last look, for metrics.
func (w *Sealer) Waiting() int64 { return w.waiting.Load() }

// Run seals until ctx ends.
func (w *Sealer) Run(ctx context.Context) error {
	var term int64
	defer func() {
		if term != 0 {
			release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := w.Leases.ReleaseLease(release, sealerLease, w.Holder, term); err != nil {
				w.Log.InfoContext(ctx, "giving up the sealer lease failed; it runs out by itself", "error", err)
			}
		}
	}()
	for {
		woken := w.Woken()
		if w.hold(ctx, &term) {
			if err := w.Once(ctx); err != nil && ctx.Err() == nil {
				w.Log.WarnContext(ctx, "sealing had trouble; it is tried again", "error", err)
			}
		}
		if !pause(ctx, woken) {
			return nil
		}
	}
}

// pause waits for a wake or the next look; false when ctx ended.
func pause(ctx context.Context, woken <-chan struct{}) bool {
	t := time.NewTimer(sealEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-woken:
	}
	// Wakes come in flocks: a moment gathers them.
	s := time.NewTimer(leastSealPause)
	defer s.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.C:
		return true
	}
}

func (w *Sealer) hold(ctx context.Context, term *int64) bool {
	if *term != 0 {
		ok, err := w.Leases.RenewLease(ctx, sealerLease, w.Holder, *term, sealerTerm)
		if ok && err == nil {
			return true
		}
		*term = 0
	}
	got, ok, err := w.Leases.AcquireLease(ctx, sealerLease, w.Holder, sealerTerm)
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "the sealer lease cannot be taken", "error", err)
	}
	if ok && err == nil {
		*term = got
		return true
	}
	return false
}

// Once seals what can be sealed now.
func (w *Sealer) Once(ctx context.Context) error {
	now, err := w.Reads.Now(ctx)
	if err != nil {
		return err
	}
	ids, err := w.Reads.SealableAttempts(ctx, now, sealPage)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var failed []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, sealParallel)
	for _, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := w.Seal(ctx, id); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	w.waiting.Store(int64(len(failed)))
	return errors.Join(append(failed, w.writeEmpty(ctx))...)
}

// Seal seals one attempt, if it may be sealed.
func (w *Sealer) Seal(ctx context.Context, id domain.AttemptID) error {
	_, err := w.Commands.Seal(ctx, id, func(a domain.Attempt, _ time.Time) (domain.Sealed, error) { return w.build(ctx, a) })
	if domain.KindOf(err) == domain.KindGone {
		return nil
	}
	return err
}

// writeEmpty follows the feed and writes the canonical empty bundles under the
// digest that their events name.
func (w *Sealer) writeEmpty(ctx context.Context) error {
	at, err := w.Reads.Checkpoint(ctx, emptyReader)
	if err != nil {
		return err
	}
	for {
		events, err := w.Feed.ReadFeed(ctx, at, emptyBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		for _, f := range events {
			if f.Event.Type == (domain.Sealed{}).EventType() {
				if err := w.writeEmptyOf(ctx, f.Event); err != nil {
					return err
				}
			}
			at = f.Cursor
		}
		if err := w.Reads.SetCheckpoint(ctx, emptyReader, at); err != nil {
			return err
		}
	}
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
