package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// The states of an endpoint.
const (
	endpointDelivering    = "delivering"
	endpointStopped       = "stopped"
	endpointNotConfigured = "not_configured"
	endpointUnknown       = "unknown" // this replica has no configuration
)

var errNoEndpoint = &domain.Error{Kind: domain.KindNotFound, Code: "endpoint_unknown", Message: "no callback endpoint of this name is configured at this replica, and no callback is for it",
	Next: "GET /v1/callback-endpoints lists those there are: execution-plane callbacks endpoints"}

// errNotConfigured answers what would wait for ever.
var errNotConfigured = &domain.Error{Kind: domain.KindConflict, Code: "endpoint_not_configured", Message: "this replica is not configured to deliver to this endpoint, so nothing would be delivered",
	Next: "add the endpoint to the configuration and restart the replicas, or ask a replica that has it"}

func (s *server) listEndpoints(q *request) error {
	all, err := s.endpoints(q.Context())
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, all)
}

// changeEndpoint makes the handler of a stop or a resume.
func changeEndpoint(change string) func(*server, *request) error {
	return func(s *server, q *request) error {
		name := pathValue(q.Request, "name")
		body, err := decodeBody[wire.ReasonRequest](q.body)
		if err != nil {
			return err
		}
		if err := s.knowEndpoint(q.Context(), name); err != nil {
			return err
		}
		do := s.Commands.StopEndpoint
		if change == "resume" {
			do = s.Commands.ResumeEndpoint
		}
		if err := do(q.Context(), q.meta, name, body.Reason); err != nil {
			return err
		}
		all, err := s.endpoints(q.Context())
		if err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Name == name {
				return q.json(http.StatusOK, e)
			}
		}
		// Resumed, not configured, and nothing waits for it.
		return q.json(http.StatusOK, wire.CallbackEndpoint{Name: name, State: s.unconfigured()})
	}
}

// endpoints puts together what the configuration, the ledger and the replica that
// delivers know. Those that are configured stand first, in that order.
func (s *server) endpoints(ctx context.Context) (all wire.CallbackEndpoints, err error) {
	stopped, err := s.Reads.StoppedEndpoints(ctx)
	if err != nil {
		return all, err
	}
	counts, err := s.Reads.CallbackCounts(ctx)
	if err != nil {
		return all, err
	}
	out := []wire.CallbackEndpoint{}
	if s.Endpoints != nil {
		for _, e := range s.Endpoints.List() {
			out = append(out, wire.CallbackEndpoint{Name: e.Name, State: endpointDelivering, Origin: e.Origin, JobTypes: e.JobTypes,
				Environments: e.Environments, OnlyNamed: e.OnlyNamed, WindowSeconds: int64(e.Window / time.Second)})
		}
	}
	configured := len(out)
	find := func(name string) *wire.CallbackEndpoint {
		i := slices.IndexFunc(out, func(e wire.CallbackEndpoint) bool { return e.Name == name })
		if i < 0 {
			i = len(out)
			out = append(out, wire.CallbackEndpoint{Name: name, State: s.unconfigured()})
		}
		return &out[i]
	}
	for _, st := range stopped {
		stopInto(find(st.Endpoint), st)
	}
	for _, c := range counts {
		countInto(find(c.Endpoint), c)
	}
	slices.SortFunc(out[configured:], func(a, b wire.CallbackEndpoint) int { return strings.Compare(a.Name, b.Name) })
	all.Items = out
	return all, s.addSenders(ctx, &all)
}

func stopInto(e *wire.CallbackEndpoint, st projections.StoppedEndpoint) {
	e.Cause, e.StoppedAt, e.StoppedBy = st.Cause, timeOf(st.StoppedAt), idPtr[domain.AttemptID](st.AttemptID)
	if e.State != endpointNotConfigured {
		e.State = endpointStopped
	}
}

func countInto(e *wire.CallbackEndpoint, c projections.CallbackCount) {
	switch domain.CallbackState(c.State) {
	case domain.CallbackPending:
		e.Pending, e.OldestPending = c.N, timeOf(c.OldestAt)
	case domain.CallbackAbandoned:
		e.Exhausted = c.N
	}
}

// addSenders adds what only the replica that delivers knows.
func (s *server) addSenders(ctx context.Context, all *wire.CallbackEndpoints) error {
	if s.Deliveries == nil {
		return nil
	}
	st, err := s.Deliveries.Status(ctx)
	if err != nil || !st.Leading {
		return err
	}
	all.Trouble, all.Unknown = st.Trouble, st.Unknown
	for i := range all.Items {
		at := slices.IndexFunc(st.Endpoints, func(e callbacks.EndpointStatus) bool { return e.Configured && e.Name == all.Items[i].Name })
		if at >= 0 {
			e := st.Endpoints[at]
			all.Items[i].Sender = &wire.CallbackSender{FailuresInRow: e.FailuresInRow, LastError: e.LastError, SecretProblem: e.SecretProblem}
		}
	}
	return nil
}

func (s *server) unconfigured() string {
	if s.Endpoints == nil {
		return endpointUnknown
	}
	return endpointNotConfigured
}

// configured finds an endpoint that this replica could deliver to.
func (s *server) configured(name string) (callbacks.Endpoint, bool) {
	if s.Endpoints == nil {
		return callbacks.Endpoint{}, false
	}
	all := s.Endpoints.List()
	i := slices.IndexFunc(all, func(e callbacks.Endpoint) bool { return e.Name == name })
	if i < 0 {
		return callbacks.Endpoint{}, false
	}
	return all[i], true
}

// knowEndpoint is not_found for a name that neither configuration nor ledger knows.
func (s *server) knowEndpoint(ctx context.Context, name string) error {
	if !domain.ValidEndpointName(name) {
		return errNoEndpoint
	}
	if _, ok := s.configured(name); ok {
		return nil
	}
	stopped, err := s.Reads.StoppedEndpoints(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(stopped, func(st projections.StoppedEndpoint) bool { return st.Endpoint == name }) {
		return nil
	}
	rows, err := s.Reads.Callbacks(ctx, projections.CallbackFilter{Endpoint: name, Limit: 1})
	if err == nil && len(rows) == 0 {
		err = errNoEndpoint
	}
	return err
}
