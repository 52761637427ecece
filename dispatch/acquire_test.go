package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
)

// 16 runners at four replicas ask for one of 10 attempts at the same moment, round
// after round: each attempt is given exactly once, and nobody gets two.
func TestAcquire(t *testing.T) {
	const askers, jobs, rounds = 16, 10, 6
	b := newBench(t, domain.FastProfile())
	replicas := []*replica{b.replica, b.newReplica(), b.newReplica(), b.newReplica()}
	ids := make([]domain.RunnerID, askers)
	for i := range ids {
		ids[i] = b.runner()
	}
	for range rounds {
		want := map[domain.AttemptID]int{}
		for range jobs {
			want[b.submit()] = 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var mu sync.Mutex
		given := map[domain.AttemptID]int{}
		var wg sync.WaitGroup
		fire := make(chan struct{})
		for i, id := range ids {
			wg.Go(func() {
				<-fire
				got, err := replicas[i%len(replicas)].d.Next(ctx, id, next(uuid.NewString()), 20*time.Second)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && ctx.Err() == nil {
					t.Errorf("runner %d: %v", i, err)
				}
				if len(got.Offers) > 1 {
					t.Errorf("runner %d with one free slot got %d offers", i, len(got.Offers))
				}
				for _, o := range got.Offers {
					if o.Lease.RunnerID != id || o.Lease.Epoch != 1 {
						t.Errorf("runner %d got the lease %+v", i, o.Lease)
					}
					given[o.Attempt.ID]++
				}
				if len(given) == jobs {
					cancel() // the others get nothing
				}
			})
		}
		close(fire)
		wg.Wait()
		cancel()
		if d := cmp.Diff(want, given, cmp.Comparer(func(a, b domain.AttemptID) bool { return a == b })); d != "" {
			t.Fatalf("attempts given: %s", d)
		}
	}
	if n := b.count("SELECT count(*) FROM (SELECT stream FROM events WHERE type = $1 GROUP BY stream HAVING count(*) > 1) x", domain.Leased{}.EventType()); n != 0 {
		t.Errorf("%d attempts were leased more than once", n)
	}
	if got := b.events(domain.Leased{}); got != jobs*rounds {
		t.Errorf("%d leases of %d attempts", got, jobs*rounds)
	}
}

// The same request again gives the same offer: an answer that was lost loses
// nothing, at another replica too.
func TestALostAnswerIsGivenAgain(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id := b.runner()
	b.submit()
	b.submit()
	req := next("token")
	first, err := b.d.Next(t.Context(), id, req, 10*time.Second)
	b.must(err)
	for _, r := range []*replica{b.replica, b.newReplica()} {
		again, err := r.d.Next(t.Context(), id, req, 10*time.Second)
		b.must(err)
		if len(first.Offers) != 1 || len(again.Offers) != 1 || first.Offers[0].Lease.ID != again.Offers[0].Lease.ID {
			t.Fatalf("first %+v, again %+v", first, again)
		}
	}
	if got := b.events(domain.Leased{}); got != 1 {
		t.Errorf("%d leases", got)
	}
}

func TestOrderOfOffers(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id := b.runner()
	priority := func(p int) func(*domain.JobSpec) { return func(s *domain.JobSpec) { s.Controls.Priority = p } }
	nobody := func(s *domain.JobSpec) {
		s.Runner = &domain.RunnerRequest{Requirements: &domain.RunnerRequirements{Labels: map[string]string{"zone": "nowhere"}}}
		s.Controls.Priority = 9
	}
	b.submit(nobody)
	old, urgent, young := b.submit(priority(3)), b.submit(priority(8)), b.submit(priority(3))
	var got []domain.AttemptID
	for range 3 {
		n, err := b.d.Next(t.Context(), id, next(uuid.NewString()), 10*time.Second)
		b.must(err)
		for _, o := range n.Offers {
			got = append(got, o.Attempt.ID)
		}
	}
	if want := []domain.AttemptID{urgent, old, young}; !slices.Equal(got, want) {
		t.Errorf("offered %v, want %v", got, want)
	}
}

// A held request ends with the news: a job, a stop, a drain and its end.
func TestAHeldRequestBringsNews(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id := b.runner()
	held := func(req dispatch.NextRequest, news func()) dispatch.Next {
		t.Helper()
		type answer struct {
			dispatch.Next
			err error
		}
		done := make(chan answer, 1)
		began := time.Now()
		go func() {
			n, err := b.d.Next(t.Context(), id, req, 30*time.Second)
			done <- answer{n, err}
		}()
		news()
		a := <-done
		b.must(a.err)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the news took %s", took)
		}
		return a.Next
	}
	var attempt domain.AttemptID
	n := held(next("token"), func() { attempt = b.submit() })
	if len(n.Offers) != 1 || n.Offers[0].Attempt.ID != attempt {
		t.Fatalf("a job: %+v", n)
	}
	lease := n.Offers[0].Lease
	call := b.call(id, lease, "token")
	_, err := b.s.Start(t.Context(), meta("start"), call, "process")
	b.must(err)
	known := dispatch.NextRequest{Known: []string{lease.ID.String()}}
	n = held(known, func() {
		_, err := b.s.Stop(t.Context(), meta("cancel"), attempt, domain.StopCancel, "enough")
		b.must(err)
	})
	if len(n.Stops) != 1 || n.Stops[0].LeaseID != lease.ID || n.Stops[0].Reason != domain.StopCancel || n.Stops[0].Deadline <= 0 {
		t.Fatalf("a stop: %+v", n)
	}
	known.Known = append(known.Known, "stop/"+lease.ID.String())
	if n = held(known, func() { b.changes("drain")(id) }); !n.Drain {
		t.Fatalf("a drain: %+v", n)
	}
	known.Known = append(known.Known, "drain")
	if n = held(known, func() { b.changes("resume")(id) }); n.Drain || len(n.Stops)+len(n.Offers)+len(n.Gone) > 0 {
		t.Fatalf("the end of a drain: %+v", n)
	}
	known.Known = known.Known[:len(known.Known)-1]
	n = held(known, func() {
		_, err := b.s.Complete(t.Context(), meta("complete"), call, domain.Claim{Result: "stopped", Launched: true, FinishedAt: time.Now()}, nil)
		b.must(err)
		_, err = b.s.Seal(t.Context(), attempt, func(domain.Attempt, time.Time) (domain.Seal, error) {
			return domain.Seal{Sealed: domain.Sealed{State: "complete", URI: "s3://bucket/m", ManifestSHA256: sha("m")}}, nil
		})
		b.must(err)
	})
	if len(n.Gone) != 1 || n.Gone[0] != lease.ID {
		t.Errorf("the end of a lease: %+v", n)
	}
}
