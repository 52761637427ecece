package commands

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// onLease carries out a runner's write on the attempt that its lease names.
//
// Order of refusal: 403 not yours, 404 unknown lease, 410 ended, 409 old. The
// lease and its token are checked against the index first, then by the domain
// against the state that the append's expected version protects. A refusal is a
// fact of the runner's stream, once per attempt, epoch and kind of write.
func (s *Service) onLease(ctx context.Context, m Meta, call LeaseCall, kind string,
	decide func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error)) (result[domain.Attempt], error) {
	rec, f, err := s.fence(ctx, call)
	if err != nil {
		if !rec.AttemptID.IsZero() {
			s.noteRefusal(ctx, call.RunnerID, rec, kind, err)
		}
		return result[domain.Attempt]{}, err
	}
	run := func(p domain.Presence) (result[domain.Attempt], error) {
		return carryOut(ctx, s, attempts, AttemptStream(rec.AttemptID), m, eventstore.ClassUrgent,
			func(a domain.Attempt, now time.Time) (decision, error) {
				f.ResumedAt = p.Since(now)
				return decide(a, f, now)
			})
	}
	p, err := s.presenceWithin(ctx, presenceFor)
	if err != nil {
		return result[domain.Attempt]{}, err
	}
	r, err := run(p)
	if errors.Is(err, domain.ErrLeaseLost) {
		// The service may have come back since the cached presence was read.
		if fresh, ferr := s.Presence(ctx); ferr != nil {
			return r, ferr
		} else if fresh.ResumedAt.After(p.ResumedAt) {
			r, err = run(fresh)
		}
	}
	if err != nil {
		s.noteRefusal(ctx, call.RunnerID, rec, kind, err)
		if errors.Is(err, domain.ErrLeaseLost) {
			// Whoever sees first that time is up says so in the ledger.
			if _, terr := s.Tick(ctx, rec.AttemptID, TickOptions{}); terr != nil {
				s.Log.WarnContext(ctx, "expiring a lost lease failed; the sweeper will", "attempt_id", rec.AttemptID.String(), "error", terr)
			}
		}
	}
	return r, err
}

// fence checks a call against the lease index. The caller sets ResumedAt, by the
// clock of its decision.
func (s *Service) fence(ctx context.Context, call LeaseCall) (LeaseRecord, domain.Fence, error) {
	rec, err := s.Index.Lease(ctx, call.LeaseID)
	if err != nil {
		return rec, domain.Fence{}, err
	}
	sum := sha256.Sum256([]byte(call.Token))
	token := hex.EncodeToString(sum[:])
	if rec.RunnerID != call.RunnerID || subtle.ConstantTimeCompare([]byte(token), []byte(rec.TokenSHA256)) != 1 {
		return rec, domain.Fence{}, domain.ErrNotHolder
	}
	if call.Epoch != rec.Epoch {
		return LeaseRecord{}, domain.Fence{}, &domain.Error{Kind: domain.KindMalformed, Code: "lease_epoch", Message: "Lease-Epoch is not this lease's epoch", Next: "send the epoch that came with the offer"}
	}
	return rec, domain.Fence{RunnerID: call.RunnerID, Epoch: call.Epoch, TokenSHA256: token}, nil
}

// noteRefusal keeps a refused write as a fact of the runner. Its id is derived,
// so a flood of refused writes is one event.
func (s *Service) noteRefusal(ctx context.Context, runner domain.RunnerID, rec LeaseRecord, kind string, refusal error) {
	var e *domain.Error
	if !errors.As(refusal, &e) {
		return
	}
	switch e.Kind {
	case domain.KindForbidden, domain.KindConflict, domain.KindGone:
	default:
		return
	}
	id := domain.DeriveCommandID(uuid.NewSHA1(runner.UUID(), []byte(rec.AttemptID.String())), "refused/"+kind+"/"+strconv.FormatInt(rec.Epoch, 10))
	m := internalMeta("refusal", id)
	_, err := carryOut(ctx, s, runnerStreams, RunnerStream(runner), m, eventstore.ClassUrgent,
		func(r domain.Runner, now time.Time) (decision, error) {
			events, err := domain.DecideRunner(r, domain.RefuseWrite{Refused: domain.RunnerWriteRefused{
				AttemptID: rec.AttemptID, Epoch: rec.Epoch, Command: kind, Reason: e.Code}}, now)
			return decision{events: events}, err
		})
	if err != nil {
		s.Log.WarnContext(ctx, "recording a refused write failed", "runner_id", runner.String(), "attempt_id", rec.AttemptID.String(), "error", err)
	}
}
