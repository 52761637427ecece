package callbacks

import (
	"context"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/projections"
)

// EndpointStatus says how an endpoint's delivery goes.
type EndpointStatus struct {
	Endpoint   // only the name, if it is not configured (any more)
	Configured bool
	Stopped    string // empty, gone or operator
	StoppedAt  time.Time
	Pending    int64
	OldestAt   time.Time // when the oldest pending one was scheduled; zero if none
	Exhausted  int64
	// What follows is known to the replica that delivers; elsewhere it is zero.
	FailuresInRow int
	LastError     string // class of the last failure, if one was
	SecretProblem string // why the secret file is not read again; empty if it is well
}

// Status is how delivery goes.
type Status struct {
	Leading   bool   // this replica delivers
	Trouble   string // why new results are not scheduled; empty if they are
	Unknown   int64  // results that this replica found to name an endpoint which is not configured
	Endpoints []EndpointStatus
}

// countsFor is how long counts are believed: to count takes as long as callbacks
// are open, and anybody may ask for readiness and metrics at any rate.
const countsFor = 5 * time.Second

// counts are what the database said last; whoever comes while it is asked waits.
type counts struct {
	mu   sync.Mutex
	rows []projections.CallbackCount // guarded by mu
	at   time.Time                   // local; guarded by mu
}

func (w *Worker) counted(ctx context.Context) ([]projections.CallbackCount, error) {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	if !w.counts.at.IsZero() && time.Since(w.counts.at) < countsFor {
		return w.counts.rows, nil
	}
	rows, err := w.Reads.CallbackCounts(ctx)
	if err == nil {
		w.counts.rows, w.counts.at = rows, time.Now()
	}
	return rows, err
}

// Status reads it; what is counted is some seconds old. Endpoints stand in the configuration's order; others that
// callbacks wait for, or that are stopped, follow.
func (w *Worker) Status(ctx context.Context) (Status, error) {
	stopped, err := w.Reads.StoppedEndpoints(ctx)
	if err != nil {
		return Status{}, err
	}
	counts, err := w.counted(ctx)
	if err != nil {
		return Status{}, err
	}
	out := w.local()
	at := map[string]int{}
	for i, e := range out.Endpoints {
		at[e.Name] = i
	}
	find := func(name string) *EndpointStatus {
		i, ok := at[name]
		if !ok {
			i = len(out.Endpoints)
			at[name] = i
			out.Endpoints = append(out.Endpoints, EndpointStatus{Endpoint: Endpoint{Name: name}})
		}
		return &out.Endpoints[i]
	}
	for _, s := range stopped {
		e := find(s.Endpoint)
		e.Stopped, e.StoppedAt = s.Cause, s.StoppedAt
	}
	for _, c := range counts {
		find(c.Endpoint).add(c)
	}
	return out, nil
}

func (e *EndpointStatus) add(c projections.CallbackCount) {
	switch c.State {
	case "pending":
		e.Pending, e.OldestAt = c.N, c.OldestAt
	case "exhausted":
		e.Exhausted = c.N
	}
}

// local is what this process knows.
func (w *Worker) local() Status {
	w.mu.Lock()
	out := Status{Leading: w.leading, Trouble: w.behind, Unknown: w.unknown}
	w.mu.Unlock()
	for _, x := range w.Endpoints.List() {
		e := EndpointStatus{Endpoint: x, Configured: true}
		if s, ok := w.sender(x.Name); ok {
			s.mu.Lock()
			e.FailuresInRow, e.LastError, e.SecretProblem = s.failures, s.last, s.problem
			s.mu.Unlock()
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}
