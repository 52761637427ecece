package commands

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

// RegisterRunner is an agent's request to serve. It comes with an enrolment the
// first time and with the runner's own token ever after.
type RegisterRunner struct {
	Enrolment   *EnrolmentProof
	TokenID     domain.TokenID // the runner's own, on a later registration
	TokenSHA256 string         // of the secret the runner made, with an enrolment
	Registered  domain.RunnerRegistered
}

// EnrolmentProof is a one-time enrolment token.
type EnrolmentProof struct {
	ID     domain.EnrolmentID
	Secret string
}

// Registered answers a registration.
type Registered struct {
	Runner       domain.Runner
	TokenID      domain.TokenID
	Slots        int
	PolicyDigest string
}

// RegisterRunner enrols and registers a runner. With an enrolment three streams
// change one after the other (enrolment used, token created, runner registered),
// each under an id derived from the request's: a crash in between is healed by
// repeating the request.
func (s *Service) RegisterRunner(ctx context.Context, m Meta, r RegisterRunner) (Registered, error) {
	if err := checkRegistration(r); err != nil {
		return Registered{}, err
	}
	id := r.Registered.RunnerID
	poolName, tokenID, err := s.credential(ctx, m, r, id)
	if err != nil {
		return Registered{}, err
	}
	bundle := s.Policy()
	pool, ok := bundle.Pool(poolName)
	if !ok {
		return Registered{}, &domain.Error{Kind: domain.KindForbidden, Code: "pool_unknown", Message: fmt.Sprintf("the policy bundle no longer has the pool %q", poolName),
			Next: "add the pool to the policy bundle, or enrol the runner into another"}
	}
	e := narrow(r.Registered, pool)
	e.Pool, e.TokenID, e.PolicyDigest = poolName, tokenID, bundle.Digest()
	e.Approved = approved(bundle, e)
	res, err := carryOut(ctx, s, runnerStreams, RunnerStream(id), m, eventstore.ClassUrgent,
		func(st domain.Runner, now time.Time) (decision, error) {
			events, err := domain.DecideRunner(st, domain.RegisterRunner{Registered: e}, now)
			return decision{events: events}, err
		})
	if err != nil {
		return Registered{}, err
	}
	return Registered{Runner: res.State, TokenID: tokenID, Slots: e.Slots, PolicyDigest: e.PolicyDigest}, nil
}

func checkRegistration(r RegisterRunner) error {
	var v []domain.Violation
	add := func(pointer, message string) {
		v = append(v, domain.Violation{Pointer: pointer, Code: "invalid", Message: message})
	}
	e := r.Registered
	if e.RunnerID.IsZero() {
		add("/runner_id", "is required: a UUID that the agent keeps")
	}
	if e.Name == "" || len(e.Name) > 100 {
		add("/name", "is required, such as verification-runner")
	}
	if e.Slots < 1 || e.Slots > 1000 {
		add("/slots", "is from 1 to 1000")
	}
	if len(e.JobTypes) == 0 || slices.ContainsFunc(e.JobTypes, func(t string) bool { return !slices.Contains(domain.JobTypes(), t) }) {
		add("/job_types", "names at least one of the six job types")
	}
	if len(e.Actions) == 0 || len(e.Actions) > 200 {
		add("/actions", "names from 1 to 200 actions")
	}
	if len(e.Isolation) == 0 || slices.ContainsFunc(e.Isolation, func(t string) bool { return !slices.Contains([]string{"process", "sandbox", "container"}, t) }) {
		add("/isolation", "names what the runner can apply: process, sandbox, container")
	}
	if len(e.Labels) > 32 || len(e.Tools) > 64 {
		add("/labels", "at most 32 labels and 64 tools")
	}
	if r.Enrolment != nil && len(r.TokenSHA256) != 64 {
		add("/token_sha256", "is required with an enrolment token: 64 hex digits")
	}
	if len(v) == 0 {
		return nil
	}
	return &domain.Error{Kind: domain.KindInvalid, Code: "registration_invalid", Message: "the registration breaks rules", Violations: v}
}

// credential finds the pool that the caller's credential is bound to.
func (s *Service) credential(ctx context.Context, m Meta, r RegisterRunner, id domain.RunnerID) (pool string, token domain.TokenID, err error) {
	if r.Enrolment == nil {
		pool, token, err = s.Index.RunnerPool(ctx, id)
		if err == nil && token != r.TokenID {
			err = domain.ErrRunnerRefused
		}
		return pool, token, err
	}
	want, err := s.Index.EnrolmentSecret(ctx, r.Enrolment.ID)
	if isNotFound(err) {
		return "", token, domain.ErrEnrolment
	}
	if err != nil {
		return "", token, err
	}
	sum := sha256.Sum256([]byte(r.Enrolment.Secret))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(want)) != 1 {
		return "", token, domain.ErrEnrolment
	}
	token = domain.NewID[domain.TokenID](uuid.NewSHA1(r.Enrolment.ID.UUID(), []byte("token/"+id.String())))
	if err := s.checkNewRunner(ctx, id, token); err != nil {
		return "", token, err
	}
	used := m
	used.CommandID = domain.DeriveCommandID(m.CommandID.UUID(), "enrolment")
	n, err := carryOut(ctx, s, enrolments, enrolmentStream(r.Enrolment.ID), used, eventstore.ClassUrgent,
		func(n domain.Enrolment, now time.Time) (decision, error) {
			events, err := domain.DecideEnrolment(n, domain.UseEnrolment{RunnerID: id, TokenID: token}, now)
			return decision{events: events}, err
		})
	if err != nil {
		return "", token, err
	}
	pool = n.State.Pool
	created := m
	created.CommandID = domain.DeriveCommandID(token.UUID(), "create")
	created.Digest = sha256.Sum256([]byte(r.TokenSHA256))
	err = s.onToken(ctx, created, token, domain.CreateToken{Created: domain.TokenCreated{
		TokenID: token, Name: "runner " + id.String(), Role: domain.RoleRunner, Pool: pool, RunnerID: &id, SHA256: r.TokenSHA256}}, nil)
	return pool, token, err
}

// checkNewRunner: an enrolment lets a new runner in; it takes over nobody's id. The
// same runner may repeat it, since its answer can be lost.
func (s *Service) checkNewRunner(ctx context.Context, id domain.RunnerID, token domain.TokenID) error {
	r, _, err := stateOf(ctx, s.Store, runnerStreams, RunnerStream(id))
	if err != nil || r.ID.IsZero() || r.TokenID == token {
		return err
	}
	return &domain.Error{Kind: domain.KindForbidden, Code: "runner_exists", Message: "this runner id is taken",
		Next: "let the agent make a new id: remove its state folder"}
}

// narrow cuts a registration to what the pool admits: a runner may offer less
// than its pool, never more.
func narrow(e domain.RunnerRegistered, p policy.Pool) domain.RunnerRegistered {
	e.JobTypes = slices.DeleteFunc(slices.Clone(e.JobTypes), func(t string) bool {
		return len(p.JobTypes) > 0 && !slices.Contains(p.JobTypes, t) && !slices.Contains(p.JobTypes, "*")
	})
	e.Slots = min(e.Slots, p.MaxSlots)
	if len(p.Labels) > 0 {
		labels := make(map[string]string, len(e.Labels)+len(p.Labels))
		for k, v := range e.Labels {
			labels[k] = v
		}
		for k, v := range p.Labels { // the operator's word wins
			labels[k] = v
		}
		e.Labels = labels
	}
	return e
}

// approved asks the bundle about every job type the runner offers.
func approved(b *policy.Bundle, e domain.RunnerRegistered) bool {
	if len(e.JobTypes) == 0 {
		return false
	}
	for _, t := range e.JobTypes {
		if !b.ApproveRunner(policy.Implementation{Name: e.Name, JobType: t, Version: e.Version, BinarySHA256: e.BinaryDigest}).Allow {
			return false
		}
	}
	return true
}

// ChangeRunner is an operator's pause, resume, drain or evict.
func (s *Service) ChangeRunner(ctx context.Context, m Meta, id domain.RunnerID, change, text string) (domain.Runner, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return domain.Runner{}, err
	}
	return s.changeRunner(ctx, m, id, domain.ChangeRunner{Change: change, ReasonText: ref}, texts)
}

// NoteRunner records what the service saw of a runner: "drained", "lost" or "back".
func (s *Service) NoteRunner(ctx context.Context, id domain.RunnerID, change string, lastSeen time.Time) (domain.Runner, error) {
	return s.changeRunner(ctx, internalMeta("sweeper", newCommandID()), id, domain.ChangeRunner{Change: change, LastSeen: lastSeen}, nil)
}

func (s *Service) changeRunner(ctx context.Context, m Meta, id domain.RunnerID, c domain.ChangeRunner, texts []eventstore.Text) (domain.Runner, error) {
	r, err := carryOut(ctx, s, runnerStreams, RunnerStream(id), m, eventstore.ClassUrgent,
		func(st domain.Runner, now time.Time) (decision, error) {
			events, err := domain.DecideRunner(st, c, now)
			return decision{events, texts}, err
		})
	return r.State, err
}
