package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// RecordFact keeps a fact that the runner alone could see. One about a secret must
// speak of an entry of the JobSpec: the ledger holds no text that a runner chose in
// the place of a reference. A verdict comes with the privileges that it grants.
func (s *Service) RecordFact(ctx context.Context, m Meta, call LeaseCall, fact domain.Event, privileges ...string) error {
	_, err := s.onLease(ctx, m, call, "fact", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.RecordFact{Fence: f, Fact: fact, Privileges: privileges}, now)
		if resolved, ok := fact.(domain.SecretResolved); ok && err == nil {
			err = s.checkResolved(ctx, a.ID, resolved)
		}
		return decision{events: events}, err
	})
	return err
}

// Created reads what the stream says of the attempt first.
func (s *Service) Created(ctx context.Context, id domain.AttemptID) (domain.Created, error) {
	events, err := s.Store.ReadStream(ctx, AttemptStream(id), 0, 1)
	if err != nil {
		return domain.Created{}, fmt.Errorf("read how %s was created: %w", id, err)
	}
	if len(events) == 0 {
		return domain.Created{}, domain.ErrUnknownAttempt
	}
	e, err := domain.DecodeEvent(events[0].Type, events[0].Schema, events[0].Payload)
	if err != nil {
		return domain.Created{}, fmt.Errorf("read how %s was created: %w", id, err)
	}
	c, ok := e.(domain.Created)
	if !ok {
		return c, fmt.Errorf("the stream of %s begins with %s; run: execution-plane verify", id, events[0].Type)
	}
	return c, nil
}

// checkResolved compares a fact with the JobSpec's entry. The runner may add the
// version that it read, and name what the JobSpec does not name.
func (s *Service) checkResolved(ctx context.Context, id domain.AttemptID, e domain.SecretResolved) error {
	c, err := s.Created(ctx, id)
	if err != nil {
		return err
	}
	bad := func(member, message string) error {
		return &domain.Error{Kind: domain.KindInvalid, Code: "fact_invalid", Message: "the fact does not fit the JobSpec",
			Violations: []domain.Violation{{Pointer: "/secret_resolved/" + member, Code: "reference", Message: message}}}
	}
	if e.Index < 0 || e.Index >= len(c.Secrets) {
		return bad("index", fmt.Sprintf("names no entry of inputs.secrets, which has %d", len(c.Secrets)))
	}
	asked := c.Secrets[e.Index]
	if asked.Name != "" && e.Name != asked.Name {
		return bad("name", "is not the name of this entry of inputs.secrets")
	}
	want, err := policy.ParseSecretReference(asked.SecretRef)
	if err != nil {
		return bad("index", "names an entry of inputs.secrets whose reference cannot be used")
	}
	got, err := policy.ParseSecretReference(e.Reference)
	switch {
	case err != nil:
		return bad("reference", "is no reference: "+err.Error())
	case got.Path != want.Path || got.Field != want.Field || want.Version > 0 && got.Version != want.Version:
		return bad("reference", "is not the reference of this entry of inputs.secrets; only a version may be added")
	case got.Version > 0 && e.Version != got.Version:
		return bad("version", "is not the version of the reference")
	}
	return nil
}
