package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func (s *server) listTokens(q *request) error {
	views, err := s.Reads.Tokens(q.Context())
	if err != nil {
		return err
	}
	page := wire.Page[wire.Token]{Items: make([]wire.Token, len(views))}
	for i, v := range views {
		page.Items[i] = tokenOf(v)
	}
	return q.json(http.StatusOK, page)
}

// Lifetimes of tokens and enrolments, in seconds.
const (
	maxTokenLife     = 10 * 365 * 86400
	defaultEnrolment = 3600
	maxEnrolmentLife = 7 * 86400
)

// errShownOnce answers a repeated request for a secret that was made before.
var errShownOnce = &domain.Error{Kind: domain.KindConflict, Code: "secret_shown_once", Message: "this request was carried out before, and its secret is shown only once",
	Next: "if the first answer was lost, revoke what it made and ask again with a new Idempotency-Key"}

func (s *server) createToken(q *request) error {
	body, err := decodeBody[wire.TokenRequest](q.body)
	if err != nil {
		return err
	}
	roles := slices.DeleteFunc(domain.Roles(), func(r string) bool { return r == domain.RoleRunner })
	switch {
	case body.Role == domain.RoleRunner:
		return violation("/role", "enum", "runners get their tokens by enrolment: POST /v1/enrolments")
	case !slices.Contains(roles, body.Role):
		return violation("/role", "enum", "is one of control-plane, auditor, viewer, operator")
	case body.Name == "" || len(body.Name) > 200 || !printable(body.Name):
		return violation("/name", "required", "has from 1 to 200 bytes without control characters: who will use it")
	case body.ExpiresSeconds < 0 || body.ExpiresSeconds > maxTokenLife:
		return violation("/expires_seconds", "range", "is from 0 (never) to ten years")
	}
	id := domain.NewID[domain.TokenID](uuid.NewSHA1(q.meta.CommandID.UUID(), []byte("token")))
	secret := newSecret()
	t := domain.TokenCreated{TokenID: id, Name: body.Name, Role: body.Role, SHA256: digestOf(secret)}
	if body.ExpiresSeconds > 0 {
		until := s.until(body.ExpiresSeconds)
		t.ExpiresAt = &until
	}
	if err := s.Commands.CreateToken(q.Context(), q.meta, t); err != nil {
		return err
	}
	// A repeated request has no effect, and only the first one's secret is valid.
	stored, err := s.Reads.Token(q.Context(), id)
	if err != nil {
		return err
	}
	if stored.SHA256 != t.SHA256 {
		return errShownOnce.With("token_id", id.String())
	}
	return q.json(http.StatusCreated, wire.TokenSecret{TokenID: id, Token: prefixBearer + id.String() + "_" + secret})
}

func (s *server) until(seconds int) time.Time {
	return s.now().Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Microsecond)
}

func (s *server) revokeToken(q *request) error {
	id, err := pathID[domain.TokenID](q)
	if err != nil {
		return err
	}
	body, err := decodeBody[wire.ReasonRequest](q.body)
	if err != nil {
		return err
	}
	err = s.Commands.RevokeToken(q.Context(), q.meta, id, body.Reason)
	s.tokens.forget(id) // also where the outcome is not known
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.Ack{State: "revoked"})
}

func (s *server) createEnrolment(q *request) error {
	body, err := decodeBody[wire.EnrolmentRequest](q.body)
	if err != nil {
		return err
	}
	if body.ExpiresSeconds == 0 {
		body.ExpiresSeconds = defaultEnrolment
	}
	switch {
	case body.Pool == "" || len(body.Pool) > 200 || !printable(body.Pool):
		return violation("/pool", "required", "is required: a pool of the policy bundle")
	case body.ExpiresSeconds < 0 || body.ExpiresSeconds > maxEnrolmentLife:
		return violation("/expires_seconds", "range", "is from 1 second to seven days")
	}
	id := domain.NewID[domain.EnrolmentID](uuid.NewSHA1(q.meta.CommandID.UUID(), []byte("enrolment")))
	secret := newSecret()
	e := domain.EnrolmentCreated{EnrolmentID: id, Pool: body.Pool, SHA256: digestOf(secret), ExpiresAt: s.until(body.ExpiresSeconds)}
	if err := s.Commands.CreateEnrolment(q.Context(), q.meta, e); err != nil {
		return err
	}
	stored, err := s.Reads.Enrolment(q.Context(), id)
	if err != nil {
		return err
	}
	if stored.SHA256 != e.SHA256 {
		return errShownOnce.With("enrolment_id", id.String())
	}
	return q.json(http.StatusCreated, wire.EnrolmentSecret{EnrolmentID: id, Pool: body.Pool, Token: prefixEnrolment + id.String() + "_" + secret, ExpiresAt: e.ExpiresAt})
}
