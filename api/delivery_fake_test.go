package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// callbackID is that of the one callback of a new world, attemptID's to "ops".
var callbackID = domain.CallbackIDOf("ops", attemptID)

// eventID is refused by the broker.
var eventID = domain.NewID[domain.EventID](uuid.MustParse("e1000000-0000-4000-8000-000000000001"))

// outgoing is what the world knows of deliveries and of publishing; guarded by the
// world's lock.
type outgoing struct {
	sent      map[domain.CallbackID]projections.Callback
	results   []projections.StoredResult
	stopped   []projections.StoppedEndpoint
	parked    []projections.ParkedKey
	streams   map[eventstore.StreamID][]eventstore.Event // beside the attempt's
	wanted    []wantedDelivery
	changed   map[domain.AttemptID]bool // results that are not what was scheduled
	finished  *time.Time                // when the attempt's outcome was fixed
	published eventstore.Cursor
	leader    string
	publisher publisher
}

// wantedDelivery is one call of RequestDelivery that reached the ledger.
type wantedDelivery struct {
	Command domain.CommandID
	Attempt domain.AttemptID
	Window  time.Duration
}

func newOutgoing() outgoing {
	o := outgoing{sent: map[domain.CallbackID]projections.Callback{}, streams: map[eventstore.StreamID][]eventstore.Event{}, changed: map[domain.AttemptID]bool{},
		parked: []projections.ParkedKey{{Topic: "execution.attempts", Key: "k", EventID: eventID.UUID(), Stream: "attempt/x", Version: 7,
			Type: "execution.attempt.created", Reason: "too_large", ParkedAt: recordedAt}}}
	o.add("ops", attemptID, domain.CallbackPending)
	return o
}

// add puts a callback there that was scheduled so many seconds after recordedAt as
// there are others.
func (o *outgoing) add(endpoint string, id domain.AttemptID, state domain.CallbackState) {
	c := domain.CallbackIDOf(endpoint, id)
	o.sent[c] = projections.Callback{CallbackID: c.UUID(), Endpoint: endpoint, AttemptID: id.UUID(), State: string(state), Round: 1, Tries: 2,
		NextAt: recordedAt, ScheduledAt: recordedAt.Add(time.Duration(len(o.sent)) * time.Second), GiveUpAt: recordedAt.Add(72 * time.Hour),
		ResultSHA256: hash64, ResultBytes: 10}
}

// endpoints is a configuration with "ops" for everything and "named" for jobs that
// name it, and the replica that delivers.
type endpoints struct{}

func (endpoints) List() []callbacks.Endpoint {
	return []callbacks.Endpoint{
		{Name: "ops", Origin: "https://ops.example", JobTypes: []string{"verification"}, Window: 72 * time.Hour},
		{Name: "named", Origin: "https://named.example:8443", OnlyNamed: true, Window: time.Hour},
	}
}

func (endpoints) Match(jobType, _, callbackRef string) []string {
	switch {
	case callbackRef != "":
		return []string{callbackRef}
	case jobType == "verification":
		return []string{"ops"}
	}
	return nil
}

func (e endpoints) Status(context.Context) (callbacks.Status, error) {
	return callbacks.Status{Leading: true, Trouble: "a result is odd", Unknown: 9, Endpoints: []callbacks.EndpointStatus{{Endpoint: e.List()[0], Configured: true, FailuresInRow: 3, LastError: "timeout"}}}, nil
}

type publisher struct{ api.ForwarderStatus }

func (p publisher) Status(context.Context) (api.ForwarderStatus, error) {
	return p.ForwarderStatus, nil
}

func (w *world) ReplayCallback(_ context.Context, m commands.Meta, endpoint string, id domain.AttemptID, text string, _ time.Duration) (domain.Callback, error) {
	if err := w.note(m, text); err != nil {
		return domain.Callback{}, err
	}
	if err := commands.CheckReason(text); err != nil {
		return domain.Callback{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.sent[domain.CallbackIDOf(endpoint, id)]
	c.Round, c.State = c.Round+1, string(domain.CallbackPending)
	w.sent[domain.CallbackIDOf(endpoint, id)] = c
	return domain.Callback{}, nil
}

func (w *world) RequestDelivery(_ context.Context, m commands.Meta, endpoint string, id domain.AttemptID, _ domain.ResultDigest, window time.Duration, text string) (commands.Requested, error) {
	if err := w.note(m, text); err != nil {
		return commands.Requested{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed[id] {
		return commands.Requested{}, fmt.Errorf("load: %w", &domain.Error{Kind: domain.KindConflict, Code: "result_changed", Message: "it is another"})
	}
	_, known := w.sent[domain.CallbackIDOf(endpoint, id)]
	if !slices.ContainsFunc(w.wanted, func(d wantedDelivery) bool { return d.Command == m.CommandID }) {
		w.wanted = append(w.wanted, wantedDelivery{m.CommandID, id, window})
	}
	w.add(endpoint, id, domain.CallbackPending)
	return commands.Requested{First: !known}, nil
}

func (w *world) StopEndpoint(_ context.Context, m commands.Meta, name, text string) error {
	if err := w.note(m, text); err != nil {
		return err
	}
	if err := commands.CheckReason(text); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = append(w.stopped, projections.StoppedEndpoint{Endpoint: name, Cause: domain.EndpointByOperator, StoppedAt: recordedAt})
	return nil
}

func (w *world) ResumeEndpoint(_ context.Context, m commands.Meta, name, text string) error {
	if err := w.note(m, text); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = slices.DeleteFunc(w.stopped, func(s projections.StoppedEndpoint) bool { return s.Endpoint == name })
	return nil
}

func (w *world) RetryKey(_ context.Context, m commands.Meta, topic, key, text string) error {
	return w.onKey(m, topic, key, text)
}

func (w *world) SkipEvent(_ context.Context, m commands.Meta, topic, key string, event uuid.UUID, text string) error {
	return w.onKey(m, topic, key, text, event.String())
}

func (w *world) onKey(m commands.Meta, topic, key, text string, more ...string) error {
	if err := w.note(m, append(more, text)...); err != nil {
		return err
	}
	if !slices.ContainsFunc(w.parked, func(p projections.ParkedKey) bool { return p.Topic == topic && p.Key == key }) {
		return domain.ErrNotParked
	}
	return commands.CheckReason(text)
}

func (w reader) Callback(_ context.Context, id domain.CallbackID) (projections.Callback, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.sent[id]
	if !ok && w.err == nil {
		return c, domain.ErrUnknownCallback
	}
	return c, w.err
}

func (w reader) Callbacks(_ context.Context, f projections.CallbackFilter) ([]projections.Callback, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []projections.Callback
	for _, c := range w.sent {
		if (f.Endpoint == "" || f.Endpoint == c.Endpoint) && (f.State == "" || f.State == c.State) &&
			(f.AttemptID.IsZero() || f.AttemptID.UUID() == c.AttemptID) && (f.Before.IsZero() || c.ScheduledAt.Before(f.Before)) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b projections.Callback) int { return b.ScheduledAt.Compare(a.ScheduledAt) })
	return out[:min(len(out), f.Limit)], w.err
}

func (w reader) CallbackCounts(context.Context) ([]projections.CallbackCount, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[string]int{}
	var out []projections.CallbackCount
	for _, c := range w.sent {
		if c.State == string(domain.CallbackDone) {
			continue
		}
		k := c.Endpoint + c.State
		if _, ok := at[k]; !ok {
			at[k] = len(out)
			out = append(out, projections.CallbackCount{Endpoint: c.Endpoint, State: c.State, OldestAt: c.ScheduledAt})
		}
		out[at[k]].N++
	}
	return out, w.err
}

func (w reader) StoppedEndpoints(context.Context) ([]projections.StoppedEndpoint, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stopped), w.err
}

func (w reader) ParkedKeys(context.Context) ([]projections.ParkedKey, error) {
	return w.parked, w.failing()
}

func (w reader) ResultsBetween(_ context.Context, from, until int64, limit int) ([]projections.StoredResult, error) {
	var out []projections.StoredResult
	for _, r := range w.results {
		if r.Seq > from && r.Seq <= until && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, w.failing()
}

func (w reader) SeqAt(_ context.Context, t time.Time) (int64, bool, error) {
	for _, r := range w.results {
		if !r.EndedAt.Before(t) {
			return r.Seq, true, w.failing()
		}
	}
	return 0, false, w.failing()
}

func (w reader) Checkpoint(ctx context.Context, name string) (eventstore.Cursor, error) {
	if name == projections.ResultsReader {
		return w.FeedEnd(ctx) // it has come that far
	}
	return w.published, w.failing()
}

func (w reader) ServiceLease(context.Context, string) (projections.ServiceLease, bool, error) {
	return projections.ServiceLease{Holder: w.leader, Term: 1, Until: recordedAt}, w.leader != "", w.failing()
}

func (w *world) ReadStream(_ context.Context, stream eventstore.StreamID, after int64, limit int) ([]eventstore.Event, error) {
	if err := w.failing(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.stream
	if !strings.HasPrefix(string(stream), "attempt/") {
		events = w.streams[stream]
	}
	n := min(int(after), len(events))
	return events[n:min(len(events), n+limit)], nil
}
