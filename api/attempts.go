package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Page sizes of lists of attempts.
const (
	defaultAttempts = 50
	maxAttempts     = 500
)

func (s *server) listAttempts(q *request) error {
	f, err := attemptFilter(q.query)
	if err != nil {
		return err
	}
	limit, err := q.query.number("limit", defaultAttempts, 1, maxAttempts)
	if err != nil {
		return err
	}
	views, next, err := s.Reads.Attempts(q.Context(), f, q.query.text("after"), int(limit))
	if err != nil {
		return err
	}
	page := wire.Page[wire.Attempt]{Items: make([]wire.Attempt, len(views)), Next: next}
	for i, v := range views {
		page.Items[i] = attemptOf(v)
	}
	return q.json(http.StatusOK, page)
}

func attemptFilter(q query) (f projections.AttemptFilter, err error) {
	operation, err := queryID[domain.OperationID](q, "operation_id")
	if err != nil {
		return f, err
	}
	runnerID, err := queryID[domain.RunnerID](q, "runner_id")
	if err != nil {
		return f, err
	}
	f = projections.AttemptFilter{
		OperationID: operation.String(), PlanNodeID: q.text("plan_node_id"), Status: q.text("status"),
		FailureCode: q.text("failure_code"), RunnerID: runnerID.String(), JobType: q.text("job_type"), Action: q.text("action"),
		Environment: q.text("environment"), ResourceID: q.text("resource_id"), RequestedBy: q.text("requested_by"), AttemptPrefix: q.text("id_prefix"),
	}
	if len(f.AttemptPrefix) > 36 || strings.Trim(f.AttemptPrefix, "0123456789abcdef-") != "" {
		return f, malformed("query_value", fmt.Sprintf("the query parameter id_prefix is %s; it is the beginning of an attempt_id", quote(f.AttemptPrefix)), "")
	}
	if f.Status != "" && !slices.Contains(domain.PublicStates(), f.Status) {
		return f, malformed("query_value", fmt.Sprintf("the query parameter status is %s; it is one of %s", quote(f.Status), strings.Join(domain.PublicStates(), ", ")), "")
	}
	if f.Since, err = q.time("since"); err != nil {
		return f, err
	}
	f.Until, err = q.time("until")
	return f, err
}

func (s *server) getAttempt(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	return s.showAttempt(q, id)
}

// showAttempt answers with the attempt as it is now.
func (s *server) showAttempt(q *request, id domain.AttemptID) error {
	v, err := s.Reads.Attempt(q.Context(), id)
	if err != nil {
		return err
	}
	a := attemptOf(v)
	if a.FinishedAt != nil {
		if a.Callbacks, err = s.callbacksOf(q.Context(), id); err != nil {
			return err
		}
	}
	return q.json(http.StatusOK, a)
}

func (s *server) getArtifacts(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	a, err := s.Reads.Attempt(q.Context(), id)
	if err != nil {
		return err
	}
	views, err := s.Reads.Artifacts(q.Context(), id)
	if err != nil {
		return err
	}
	page := wire.Page[wire.Artifact]{Items: make([]wire.Artifact, len(views))}
	for i, v := range views {
		page.Items[i] = artifactOf(a, v)
	}
	return q.json(http.StatusOK, page)
}

func (s *server) getBundle(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	b, err := s.Logs.Manifest(q.Context(), id)
	if err != nil {
		return err
	}
	return q.immutable(mediaJSON, b)
}

func (s *server) getExplanation(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	e, err := s.Dispatch.Explain(q.Context(), id)
	if err != nil {
		return err
	}
	verdict, err := s.lastVerdict(q.Context(), id)
	if err != nil {
		return err
	}
	out := wire.Explanation{AttemptID: id, State: e.Attempt.Status, Summary: e.Summary, Next: e.Next, Policy: verdict, Runners: fitsOf(e.Runners)}
	if e.Attempt.FinishedAt != nil {
		if out.Callbacks, err = s.callbacksOf(q.Context(), id); err != nil {
			return err
		}
	}
	return q.json(http.StatusOK, out)
}

// stopFor makes a handler's body from a reason to stop.
func (s *server) stopFor(q *request, reason domain.StopReason) error {
	return s.withReason(q, func(id domain.AttemptID, why string) error {
		_, err := s.Commands.Stop(q.Context(), q.meta, id, reason, why)
		return err
	})
}

func (s *server) cancel(q *request) error { return s.stopFor(q, domain.StopCancel) }

func (s *server) abort(q *request) error { return s.stopFor(q, domain.StopOperatorAbort) }

func (s *server) requeue(q *request) error {
	return s.withReason(q, func(id domain.AttemptID, reason string) error {
		_, err := s.Commands.Requeue(q.Context(), q.meta, id, reason)
		return err
	})
}

func (s *server) sealIncomplete(q *request) error {
	return s.withReason(q, func(id domain.AttemptID, reason string) error {
		_, err := s.Commands.SealIncomplete(q.Context(), q.meta, id, reason)
		return err
	})
}

// withReason carries out what needs a reason, and shows the attempt as it is then.
func (s *server) withReason(q *request, do func(id domain.AttemptID, reason string) error) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	body, err := decodeBody[wire.ReasonRequest](q.body)
	if err != nil {
		return err
	}
	if err := do(id, body.Reason); err != nil {
		return err
	}
	return s.showAttempt(q, id)
}
