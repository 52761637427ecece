package commands

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

var (
	callbacks = aggregate[domain.Callback]{domain.CallbackStateVersion, domain.EvolveCallback, projections.CallbackChanges, nil, nil}
	endpoints = aggregate[domain.Endpoint]{domain.CallbackStateVersion, domain.EvolveEndpoint, projections.EndpointChanges, nil, nil}
)

// CallbackStream names the stream of the delivery of a result to an endpoint.
func CallbackStream(endpoint string, id domain.AttemptID) eventstore.StreamID {
	return eventstore.StreamID("callback/" + endpoint + "/" + id.String())
}

// EndpointStream names the stream of an endpoint.
func EndpointStream(name string) eventstore.StreamID { return eventstore.StreamID("endpoint/" + name) }

// ScheduleCallback says that an attempt's result is to be delivered to an endpoint,
// within window from now. Again is no change; another result is a conflict.
func (s *Service) ScheduleCallback(ctx context.Context, endpoint string, attempt domain.AttemptID, result domain.ResultDigest, window time.Duration) error {
	m := internalMeta("callbacks", newCommandID())
	_, err := s.onCallback(ctx, m, eventstore.ClassSubmit, endpoint, attempt,
		domain.ScheduleCallback{Endpoint: endpoint, AttemptID: attempt, Result: result, Window: window}, nil)
	return err
}

// RecordTry records what a try gave and returns the callback as it is then. A try
// that somebody else has told of is no news. After a 410 the endpoint is stopped.
func (s *Service) RecordTry(ctx context.Context, endpoint string, attempt domain.AttemptID, t domain.CallbackTry) (domain.Callback, error) {
	name := fmt.Sprintf("try/%d/%d", t.Round, t.Try)
	m := internalMeta("callbacks", domain.DeriveCommandID(domain.CallbackIDOf(endpoint, attempt).UUID(), name))
	m.Digest = sha256.Sum256([]byte(name))
	c, err := s.onCallback(ctx, m, eventstore.ClassUrgent, endpoint, attempt, domain.RecordTry{Try: t}, nil)
	if err == nil && t.Gone {
		err = s.onEndpoint(ctx, internalMeta("callbacks", newCommandID()), endpoint,
			domain.StopEndpoint{Stopped: domain.EndpointStopped{Endpoint: endpoint, Cause: domain.EndpointGone, AttemptID: &attempt}}, nil)
	}
	return c, err
}

// ReplayCallback delivers a result once more, whatever became of it before.
func (s *Service) ReplayCallback(ctx context.Context, m Meta, endpoint string, attempt domain.AttemptID, text string, window time.Duration) (domain.Callback, error) {
	ref, texts, err := reasonText(text)
	if err != nil {
		return domain.Callback{}, err
	}
	return s.onCallback(ctx, m, eventstore.ClassUrgent, endpoint, attempt, domain.ReplayCallback{ReasonText: ref, Window: window}, texts)
}

// StopEndpoint lets the callbacks of an endpoint wait.
func (s *Service) StopEndpoint(ctx context.Context, m Meta, name, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	return s.onEndpoint(ctx, m, name, domain.StopEndpoint{Stopped: domain.EndpointStopped{Endpoint: name, Cause: domain.EndpointByOperator, ReasonText: ref}}, texts)
}

// ResumeEndpoint delivers to a stopped endpoint again.
func (s *Service) ResumeEndpoint(ctx context.Context, m Meta, name, text string) error {
	ref, texts, err := reasonText(text)
	if err != nil {
		return err
	}
	return s.onEndpoint(ctx, m, name, domain.ResumeEndpoint{Resumed: domain.EndpointResumed{Endpoint: name, ReasonText: ref}}, texts)
}

func (s *Service) onCallback(ctx context.Context, m Meta, class eventstore.Class, endpoint string, attempt domain.AttemptID, c domain.CallbackCommand, texts []eventstore.Text) (domain.Callback, error) {
	r, err := carryOut(ctx, s, callbacks, CallbackStream(endpoint, attempt), m, class,
		func(st domain.Callback, now time.Time) (decision, error) {
			events, err := domain.DecideCallback(st, c, now)
			return decision{events, texts}, err
		})
	return r.State, err
}

func (s *Service) onEndpoint(ctx context.Context, m Meta, name string, c domain.EndpointCommand, texts []eventstore.Text) error {
	_, err := carryOut(ctx, s, endpoints, EndpointStream(name), m, eventstore.ClassUrgent,
		func(st domain.Endpoint, now time.Time) (decision, error) {
			events, err := domain.DecideEndpoint(st, c, now)
			return decision{events, texts}, err
		})
	return err
}
