package api

import (
	"encoding/hex"
	"net/http"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

func (s *server) submit(q *request) error {
	dry, err := q.query.truth("dry_run")
	if err != nil {
		return err
	}
	spec, err := decodeBody[domain.JobSpec](q.body)
	if err != nil {
		return err
	}
	if v, err := q.header(wire.HeaderIdempotencyKey); err != nil || (v != "" && !dry && v != spec.AttemptID.String()) {
		return malformed("idempotency_key_differs", "the header Idempotency-Key is not the JobSpec's attempt_id", "leave the header out: a submit's key is its attempt_id")
	}
	if dry {
		return s.dryRun(q, spec)
	}
	q.meta.CommandID = domain.NewID[domain.CommandID](spec.AttemptID.UUID())
	done, err := s.Commands.Submit(q.Context(), q.meta, spec, q.body)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if done.First {
		status = http.StatusCreated
	}
	q.w.Header().Set("Location", "/v1/attempts/"+spec.AttemptID.String())
	return q.json(status, receiptOf(spec.AttemptID, done))
}

// receiptOf depends on what is stored alone: a repeated submit gets the same bytes.
func receiptOf(id domain.AttemptID, d commands.Submitted) wire.Receipt {
	return wire.Receipt{AttemptID: id, EventID: d.Receipt.EventID.String(), Version: d.Receipt.Version,
		RecordedAt: eventstore.FormatTime(d.Receipt.Time), Hash: hex.EncodeToString(d.Receipt.Hash[:]), SpecSHA256: d.SpecDigest}
}

func (s *server) dryRun(q *request, spec *domain.JobSpec) error {
	d, err := s.Commands.DryRun(q.Context(), spec, q.body)
	if err != nil {
		return err
	}
	out := wire.DryRun{Valid: len(d.Violations) == 0, Violations: list(d.Violations), Runners: []wire.RunnerFit{}}
	if !out.Valid {
		return q.json(http.StatusOK, out)
	}
	out.Policy = verdictOf(d.Policy)
	fits, err := s.Dispatch.Fits(q.Context(), spec)
	if err != nil {
		return err
	}
	out.Runners = fitsOf(fits)
	return q.json(http.StatusOK, out)
}

func verdictOf(v policy.Verdict) *wire.PolicyVerdict {
	out := &wire.PolicyVerdict{Verdict: "deny", BundleDigest: v.BundleDigest, Rules: list(v.Rules), Reasons: []wire.PolicyReason{}}
	if v.Allow {
		out.Verdict = "allow"
	}
	for _, r := range v.Reasons {
		out.Reasons = append(out.Reasons, wire.PolicyReason(r))
	}
	return out
}
