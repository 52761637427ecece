package callbacks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// ledger is what a worker needs, in memory: the domain decides, as in the real one.
type ledger struct {
	mu         sync.Mutex
	ahead      time.Duration // of the database's clock before this machine's
	results    []projections.StoredResult
	callbacks  map[string]domain.Callback // by endpoint/attempt
	stopped    map[string]string
	checkpoint eventstore.Cursor
	tries      []try // that were events
	calls      int   // of RecordTry
	looks      int   // of DueCallbacks
	holder     string
	term       int64
	changed    chan struct{}

	refuseSchedule func(endpoint string, id domain.AttemptID) error
	refuseRecord   func(n int) error
}

type try struct {
	endpoint string
	id       domain.AttemptID
	at       time.Time
	domain.CallbackTry
}

func newLedger() *ledger {
	return &ledger{callbacks: map[string]domain.Callback{}, stopped: map[string]string{}, changed: make(chan struct{})}
}

func (l *ledger) now() time.Time { return time.Now().Add(l.ahead).Round(0) }

// tell wakes those that wait for a change; l.mu is held.
func (l *ledger) tell() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// add stores a result.
func (l *ledger) add(ref string) domain.AttemptID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := domain.NewID[domain.AttemptID](uuid.New())
	body := fmt.Appendf(nil, `{"attempt_id":%q,"status":"succeeded","contract":[]}`, id)
	sum := sha256.Sum256(body)
	l.results = append(l.results, projections.StoredResult{Seq: int64(len(l.results)+1) * 10, Generation: 1, AttemptID: id, JobType: "verification",
		Environment: "dev", CallbackRef: ref, SHA256: hex.EncodeToString(sum[:]), Body: body, EndedAt: l.now()})
	l.tell()
	return id
}

func (l *ledger) apply(key string, cmd domain.CallbackCommand) (domain.Callback, []domain.Event, error) {
	c := l.callbacks[key]
	events, err := domain.DecideCallback(c, cmd, l.now())
	if err != nil {
		return c, nil, err
	}
	for _, e := range events {
		if c, err = domain.EvolveCallback(c, e, l.now()); err != nil {
			return c, nil, err
		}
	}
	l.callbacks[key] = c
	l.tell()
	return c, events, nil
}

func (l *ledger) ScheduleCallback(_ context.Context, endpoint string, id domain.AttemptID, r domain.ResultDigest, window time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuseSchedule != nil {
		if err := l.refuseSchedule(endpoint, id); err != nil {
			return err
		}
	}
	_, _, err := l.apply(endpoint+"/"+id.String(), domain.ScheduleCallback{Endpoint: endpoint, AttemptID: id, Result: r, Window: window})
	return err
}

func (l *ledger) RecordTry(ctx context.Context, endpoint string, id domain.AttemptID, t domain.CallbackTry) (domain.Callback, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.refuseRecord != nil {
		if err := l.refuseRecord(l.calls); err != nil {
			l.tell()
			return domain.Callback{}, err
		}
	}
	if ctx.Err() != nil {
		return domain.Callback{}, ctx.Err()
	}
	c, events, err := l.apply(endpoint+"/"+id.String(), domain.RecordTry{Try: t})
	if err == nil && len(events) > 0 {
		l.tries = append(l.tries, try{endpoint, id, l.now(), t})
	}
	if err == nil && t.Gone {
		l.stopped[endpoint] = domain.EndpointGone
	}
	return c, err
}

func (l *ledger) replay(endpoint string, id domain.AttemptID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _, _ = l.apply(endpoint+"/"+id.String(), domain.ReplayCallback{Window: defaultWindow}) // it is there
}

func (l *ledger) ResultsAfter(_ context.Context, seq int64, limit int) ([]projections.StoredResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.results, seq+1, func(r projections.StoredResult, s int64) int { return int(r.Seq - s) })
	return slices.Clone(l.results[i:min(len(l.results), i+limit)]), nil
}

func (l *ledger) StoredResult(_ context.Context, id domain.AttemptID) (projections.StoredResult, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.results {
		if r.AttemptID == id {
			return r, true, nil
		}
	}
	return projections.StoredResult{}, false, nil
}

func (l *ledger) Now(context.Context) (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now(), nil
}

func (l *ledger) DueCallbacks(_ context.Context, endpoint string, limit int) ([]projections.Callback, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	var out []projections.Callback
	for _, c := range l.callbacks {
		if c.Endpoint == endpoint && c.State == domain.CallbackPending && !c.NextAt.After(l.now()) {
			out = append(out, projections.Callback{CallbackID: c.CallbackID.UUID(), Endpoint: endpoint, AttemptID: c.AttemptID.UUID(), State: string(c.State),
				Round: c.Round, Tries: c.Tries, NextAt: c.NextAt, GiveUpAt: c.GiveUpAt, ResultSHA256: c.ResultSHA256, ResultBytes: c.ResultBytes})
		}
	}
	slices.SortFunc(out, func(a, b projections.Callback) int {
		if d := a.NextAt.Compare(b.NextAt); d != 0 {
			return d
		}
		return bytes.Compare(a.CallbackID[:], b.CallbackID[:])
	})
	return out[:min(limit, len(out))], nil
}

func (l *ledger) StoppedEndpoints(context.Context) ([]projections.StoppedEndpoint, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []projections.StoppedEndpoint
	for name, cause := range l.stopped {
		out = append(out, projections.StoppedEndpoint{Endpoint: name, Cause: cause})
	}
	return out, nil
}

func (l *ledger) CallbackCounts(context.Context) ([]projections.CallbackCount, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[[2]string]*projections.CallbackCount{}
	var out []projections.CallbackCount
	for _, c := range l.callbacks {
		if c.State == domain.CallbackDone {
			continue
		}
		k := [2]string{c.Endpoint, string(c.State)}
		if counts[k] == nil {
			counts[k] = &projections.CallbackCount{Endpoint: c.Endpoint, State: string(c.State), OldestAt: c.ScheduledAt}
		}
		counts[k].N++
	}
	for _, c := range counts {
		out = append(out, *c)
	}
	return out, nil
}

func (l *ledger) Checkpoint(context.Context, string) (eventstore.Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint, nil
}

func (l *ledger) SetCheckpoint(_ context.Context, _ string, c eventstore.Cursor) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkpoint = c
	l.tell()
	return nil
}

func (l *ledger) AcquireLease(_ context.Context, _, holder string, _ time.Duration) (int64, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != "" {
		return 0, false, nil
	}
	l.holder = holder
	l.term++
	return l.term, true, nil
}

func (l *ledger) RenewLease(_ context.Context, _, holder string, term int64, _ time.Duration) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder == holder && l.term == term, nil
}

func (l *ledger) ReleaseLease(_ context.Context, _, holder string, term int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == holder && l.term == term {
		l.holder = ""
	}
	return nil
}

// wait returns once cond holds, which it asks with l.mu held after each change.
func (l *ledger) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		ok, changed := cond(), l.changed
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("no %s", what)
		}
	}
}

// in counts the callbacks of an endpoint in a state; l.mu is held.
func (l *ledger) in(endpoint string, s domain.CallbackState) (n int) {
	for _, c := range l.callbacks {
		if c.Endpoint == endpoint && c.State == s {
			n++
		}
	}
	return n
}

// output is a log that can be searched.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func newWorker(l *ledger, list ...*endpoint) (*Worker, *output) {
	o := &output{}
	return &Worker{Endpoints: &Endpoints{list}, Commands: l, Reads: l, Leases: l, Holder: uuid.NewString(), Version: "test",
		Woken: func() <-chan struct{} {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.changed
		},
		Log: slog.New(slog.NewJSONHandler(o, nil))}, o
}

// start runs a worker until the test, or what it returns, ends it.
func start(t testing.TB, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx) // it has no error
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return stop
}

func discardLog() *log.Logger { return log.New(&output{}, "", 0) }

var errAway = errors.New("the database is away")
