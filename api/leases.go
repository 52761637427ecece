package api

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/domain"
)

func (s *server) start(q *request) error {
	body, err := decodeBody[wire.StartRequest](q.body)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"process", "sandbox", "container"}, body.Isolation) {
		return violation("/isolation", "enum", "is one of process, sandbox, container")
	}
	a, err := s.Commands.Start(q.Context(), q.meta, q.lease, body.Isolation)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Started{LeaseSeconds: a.Clocks.LeaseSeconds, RunSeconds: a.Clocks.RunSeconds})
}

func (s *server) storeLog(q *request) error {
	if !q.query.has("stream") || !q.query.has("offset") {
		return malformed("query_required", "the query parameters stream and offset are required", "")
	}
	stream, offset, err := logQuery(q.query, "")
	if err != nil {
		return err
	}
	id, have, err := s.Intake.StoreLog(q.Context(), q.meta, q.lease, stream, offset, q.body)
	var refused *domain.Error
	if errors.As(err, &refused) && refused.Kind == domain.KindOffset {
		return refused.With("stream", stream).With("offset", have)
	}
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.LogAnswer{Stream: stream, Offset: have, FlushSeconds: s.followedFlush(q.Context(), id)})
}

func (s *server) announce(q *request) error {
	body, err := decodeBody[wire.ArtifactRequest](q.body)
	if err != nil {
		return err
	}
	n := artifacts.Announcement{Name: body.Name, Type: body.Type, Output: body.Output, Sensitivity: body.Sensitivity,
		MediaType: body.MediaType, Bytes: body.Bytes, SHA256: body.SHA256, Inline: body.Inline}
	if string(n.Inline) == "null" {
		n.Inline = nil
	}
	if v := body.Vault; v != nil {
		n.Vault = &artifacts.VaultPlace{Reference: v.Reference, HMACSHA256: v.HMACSHA256, ObjectBytes: v.ObjectBytes, ObjectSHA256: v.ObjectSHA256}
	}
	for _, f := range []struct{ pointer, value string }{{"/name", n.Name}, {"/type", n.Type}, {"/media_type", n.MediaType}} {
		if len(f.value) > 200 || !printable(f.value) {
			return violation(f.pointer, "invalid", "has at most 200 bytes without control characters")
		}
	}
	done, err := s.Intake.Announce(q.Context(), q.meta, q.lease, n)
	if err != nil {
		return err
	}
	out := wire.ArtifactAnswer{ID: done.ID, Stored: done.Stored}
	if u := done.Upload; u != nil {
		out.Upload = &wire.Upload{Method: u.Method, URL: u.URL, Headers: map[string]string{}}
		maps.Copy(out.Upload.Headers, u.Headers)
	}
	return q.json(http.StatusOK, out)
}

func (s *server) recordEvidence(q *request) error {
	body, err := decodeBody[wire.EvidenceRequest](q.body)
	if err != nil {
		return err
	}
	for _, f := range []struct{ pointer, value string }{{"/name", body.Name}, {"/capability", body.Capability}, {"/source", body.Source}} {
		if len(f.value) > 200 || !printable(f.value) {
			return violation(f.pointer, "invalid", "has at most 200 bytes without control characters")
		}
	}
	e := domain.EvidenceRecorded{Name: body.Name, Type: body.Type, Capability: body.Capability, Result: body.Result,
		Source: body.Source, ObservedAt: body.ObservedAt}
	id, err := s.Commands.RecordEvidence(q.Context(), q.meta, q.lease, e, body.Detail)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.EvidenceAnswer{ID: id})
}

func (s *server) recordFact(q *request) error {
	body, err := decodeBody[wire.FactRequest](q.body)
	if err != nil {
		return err
	}
	fact, err := factOf(body)
	if err != nil {
		return err
	}
	var privileges []string
	if body.PolicyDecided != nil {
		privileges = body.PolicyDecided.Privileges
	}
	if err := s.Commands.RecordFact(q.Context(), q.meta, q.lease, fact, privileges...); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "recorded"})
}

func (s *server) complete(q *request) error {
	body, err := decodeBody[wire.CompleteRequest](q.body)
	if err != nil {
		return err
	}
	if body.FinishedAt.IsZero() {
		return violation("/finished_at", "required", "is required")
	}
	environment := body.Environment
	if string(environment) == "null" {
		environment = nil
	}
	claim := domain.Claim{Result: body.Result, Launched: body.Launched, Code: body.Code, Recommended: body.RecommendedCategory,
		FinishedAt: body.FinishedAt, Logs: body.Logs, Artifacts: body.Artifacts}
	a, err := s.Commands.Complete(q.Context(), q.meta, q.lease, claim, environment)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: a.PublicState()})
}

func (s *server) release(q *request) error {
	body, err := decodeBody[wire.ReleaseRequest](q.body)
	if err != nil {
		return err
	}
	if err := s.Commands.Release(q.Context(), q.meta, q.lease, body.Reason); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "released"})
}
