package artifacts

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// rowLease is a lease that can be lost.
type rowLease struct {
	taken, renewed, released atomic.Int64
	lost                     atomic.Bool
}

func (l *rowLease) AcquireLease(context.Context, string, string, time.Duration) (int64, bool, error) {
	return l.taken.Add(1), !l.lost.Load(), nil
}

func (l *rowLease) RenewLease(context.Context, string, string, int64, time.Duration) (bool, error) {
	l.renewed.Add(1)
	return !l.lost.Load(), nil
}

func (l *rowLease) ReleaseLease(context.Context, string, string, int64) error {
	l.released.Add(1)
	return nil
}

// The row lease is kept while work goes on that takes longer than its term, and
// work ends when it is lost.
func TestTheRowLeaseIsKeptDuringWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &rowLease{}
		w := &Sealer{Leases: l, Log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		working, ended := make(chan context.Context, 1), make(chan struct{})
		go func() {
			defer close(ended)
			w.lease(sealerLease).hold(ctx, func(ctx context.Context) {
				working <- ctx
				<-ctx.Done()
			})
		}()
		work := <-working
		time.Sleep(6 * workTerm) // of the bubble's clock
		if work.Err() != nil || l.taken.Load() != 1 || l.renewed.Load() < 6 {
			t.Errorf("after six terms of work: %v, taken %d times, renewed %d times", work.Err(), l.taken.Load(), l.renewed.Load())
		}
		l.lost.Store(true)
		time.Sleep(workTerm)
		if work.Err() == nil {
			t.Error("work goes on under a lease that another has")
		}
		cancel()
		<-ended
		if l.released.Load() == 0 {
			t.Error("the lease is never given back")
		}
	})
}

// What failed is tried again later and later, and what is sealed or gone is
// forgotten.
func TestTroubleWaits(t *testing.T) {
	var tr trouble
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	a, b := domain.NewID[domain.AttemptID](uuid.New()), domain.NewID[domain.AttemptID](uuid.New())
	due := func(at time.Time) string {
		names := ""
		for _, id := range tr.inTurn([]domain.AttemptID{a, b}, at) {
			names += map[domain.AttemptID]string{a: "a", b: "b"}[id]
		}
		return names
	}
	if got := due(now); got != "ab" {
		t.Errorf("what was never tried is due: %q", got)
	}
	want := firstRetry
	for range 10 {
		if got := tr.again(a, now); got != want {
			t.Errorf("tried again in %s, want %s", got, want)
		}
		if before, after := due(now.Add(want-time.Millisecond)), due(now.Add(want)); before != "b" || after != "ba" {
			t.Errorf("with a pause of %s due are %q, then %q", want, before, after)
		}
		now, want = now.Add(want), min(2*want, lastRetry)
	}
	tr.again(b, now)
	tr.keep(map[domain.AttemptID]bool{b: true})
	if n := tr.count(); n != 1 || due(now) != "a" {
		t.Errorf("%d are in trouble after one was sealed", n)
	}
	tr.over(a)
	if n := tr.count(); n != 1 {
		t.Errorf("%d are in trouble after one was sealed that never was", n)
	}
	tr.again(a, now)
	tr.over(b) // what ailed it may be over for the other too
	if n := tr.count(); n != 0 {
		t.Errorf("%d are in trouble", n)
	}
}
