package callbacks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	recordFor   = 15 * time.Second // a record that fails is repeated so long
	recordPause = 200 * time.Millisecond
)

// try makes one call and records what it gave. A process that ends between the two
// makes the call again, with the same id and bytes.
func (s *sender) try(ctx context.Context, id domain.AttemptID, cb projections.Callback) {
	log := s.w.Log.With("endpoint", s.x.name, "attempt_id", id.String(), "callback_id", cb.CallbackID.String())
	r, ok, err := s.w.Reads.StoredResult(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			log.WarnContext(ctx, "a result to deliver cannot be read; it is tried again", "error", err)
			s.hold(id)
		}
		return
	}
	t := domain.CallbackTry{Round: cb.Round, Try: cb.Tries + 1}
	// One that is gone was there when it was scheduled. It is recorded too: callbacks
	// that are only held would stand before all others, again and again.
	if sum := sha256.Sum256(r.Body); !ok || hex.EncodeToString(sum[:]) != cb.ResultSHA256 {
		log.ErrorContext(ctx, "a stored result is not the one that was scheduled, or is gone, and is not sent; run: execution-plane projections check", "found", ok)
		a := answer{class: ClassResult}
		s.tally.count(a)
		s.record(ctx, id, t, a)
		return
	}
	at := s.clock.now()
	signature, err := s.keys(ctx).sign(cb.CallbackID.String(), at, r.Body)
	if err != nil {
		log.ErrorContext(ctx, "a callback cannot be signed; it is tried again", "error", err)
		s.hold(id)
		return
	}
	crashpoint.Here("callback.call")
	a := s.client.call(ctx, message{id: cb.CallbackID.String(), attempt: id.String(), seq: r.Seq, body: r.Body, at: at, signature: signature})
	crashpoint.Here("callback.answered")
	switch {
	case a.class != "" && ctx.Err() != nil:
		return // the term ended; the endpoint is not to blame
	case a.local:
		log.WarnContext(ctx, "a callback cannot be sent for want of files, ports or memory on this machine; it is tried again")
		s.hold(id)
		return
	}
	s.note(a, a.status == http.StatusGone)
	if a.status == http.StatusGone {
		log.ErrorContext(ctx, "a callback endpoint answered 410 Gone and is stopped; its callbacks wait until an operator resumes it")
	} else if a.class != "" {
		log.InfoContext(ctx, "a callback failed", "round", t.Round, "try", t.Try, "class", a.class, "status", a.status, "answer_bytes", a.bytes, "latency", a.latency)
	}
	s.record(ctx, id, t, a)
	if a.status == http.StatusGone {
		s.told()
	}
}

// record tells the ledger. While that fails the slot stays taken: there is no use in
// calls whose outcome cannot be kept.
func (s *sender) record(ctx context.Context, id domain.AttemptID, t domain.CallbackTry, a answer) {
	t.Delivered, t.Gone, t.Status, t.ErrorClass = a.class == "", a.status == http.StatusGone, a.status, a.class
	t.LatencyMS, t.ResponseBytes, t.ResponseSHA256 = a.latency.Milliseconds(), a.bytes, a.sha256
	if !t.Delivered {
		t.Delay = delay(t.Try, a, s.clock.now(), s.jitter)
	}
	limited, cancel := context.WithTimeout(ctx, recordFor)
	defer cancel()
	for {
		after, err := s.w.Commands.RecordTry(limited, s.x.name, id, t)
		if err == nil {
			if after.State == domain.CallbackAbandoned && after.Round == t.Round {
				s.w.Log.WarnContext(ctx, "a callback is given up; replay it once its endpoint works", "endpoint", s.x.name, "attempt_id", id.String(), "tries", after.Tries)
			}
			return
		}
		kind := domain.KindOf(err)
		again := kind == domain.KindInternal || kind == domain.KindUnavailable || kind == domain.KindOverloaded
		if !again || !pause(limited, recordPause, nil) {
			s.w.Log.WarnContext(ctx, "a try of a callback could not be recorded; the call is made again", "endpoint", s.x.name, "attempt_id", id.String(), "error", err)
			s.hold(id)
			return
		}
	}
}
