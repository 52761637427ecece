package callbacks

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Worker delivers results. Any number of replicas may run one; one works at a time.
type Worker struct {
	Endpoints *Endpoints
	Commands  Commands
	Reads     Reads
	Leases    Leases
	Holder    string // names this run of this process
	Version   string // of the service, for the header User-Agent
	// Woken returns a channel that is closed when there may be a new result; nil: the
	// worker looks for itself.
	Woken    func() <-chan struct{}
	Resolver Resolver // nil: the system's
	Log      *slog.Logger

	transport http.RoundTripper // instead of the network, in tests
	jitter    func() float64    // in [0, 1); nil: random

	mu      sync.Mutex
	leading bool              // guarded by mu
	senders []*sender         // while leading; guarded by mu
	behind  string            // why the scheduler stands still; guarded by mu
	unknown int64             // results that name an endpoint which is not configured; guarded by mu
	tallies map[string]*tally // guarded by mu
	latency *prometheus.HistogramVec
	counts  counts
}

const (
	scheduleEvery = 500 * time.Millisecond
	troubleEvery  = 2 * time.Second
	watchEvery    = time.Second
)

// Run delivers until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	w.lead(ctx, w.work)
	return nil
}

// work is one term of leadership.
func (w *Worker) work(ctx context.Context) {
	c := &clock{}
	senders := make([]*sender, 0, len(w.Endpoints.all()))
	for _, x := range w.Endpoints.all() {
		senders = append(senders, newSender(w, x, c))
	}
	w.setLeading(senders, true)
	defer w.setLeading(nil, false)
	w.Log.InfoContext(ctx, "this replica delivers callbacks", "endpoints", len(senders))
	var wg sync.WaitGroup
	wg.Go(func() { w.schedule(ctx) })
	wg.Go(func() { w.watchStopped(ctx) })
	for _, s := range senders {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
}

func (w *Worker) setLeading(senders []*sender, leading bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.senders, w.leading = senders, leading
}

func (w *Worker) sender(name string) (*sender, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.senders {
		if s.x.name == name {
			return s, true
		}
	}
	return nil, false
}

// watchStopped tells the senders which endpoints are stopped, and looks at their
// secret files. Until it knows, they wait.
func (w *Worker) watchStopped(ctx context.Context) {
	for {
		stopped, err := w.Reads.StoppedEndpoints(ctx)
		if err != nil && ctx.Err() == nil {
			w.Log.WarnContext(ctx, "stopped endpoints cannot be listed; it is tried again", "error", err)
		}
		if err == nil {
			causes := map[string]string{}
			for _, s := range stopped {
				causes[s.Endpoint] = s.Cause
			}
			w.mu.Lock()
			senders := w.senders
			w.mu.Unlock()
			for _, s := range senders {
				s.setStopped(causes[s.x.name])
				s.keys(ctx)
			}
		}
		if !pause(ctx, watchEvery, nil) {
			return
		}
	}
}
