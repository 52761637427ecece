package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

// aggregate is how one kind of stream is folded and shown.
type aggregate[S any] struct {
	stateVersion int
	evolve       func(S, domain.Event, time.Time) (S, error)
	changes      func(before, after S, events []domain.Event, at time.Time) []eventstore.Change
	closed       func(S) bool
	node         func(S) (operationID, planNodeID string)
}

var (
	attempts = aggregate[domain.Attempt]{
		domain.AttemptStateVersion, domain.EvolveAttempt, projections.AttemptChanges,
		func(a domain.Attempt) bool { return a.Phase == domain.PhaseClosed },
		func(a domain.Attempt) (string, string) { return a.OperationID.String(), a.PlanNodeID },
	}
	runnerStreams = aggregate[domain.Runner]{domain.RunnerStateVersion, domain.EvolveRunner, projections.RunnerChanges, nil, nil}
	tokens        = aggregate[domain.Token]{domain.TokenStateVersion, domain.EvolveToken, projections.TokenChanges, nil, nil}
	enrolments    = aggregate[domain.Enrolment]{domain.TokenStateVersion, domain.EvolveEnrolment, projections.EnrolmentChanges, nil, nil}
	service       = aggregate[domain.Service]{domain.ServiceStateVersion, domain.EvolveService, noChanges, nil, nil}
)

func noChanges(_, _ domain.Service, _ []domain.Event, _ time.Time) []eventstore.Change { return nil }

// decision is what a command leads to.
type decision struct {
	events []domain.Event
	texts  []eventstore.Text
}

// result is what carrying out a command gave.
type result[S any] struct {
	State    S
	Now      time.Time
	Receipt  eventstore.Receipt // of the command's first event; zero if it has none
	Repeated bool               // it had been carried out before
	Changed  bool               // events were appended now
}

// maxTries bounds how often a command is decided again after a clash.
const maxTries = 16

// stateOf reads the state of a stream, and the database's clock.
func stateOf[S any](ctx context.Context, store eventstore.Store, ag aggregate[S], stream eventstore.StreamID) (st S, now time.Time, err error) {
	l, err := store.Load(ctx, stream, uuid.Nil)
	if err != nil {
		return st, now, err
	}
	st, err = fold(ctx, store, ag, stream, l.Head)
	return st, l.Now, err
}

// carryOut loads, decides and appends until it took effect, was refused, or
// clashed too often. decide may be called several times and must be pure but for
// what it reads.
func carryOut[S any](ctx context.Context, s *Service, ag aggregate[S], stream eventstore.StreamID, m Meta, class eventstore.Class,
	decide func(state S, now time.Time) (decision, error)) (result[S], error) {
	leave, err := s.streams.enter(ctx, stream)
	if err != nil {
		return result[S]{}, fmt.Errorf("wait for a turn on %s: %w", stream, err)
	}
	defer leave()
	var conflict *eventstore.ConflictError
	for range maxTries {
		r, err := attemptOnce(ctx, s, ag, stream, m, class, decide)
		if !errors.As(err, &conflict) {
			return r, err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return result[S]{}, &domain.Error{Kind: domain.KindUnavailable, Code: "contended", Err: conflict,
		Message: "other writers were faster too often", Next: "repeat the request with the same Idempotency-Key"}
}

func attemptOnce[S any](ctx context.Context, s *Service, ag aggregate[S], stream eventstore.StreamID, m Meta, class eventstore.Class,
	decide func(S, time.Time) (decision, error)) (result[S], error) {
	loaded, err := s.Store.Load(ctx, stream, m.CommandID.UUID())
	if err != nil {
		return result[S]{}, fmt.Errorf("load %s: %w", stream, err)
	}
	if broken.On("no_idempotency") {
		loaded.Done = nil
	}
	if loaded.Done != nil && (loaded.Done.Stream != stream || loaded.Done.CommandDigest != m.Digest) {
		return result[S]{}, ErrReused(m, *loaded.Done)
	}
	before, err := fold(ctx, s.Store, ag, stream, loaded.Head)
	if err != nil {
		return result[S]{}, err
	}
	r := result[S]{State: before, Now: loaded.Now}
	if loaded.Done != nil {
		r.Receipt, r.Repeated = *loaded.Done, true
		return r, nil
	}
	now := loaded.Now
	if broken.On("local_clock") {
		now = time.Now()
	}
	d, err := decide(before, now)
	if err != nil || len(d.events) == 0 {
		return r, err
	}
	a, after, err := prepare(ag, stream, loaded, m, before, d)
	if err != nil {
		return r, err
	}
	a.Class = class
	stored, err := appendTo(ctx, s.Store, a)
	if err != nil {
		if errors.Is(err, eventstore.ErrTooLarge) {
			return r, &domain.Error{Kind: domain.KindInvalid, Code: "too_large", Message: "the request is larger than an event may be", Err: err}
		}
		return r, err
	}
	e := stored[0]
	r.State, r.Changed = after, true
	r.Receipt = eventstore.Receipt{Stream: stream, EventID: e.EventID, Version: e.Version, Time: e.Time, Hash: e.Hash, CommandDigest: e.CommandDigest}
	return r, nil
}

// appendTo is the durable step of every command.
func appendTo(ctx context.Context, store eventstore.Store, a eventstore.Append) ([]eventstore.Event, error) {
	crashpoint.At("append.before", a.Events[0].Type)
	stored, err := store.Append(ctx, a)
	if err == nil {
		crashpoint.At("append.after", a.Events[0].Type)
	}
	return stored, err
}

// ErrReused says that a command id was used for another request.
func ErrReused(m Meta, done eventstore.Receipt) error {
	return domain.ErrCommandReused.With("command_id", m.CommandID.String()).
		With("stored_sha256", fmt.Sprintf("%x", done.CommandDigest)).With("sent_sha256", fmt.Sprintf("%x", m.Digest))
}

// prepare turns a decision into an append.
func prepare[S any](ag aggregate[S], stream eventstore.StreamID, loaded eventstore.Loaded, m Meta, before S, d decision) (eventstore.Append, S, error) {
	after := before
	events := make([]eventstore.NewEvent, len(d.events))
	for i, e := range d.events {
		name, schema, payload, err := domain.EncodeEvent(e)
		if err != nil {
			return eventstore.Append{}, after, err
		}
		events[i] = eventstore.NewEvent{Type: name, Schema: schema, Payload: payload}
		// The state is folded from the bytes that are stored, so that live and
		// replayed states cannot differ by what encoding drops.
		back, err := domain.DecodeEvent(name, schema, payload)
		if err != nil {
			return eventstore.Append{}, after, err
		}
		d.events[i] = back
		if after, err = ag.evolve(after, back, loaded.Now); err != nil {
			return eventstore.Append{}, after, fmt.Errorf("fold %s into %s: %w", name, stream, err)
		}
	}
	state, err := encodeState(after)
	if err != nil {
		return eventstore.Append{}, after, fmt.Errorf("encode the state of %s: %w", stream, err)
	}
	a := eventstore.Append{
		Stream: stream, Expected: loaded.Head.Version, PrevHash: loaded.Head.Hash, Now: loaded.Now,
		CommandID: m.CommandID.UUID(), CommandDigest: m.Digest, Actor: m.Actor, TraceParent: m.TraceParent,
		Events: events, State: state, StateVersion: ag.stateVersion,
		Rows: ag.changes(before, after, d.events, loaded.Now), Texts: d.texts,
	}
	if broken.On("rows_forgotten") && ag.closed != nil && len(d.events) == 1 {
		a.Rows = nil
	}
	if ag.closed != nil {
		a.Close = ag.closed(after)
	}
	if ag.node != nil {
		a.OperationID, a.PlanNodeID = ag.node(after)
	}
	return a, after, nil
}

// encodeState writes a state without HTML escapes: heads have little room.
func encodeState(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// fold returns the state at a head: as the head carries it, or folded afresh
// where another release wrote it.
func fold[S any](ctx context.Context, store eventstore.Store, ag aggregate[S], stream eventstore.StreamID, h eventstore.Head) (S, error) {
	var state S
	if h.Version == 0 {
		return state, nil
	}
	if h.StateVersion == ag.stateVersion && len(h.State) > 0 {
		if err := json.Unmarshal(h.State, &state); err != nil {
			return state, fmt.Errorf("read the folded state of %s at version %d: %w", stream, h.Version, err)
		}
		return state, nil
	}
	for after := int64(0); after < h.Version; {
		events, err := store.ReadStream(ctx, stream, after, 500)
		if err != nil {
			return state, fmt.Errorf("read %s after version %d: %w", stream, after, err)
		}
		if len(events) == 0 {
			return state, fmt.Errorf("read %s: it ends at version %d, its head says %d; run execution-plane verify", stream, after, h.Version)
		}
		for _, e := range events {
			if e.Version > h.Version {
				return state, nil
			}
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				return state, fmt.Errorf("read %s version %d: %w", stream, e.Version, err)
			}
			if state, err = ag.evolve(state, d, e.Time); err != nil {
				return state, fmt.Errorf("fold %s version %d: %w", stream, e.Version, err)
			}
			after = e.Version
		}
	}
	return state, nil
}
