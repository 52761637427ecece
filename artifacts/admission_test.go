package artifacts_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/internal/plane"
)

// Submits from all sides reach the queue's limit. One replica keeps to it; two may
// exceed it by what the other one has under way. Whatever makes the queue shorter,
// and all reads, pass meanwhile.
func TestAFullQueue(t *testing.T) {
	t.Parallel()
	const limit, callers = 20, 16
	d := deploy(t, steady(), func(c *plane.Config) { c.MaxQueue = limit })
	one := d.replica(plane.ModuleAPI)
	h := d.hand(one.URL())
	_, lease := h.running() // submitted before the queue was full
	flood := func(to ...*client.Client) (taken int64) {
		var wg sync.WaitGroup
		var n atomic.Int64
		for i := range callers {
			wg.Go(func() {
				for range 5 {
					_, raw, err := jobSpec()
					if err != nil {
						t.Error(err)
						return
					}
					_, _, err = to[i%len(to)].Submit(t.Context(), raw)
					switch {
					case err == nil:
						n.Add(1)
					case !client.IsOverloaded(err) || client.CodeOf(err) != "queue_full" || client.RetryAfter(err) <= 0:
						t.Errorf("a submit: %v", err)
					}
				}
			})
		}
		wg.Wait()
		return n.Load()
	}
	if taken := flood(one.operator); taken != limit {
		t.Errorf("one replica took %d submits, the limit is %d", taken, limit)
	}
	if depth := d.depth(); depth != limit {
		t.Errorf("%d wait, the limit is %d", depth, limit)
	}

	// All else passes.
	if _, err := h.client.Report(t.Context(), newKey(), h.id, wire.ReportRequest{Leases: []wire.LeaseReport{{LeaseID: lease.ID, Epoch: lease.Epoch, Token: lease.Token}}}); err != nil {
		t.Errorf("a report: %v", err)
	}
	if _, err := h.send(lease, "stdout", 0, "text"); err != nil {
		t.Errorf("log: %v", err)
	}
	if err := h.complete(lease, map[string]string{"stdout": "text"}); err != nil {
		t.Errorf("a completion: %v", err)
	}
	page, err := one.operator.Attempts(t.Context(), client.AttemptQuery{Status: "queued", Limit: 100})
	if err != nil || len(page.Items) != limit {
		t.Fatalf("a list: %d, %v", len(page.Items), err)
	}
	queued := page.Items[0].AttemptID
	if _, err := one.operator.Attempt(t.Context(), queued); err != nil {
		t.Errorf("a read: %v", err)
	}
	for _, x := range page.Items {
		if _, err := one.operator.Cancel(t.Context(), newKey(), x.AttemptID, "enough"); err != nil {
			t.Errorf("a stop: %v", err)
		}
	}
	if depth := d.depth(); depth != 0 {
		t.Errorf("%d wait after all were stopped", depth)
	}

	two := d.replica(plane.ModuleAPI)
	flood(one.operator, two.operator)
	if depth := d.depth(); depth < limit || depth > limit+callers/2 {
		t.Errorf("two replicas let %d in; the limit is %d, and each had at most %d under way", depth, limit, callers/2)
	}
	t.Logf("two replicas let in %d above the limit", d.depth()-limit)
	if resp, err := http.Get(one.URL() + "/readyz"); err != nil {
		t.Errorf("readiness: %v", err)
	} else {
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

func (d *deployment) depth() int {
	d.t.Helper()
	n, err := d.desk.Reads.QueueDepth(context.WithoutCancel(d.t.Context()))
	d.must(err)
	return n
}
