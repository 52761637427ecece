package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

// streamPage is how many events are read at once.
const streamPage = 500

// walk calls yield for each event of an attempt's stream in order until it
// returns false. An attempt without events does not exist.
func (s *server) walk(ctx context.Context, id domain.AttemptID, yield func(eventstore.Event, domain.Event) (bool, error)) error {
	after := int64(0)
	for {
		events, err := s.Streams.ReadStream(ctx, commands.AttemptStream(id), after, streamPage)
		if err != nil {
			return fmt.Errorf("read the stream of %s: %w", id, err)
		}
		if len(events) == 0 && after == 0 {
			return domain.ErrUnknownAttempt
		}
		for _, e := range events {
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				return fmt.Errorf("read version %d of %s: %w", e.Version, id, err)
			}
			if more, err := yield(e, d); err != nil || !more {
				return err
			}
			after = e.Version
		}
		if len(events) < streamPage {
			return nil
		}
	}
}

func (s *server) getState(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	if q.query.has("version") && q.query.has("at") {
		return malformed("query_value", "version and at exclude each other", "give one of them")
	}
	version, err := q.query.number("version", 0, 1, 1<<53)
	if err != nil {
		return err
	}
	at, err := q.query.time("at")
	if err != nil {
		return err
	}
	out := wire.AttemptState{AttemptID: id}
	err = s.walk(q.Context(), id, func(e eventstore.Event, d domain.Event) (bool, error) {
		if !at.IsZero() && e.Time.After(at) {
			return false, nil
		}
		st, err := domain.EvolveAttempt(out.State, d, e.Time)
		if err != nil {
			return false, fmt.Errorf("fold version %d of %s: %w", e.Version, id, err)
		}
		out.State, out.Version, out.Time = st, e.Version, eventstore.FormatTime(e.Time)
		return e.Version != version, nil
	})
	if err != nil {
		return err
	}
	if out.Version == 0 || (version > 0 && out.Version < version) {
		return &domain.Error{Kind: domain.KindNotFound, Code: "version_unknown", Message: "the attempt has no such version, or did not exist then",
			Next: "GET …/events lists the versions with their times"}
	}
	return q.json(http.StatusOK, out)
}

func (s *server) getEvidence(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	page := wire.Page[wire.Evidence]{Items: []wire.Evidence{}}
	hide := false
	err = s.walk(q.Context(), id, func(_ eventstore.Event, d domain.Event) (bool, error) {
		if scan, ok := d.(domain.ScanFailed); ok {
			hide = !scan.TextsAreClean()
		}
		e, ok := d.(domain.EvidenceRecorded)
		if !ok {
			return true, nil
		}
		detail, err := s.text(q.Context(), e.Detail)
		page.Items = append(page.Items, wire.Evidence{ID: e.ID, Name: e.Name, Type: e.Type, Capability: e.Capability, Result: e.Result,
			Source: e.Source, ObservedAt: e.ObservedAt, Detail: detail})
		return true, err
	})
	if err != nil {
		return err
	}
	for i := range page.Items {
		if hide {
			page.Items[i].Detail = ""
		}
	}
	return q.json(http.StatusOK, page)
}

// text reads a text of the ledger; "" if there is none or it was erased.
func (s *server) text(ctx context.Context, ref domain.TextRef) (string, error) {
	if ref == "" {
		return "", nil
	}
	b, err := s.textBytes(ctx, ref)
	if errors.Is(err, eventstore.ErrErased) {
		return "", nil
	}
	return string(b), err
}

func (s *server) textBytes(ctx context.Context, ref domain.TextRef) ([]byte, error) {
	var d eventstore.Digest
	if n, err := hex.Decode(d[:], []byte(ref)); err != nil || n != len(d) {
		return nil, fmt.Errorf("text reference %q is no SHA-256", ref)
	}
	t, err := s.Streams.ReadText(ctx, d)
	return t.Bytes, err
}

// getJobSpec gives the bytes that were accepted.
func (s *server) getJobSpec(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	v, err := s.Reads.Attempt(q.Context(), id)
	if err != nil {
		return err
	}
	if quarantined(v) {
		return artifacts.ErrQuarantined // the secret that was found may stand in it
	}
	b, err := s.textBytes(q.Context(), domain.TextRef(v.SpecText))
	if err != nil {
		return err
	}
	return q.immutable(mediaJSON, b)
}

// lastVerdict is the latest policy verdict in the attempt's stream. Events keep
// codes only; the details of a refusal come from deciding again, with the bundle
// and on the input that the event names.
func (s *server) lastVerdict(ctx context.Context, id domain.AttemptID) (*wire.PolicyVerdict, error) {
	var out *wire.PolicyVerdict
	var spec domain.TextRef
	var input string
	err := s.walk(ctx, id, func(_ eventstore.Event, d domain.Event) (bool, error) {
		if c, ok := d.(domain.Created); ok {
			spec = c.SpecText
		}
		if p, ok := d.(domain.PolicyDecided); ok {
			input = p.InputDigest
			out = &wire.PolicyVerdict{Verdict: p.Verdict, BundleDigest: p.BundleDigest, Rules: list(p.Rules), Reasons: []wire.PolicyReason{}}
			for _, code := range p.Reasons {
				out.Reasons = append(out.Reasons, wire.PolicyReason{Code: code})
			}
		}
		return true, nil
	})
	if err == nil && out != nil && out.Verdict == "deny" {
		if v := s.redecided(ctx, spec, out.BundleDigest); v != nil && v.InputDigest == input {
			out = verdictOf(*v)
		}
	}
	return out, err
}

// redecided decides again; nil where the bundle or the spec cannot be had now: the
// codes say enough then.
func (s *server) redecided(ctx context.Context, spec domain.TextRef, digest string) *policy.Verdict {
	archive, err := s.Policies.Archive(ctx, digest)
	if err != nil {
		return nil
	}
	b, err := policy.Open(archive)
	if err != nil {
		return nil
	}
	v, err := s.Commands.Redecide(ctx, string(spec), b)
	if err != nil {
		return nil
	}
	return &v
}

// idleFeed waits a moment before the feed is looked at again.
func (s *server) idleFeed(ctx context.Context) error { return sleep(ctx, s.PollEvery) }

// idleAttempt waits a moment, or until the attempt ends.
func (s *server) idleAttempt(id domain.AttemptID) func(context.Context) error {
	return func(ctx context.Context) error {
		began := time.Now()
		a, err := s.Dispatch.WaitEnd(ctx, id, s.PollEvery)
		if err != nil || a.Phase != domain.PhaseClosed {
			return err
		}
		// An attempt that has ended is answered at once; what its last events name
		// may still be on its way to be read.
		return sleep(ctx, max(0, min(s.PollEvery, 50*time.Millisecond)-time.Since(began)))
	}
}
