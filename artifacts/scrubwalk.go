package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// scrubWalk goes over attempts and their objects from a place on.
type scrubWalk struct {
	s    *Scrubber
	from Objects // s.Objects, where a silent store does not hold the walk
	pace *pacer
	meta func() commands.Meta
	at   projections.ScrubProgress
	buf  []byte

	keep  func(context.Context, projections.ScrubProgress) error // nil: the place is not kept
	saved time.Time

	report   *ScrubReport // nil: findings are recorded only
	progress func(ScrubReport)
}

func (s *Scrubber) walk(bytesPerSecond int64) *scrubWalk {
	stalls := s.Stalls
	if stalls <= 0 {
		stalls = stallsAfter
	}
	return &scrubWalk{s: s, from: watched{s.Objects, stalls}, pace: &pacer{rate: float64(bytesPerSecond)}, meta: commands.Scrubber, buf: make([]byte, 64<<10)}
}

// save keeps the place, if it is to be kept.
func (w *scrubWalk) save(ctx context.Context) error {
	if w.keep == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, letGoTime)
	defer cancel()
	w.saved = time.Now()
	return w.keep(ctx, w.at)
}

// all goes over the attempts behind the place, in the order of their ids. An
// attempt whose objects were not all looked at is gone on with.
func (w *scrubWalk) all(ctx context.Context) error {
	if w.at.ObjectKey != "" {
		id := domain.NewID[domain.AttemptID](w.at.AttemptID)
		v, err := w.s.Reads.Attempt(ctx, id)
		if err == nil {
			err = w.attempt(ctx, id, v.Phase == string(domain.PhaseClosed))
		}
		if err != nil {
			return err
		}
	}
	for {
		page, err := w.s.Reads.ScrubAttempts(ctx, w.at.AttemptID, scrubPage)
		if err != nil {
			return err
		}
		for _, a := range page {
			if err := w.attempt(ctx, domain.NewID[domain.AttemptID](a.AttemptID), a.Sealed); err != nil {
				return err
			}
		}
		if len(page) < scrubPage {
			return nil
		}
	}
}

// attempt looks at one attempt's objects: chunks and artifacts, then the manifest
// and what else it names. The place moves with each chunk and artifact, and behind
// the attempt when all is done.
func (w *scrubWalk) attempt(ctx context.Context, id domain.AttemptID, sealed bool) error {
	standing, err := w.s.Reads.ScrubFindings(ctx, id)
	if err != nil {
		return err
	}
	known := make(map[string]string, len(standing))
	for _, f := range standing {
		known[f.ObjectKey] = f.Problem
	}
	after := ""
	if w.at.AttemptID == id.UUID() {
		after = w.at.ObjectKey
	}
	for {
		page, err := w.s.Reads.NamedObjects(ctx, id, after, scrubPage)
		if err != nil {
			return err
		}
		for _, o := range page {
			if _, err := w.object(ctx, id, known, o.ObjectKey, o.Bytes, o.SHA256); err != nil {
				return err
			}
			after = o.ObjectKey
			if err := w.moveTo(ctx, id, after); err != nil {
				return err
			}
		}
		if len(page) < scrubPage {
			break
		}
	}
	if sealed {
		if err := w.bundle(ctx, id, known); err != nil {
			return err
		}
	}
	if w.report != nil {
		w.report.Attempts++
		w.tell()
	}
	return w.moveTo(ctx, id, "")
}

// moveTo sets the place, and keeps it now and then.
func (w *scrubWalk) moveTo(ctx context.Context, id domain.AttemptID, key string) error {
	w.at.AttemptID, w.at.ObjectKey = id.UUID(), key
	if time.Since(w.saved) < keepScrubEvery {
		return nil
	}
	return w.save(ctx)
}

// bundle looks at the manifest of a sealed attempt and at the files that only it
// names.
func (w *scrubWalk) bundle(ctx context.Context, id domain.AttemptID, known map[string]string) error {
	sealed, derived, err := w.seal(ctx, id)
	if err != nil {
		return err
	}
	sum, err := bundle.ParseSHA256(sealed.ManifestSHA256)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", id, err)
	}
	op, node, err := w.s.Reads.Node(ctx, id)
	if err != nil {
		return err
	}
	key := bundle.ManifestKey(bundle.Prefix(op.UUID(), node, id.UUID()), sum)
	if derived {
		// Such a manifest is written after its event; until then it is not missing.
		if written, err := w.s.Reads.ReachedBy(ctx, emptyReader, id); err != nil || !written {
			return err
		}
	}
	if right, err := w.object(ctx, id, known, key, -1, sum.String()); err != nil || !right || derived {
		return err
	}
	raw, err := readObject(ctx, w.from, key, bundle.MaxManifest)
	if err != nil {
		return err
	}
	m, err := bundle.DecodeManifest(raw)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", id, err)
	}
	for _, o := range m.Objects {
		switch o.Kind {
		case bundle.KindJobSpec, bundle.KindEnvironment, bundle.KindEvents:
			if _, err := w.object(ctx, id, known, o.Key, o.Bytes, o.SHA256.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// seal reads an attempt's sealing event, and whether the manifest is a function of
// the stream: the last four events tell, however long the stream is.
func (w *scrubWalk) seal(ctx context.Context, id domain.AttemptID) (sealed domain.Sealed, derived bool, err error) {
	head, err := w.s.Store.Load(ctx, commands.AttemptStream(id), uuid.Nil)
	if err != nil {
		return sealed, false, err
	}
	events, err := w.s.Store.ReadStream(ctx, commands.AttemptStream(id), max(0, head.Head.Version-4), 4)
	if err != nil {
		return sealed, false, err
	}
	for _, e := range events {
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		if err != nil {
			return sealed, false, err
		}
		switch d := d.(type) {
		case domain.SealForced:
			derived = true
		case domain.Sealed:
			sealed = d
		}
	}
	return sealed, derived || sealed.State == string(bundle.Empty), nil
}

// object looks at one object, records what is news of it, and says whether it is
// right. A negative size is not known.
func (w *scrubWalk) object(ctx context.Context, id domain.AttemptID, known map[string]string, key string, size int64, sum string) (right bool, err error) {
	found := domain.ScrubFailed{AttemptID: id, Key: key, SHA256: sum}
	if size >= 0 {
		found.Bytes = &size
	}
	if err := w.look(ctx, &found); err != nil {
		return false, err
	}
	if found.Problem != known[key] {
		if err := w.note(ctx, found, known[key]); err != nil {
			return false, err
		}
	}
	w.s.objects.Add(1)
	w.at.Objects++
	right = found.Problem == ""
	if w.report == nil {
		return right, nil
	}
	w.report.Objects++
	switch {
	case right:
	case len(w.report.Findings) < maxScrubFindings:
		w.report.Findings = append(w.report.Findings, found)
	default:
		w.report.Omitted++
	}
	w.tell()
	return right, nil
}

func (w *scrubWalk) note(ctx context.Context, found domain.ScrubFailed, stood string) error {
	changed, err := w.s.Commands.NoteScrub(ctx, w.meta(), found, func(ctx context.Context) (string, error) {
		return w.s.Reads.ScrubProblem(ctx, found.AttemptID, found.Key)
	})
	if err != nil || !changed {
		return err
	}
	if found.Problem == "" {
		w.s.Log.InfoContext(ctx, "a stored object is right again", "attempt_id", found.AttemptID.String(), "key", found.Key, "problem", stood)
		if w.report != nil && len(w.report.Healed) < maxScrubFindings {
			w.report.Healed = append(w.report.Healed, domain.ScrubHealed{AttemptID: found.AttemptID, Key: found.Key, Problem: stood})
		}
		return nil
	}
	w.s.Log.ErrorContext(ctx, "a stored object is not what the ledger says; restore it under its key from a copy of the bucket, then run: execution-plane scrub --attempt "+found.AttemptID.String(),
		"attempt_id", found.AttemptID.String(), "key", found.Key, "problem", found.Problem, "sha256", found.SHA256, "found_sha256", found.FoundSHA256)
	return nil
}

func (w *scrubWalk) tell() {
	if w.progress != nil {
		w.progress(*w.report)
	}
}

const scrubTries = 4

// look reads an object and sets what is wrong with it. An error means that nothing
// is known: the store is away. A store that serves other objects and not this one
// is not away. Whatever answers in place of a store that is away, such as a proxy
// with pages of its own, does not give back what was stored: it finds nothing.
func (w *scrubWalk) look(ctx context.Context, found *domain.ScrubFailed) error {
	for try := 1; ; try++ {
		err := w.compare(ctx, found)
		if err == nil && found.Problem == "" {
			return nil
		}
		perr := w.probe(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("look at %s: %w", found.Key, ctx.Err())
		case perr != nil:
			return doesNotAnswer(fmt.Errorf("look at %s: %w", found.Key, errors.Join(err, perr)))
		}
		if err == nil {
			return nil
		}
		if try == scrubTries {
			found.Problem = domain.ScrubUnreadable
			return nil
		}
		if !pause(ctx, time.Duration(try)*200*time.Millisecond, nil) {
			return ctx.Err()
		}
	}
}

func (w *scrubWalk) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stallsAfter)
	defer cancel()
	return w.s.Objects.Probe(ctx)
}

func (w *scrubWalk) compare(ctx context.Context, found *domain.ScrubFailed) error {
	found.Problem, found.FoundSHA256, found.FoundBytes = "", "", nil
	if err := w.pace.spend(ctx, objectCost); err != nil {
		return err
	}
	r, err := w.from.Get(ctx, found.Key, 0, -1)
	if errors.Is(err, objects.ErrNotFound) {
		found.Problem = domain.ScrubMissing
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	h := sha256.New()
	var n int64
	for {
		some, err := r.Read(w.buf)
		h.Write(w.buf[:some])
		n += int64(some)
		w.s.bytes.Add(int64(some))
		w.at.Bytes += int64(some)
		if w.report != nil {
			w.report.Bytes += int64(some)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.pace.spend(ctx, int64(some))
		}
		if err != nil {
			return err
		}
	}
	sum := hex.EncodeToString(h.Sum(nil))
	switch {
	case found.Bytes != nil && n != *found.Bytes:
		found.Problem = domain.ScrubWrongSize
	case sum != found.SHA256:
		found.Problem = domain.ScrubWrongDigest
	default:
		return nil
	}
	found.FoundSHA256, found.FoundBytes = sum, &n
	return nil
}

// pacer spreads bytes over time: so many a second, and what was not used for a
// second at once.
type pacer struct {
	rate float64
	next time.Time // when all that was spent is paid for
}

func (p *pacer) spend(ctx context.Context, bytes int64) error {
	now := time.Now()
	if least := now.Add(-time.Second); p.next.Before(least) {
		p.next = least
	}
	p.next = p.next.Add(time.Duration(float64(bytes) / p.rate * float64(time.Second)))
	if wait := p.next.Sub(now); wait > 0 && !pause(ctx, wait, nil) {
		return ctx.Err()
	}
	return ctx.Err()
}
