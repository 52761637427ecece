package dispatch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// BenchmarkSubmitsWithIdleRunners has 10,000 attempts that no runner here can do,
// requests that wait, and ten submits one after the other. It reports the time of
// the ten, the queries at rest of all requests together, and the time until the
// first look at the queue was over.
func BenchmarkSubmitsWithIdleRunners(b *testing.B) {
	for _, waiters := range []int{40, 1000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			r := newRig(b)
			elsewhere := func(e *domain.RunnerRegistered) { e.Environments = []string{"elsewhere"} }
			model := r.submit()
			r.exec(`INSERT INTO attempts SELECT (jsonb_populate_record(a, jsonb_build_object('attempt_id', gen_random_uuid(), 'stream', 'attempt/bulk-' || i))).*
				FROM attempts a, generate_series(1, 9999) i WHERE a.attempt_id = $1`, model.UUID())
			r.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, sealable, due_at)
				SELECT attempt_id, stream, 'queued', 'queued', 0, false, now() + interval '1 hour' FROM attempts WHERE attempt_id <> $1`, model.UUID())
			runner := r.runner(1, elsewhere)
			ctx, cancel := context.WithCancel(r.ctx)
			r.run(func(ctx context.Context) { _ = r.d.Run(ctx) })
			var wg sync.WaitGroup
			began := time.Now()
			for i := range waiters {
				wg.Go(func() {
					_, _ = r.d.Next(ctx, runner, NextRequest{FreeSlots: 1, TokenSHA256: []string{sha(fmt.Sprint(i))}}, time.Hour)
				})
			}
			r.waiting(waiters)
			r.until("the queue is read", func() bool {
				r.d.queue.mu.Lock()
				defer r.d.queue.mu.Unlock()
				return !r.d.queue.synced.IsZero()
			})
			first := time.Since(began)
			const rest = 5 * time.Second
			before := r.queries.n.Load()
			pause(ctx, rest)
			atRest := float64(r.queries.n.Load()-before) / rest.Seconds()
			for b.Loop() {
				for range 10 {
					r.submit()
				}
			}
			b.ReportMetric(float64(first.Milliseconds()), "ms/first-look")
			b.ReportMetric(atRest, "queries/s-at-rest")
			cancel()
			wg.Wait()
		})
	}
}
