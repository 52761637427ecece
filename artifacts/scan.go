package artifacts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

const (
	scanner      = "fingerprint/1"
	scanLongest  = 10 * time.Minute
	scanPiece    = 64 << 10 // bytes between two looks at the clock
	scanMostText = 100      // names that one verdict tells
	manifestName = "manifest.json"
)

// Errors that end a scan with a verdict; every other one ends it without.
var (
	errScanTime = errors.New("the time for the scan is over")
	errGone     = errors.New("not in object storage as the ledger names it")
)

// scanning looks for fingerprints in everything that an attempt left behind.
type scanning struct {
	s       *sealing
	finder  *fingerprint.Scanner
	until   time.Time
	buf     []byte
	verdict domain.ScanVerdict
}

// scan gives the verdict on a bundle that was built; nil where the attempt had no
// secret. What has prints is scanned although no event tells of a secret: a secret
// artifact that could not be stored, for example. Object storage or a database that
// is away is an error and no verdict.
func (s *sealing) scan(manifest []byte) (*domain.ScanVerdict, error) {
	f, found, err := s.w.Reads.Fingerprints(s.ctx, s.a.ID)
	if err != nil {
		return nil, err
	}
	if !s.a.NeedsScan() && len(f.Prints) == 0 {
		return nil, nil
	}
	if !found || !f.Sent || s.w.Keys == nil || f.Key != s.w.Keys.ID() || len(f.Prints) == 0 && s.hidSomething() {
		return &domain.ScanVerdict{Reason: domain.ScanFingerprintsLost}, nil
	}
	limit := s.w.scanLimit()
	x := &scanning{s: s, finder: fingerprint.NewScanner(s.w.Keys.Of(s.a.ID), f.Prints), until: time.Now().Add(limit), buf: make([]byte, scanPiece)}
	x.verdict.Scan = domain.Scan{Scanner: scanner, Prints: len(f.Prints), Certain: f.Certain}
	if err := x.all(manifest); err != nil {
		return nil, err
	}
	x.verdict.Scan.Bytes = x.finder.Bytes()
	x.verdict.Hits = x.finder.Hits()
	if x.verdict.Hits > 0 {
		x.verdict.Reason = domain.ScanSecretFound
	}
	x.verdict.Found = fewer(x.verdict.Found)
	x.verdict.Scan.Skipped = fewer(x.verdict.Scan.Skipped)
	crashpoint.Here("scan.done")
	return &x.verdict, nil
}

// hidSomething says that a secret was read which has prints: one that the policy did
// not let through as too short to be masked.
func (s *sealing) hidSomething() bool {
	return slices.ContainsFunc(s.events, func(e stored) bool {
		r, ok := e.Event.(domain.SecretResolved)
		return ok && !r.Unmasked && len(r.Weak) == 0 // a weak value has no prints
	})
}

// fewer bounds what one event tells.
func fewer(names []string) []string {
	if len(names) <= scanMostText {
		return names
	}
	return append(names[:scanMostText:scanMostText], fmt.Sprintf("and %d more", len(names)-scanMostText))
}

// all reads what is small and shown most often first: if time runs out, the rest
// is what nobody can be shown.
func (x *scanning) all(manifest []byte) error {
	steps := []struct {
		name string
		read func() error
	}{
		{domain.ScannedTexts, x.texts},
		{domain.ScannedEvents, x.events},
		{manifestName, func() error { return x.bytes(manifest) }},
	}
	for _, step := range steps {
		if over, err := x.part(step.name, step.read); err != nil || over {
			return err
		}
	}
	x.verdict.Scan.Objects++ // the manifest
	for _, stream := range bundle.Streams() {
		if over, err := x.part(logName(stream), func() error { return x.log(stream) }); err != nil || over {
			return err
		}
	}
	encrypted := x.encrypted()
	for i, o := range x.s.m.Objects {
		if o.Kind == bundle.KindLog || isArtifact(o) && slices.Contains(encrypted, o.Name) {
			continue
		}
		name := x.safeName(o, i)
		if over, err := x.part(name, func() error { return x.object(o) }); err != nil || over {
			return err
		}
	}
	return nil
}

// part reads one part and notes what was found in it. over says that the verdict
// stands and nothing more is read.
func (x *scanning) part(name string, read func() error) (over bool, err error) {
	before := x.finder.Hits()
	x.finder.Next()
	err = read()
	if x.finder.Hits() > before && !slices.Contains(x.verdict.Found, name) {
		x.verdict.Found = append(x.verdict.Found, name)
	}
	switch {
	case errors.Is(err, errScanTime):
		x.verdict.Reason = domain.ScanTimeExceeded
		x.verdict.Scan.Skipped = append(x.verdict.Scan.Skipped, name, "what follows it")
		return true, nil
	case errors.Is(err, errGone):
		x.verdict.Reason = domain.ScanUnreadable
		x.verdict.Scan.Skipped = append(x.verdict.Scan.Skipped, name+": not as the ledger names it")
		return false, nil
	}
	return false, err
}

// bytes scans b as the next bytes of the stream at hand.
func (x *scanning) bytes(b []byte) error {
	for piece := range slices.Chunk(b, scanPiece) {
		if !time.Now().Before(x.until) {
			return errScanTime
		}
		_, _ = x.finder.Write(piece) // never fails
	}
	return x.s.ctx.Err()
}

// document scans a text as it is, and the strings of a JSON document without their
// escapes.
func (x *scanning) document(b []byte) error {
	x.finder.Next()
	if err := x.bytes(b); err != nil || !bytes.ContainsRune(b, '\\') {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		t, err := d.Token()
		if err != nil {
			return nil // at its end, or no JSON
		}
		if text, ok := t.(string); ok {
			x.finder.Next()
			if err := x.bytes([]byte(text)); err != nil {
				return err
			}
		}
	}
}

// texts scans what the events refer to. A text that was erased is none.
func (x *scanning) texts() error {
	read := map[domain.TextRef]bool{}
	for _, e := range x.s.events {
		var refs []domain.TextRef
		domain.EachText(e.Event, func(ref domain.TextRef) { refs = append(refs, ref) })
		for _, ref := range refs {
			if read[ref] {
				continue
			}
			read[ref] = true
			b, err := text(x.s.ctx, x.s.w.Store, ref)
			if errors.Is(err, eventstore.ErrErased) {
				continue
			}
			if err == nil {
				err = x.document(b)
			}
			if err != nil {
				return err
			}
			x.verdict.Scan.Texts++
		}
	}
	return nil
}

// events scans the stream with its envelopes.
func (x *scanning) events() error {
	var line []byte
	for _, e := range x.s.events {
		var err error
		if line, err = eventstore.AppendLine(line[:0], e.Raw); err != nil {
			return err
		}
		x.finder.Next()
		if err := x.bytes(line); err != nil {
			return err
		}
		if err := x.document(e.Raw.Payload); err != nil {
			return err
		}
		x.verdict.Scan.Events++
	}
	return nil
}

// log scans a log's content over the borders of its chunks.
func (x *scanning) log(stream bundle.Stream) error {
	for _, o := range x.s.m.Objects {
		if o.Log == nil || o.Log.Stream != stream {
			continue
		}
		content, err := x.s.chunk(o)
		if err == nil {
			err = x.bytes(content)
		}
		if err != nil {
			return gone(err)
		}
		x.verdict.Scan.Objects++
	}
	return nil
}

// object scans an object as it is stored, and compares it with the ledger: what is
// put right afterwards would be something that nobody has scanned.
func (x *scanning) object(o bundle.Object) error {
	r, err := x.s.objects.Get(x.s.ctx, o.Key, 0, -1)
	if err != nil {
		return gone(readError(o.Key, err))
	}
	defer r.Close()
	h := sha256.New()
	var size int64
	for {
		n, err := r.Read(x.buf)
		size += int64(n)
		h.Write(x.buf[:n])
		if err := x.bytes(x.buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return gone(readError(o.Key, err))
		}
	}
	if got := bundle.SHA256(h.Sum(nil)); size != o.Bytes || got != o.SHA256 {
		return errGone
	}
	x.verdict.Scan.Objects++
	return nil
}

// gone marks the failures that waiting does not mend.
func gone(err error) error {
	if errors.Is(err, objects.ErrNotFound) || errors.Is(err, objects.ErrRange) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// encrypted lists the artifacts whose bytes only Vault can open, and notes that
// they were not read.
func (x *scanning) encrypted() (names []string) {
	for i, e := range x.s.events {
		if a, ok := e.Event.(domain.ArtifactCreated); ok && a.Storage == domain.StorageVault {
			names = append(names, a.Name)
			x.verdict.Scan.Skipped = append(x.verdict.Scan.Skipped, x.safeName(bundle.Object{Name: a.Name, Kind: bundle.KindArtifact}, i)+": encrypted")
		}
	}
	return names
}

// safeName is an object's name for the verdict, which must not tell what it found in
// one, and in which an artifact is not taken for another part.
func (x *scanning) safeName(o bundle.Object, i int) string {
	before := x.finder.Hits()
	x.finder.Next()
	_, _ = x.finder.Write([]byte(o.Name)) // never fails
	switch {
	case x.finder.Hits() > before:
		return fmt.Sprintf("object %d (its name is withheld)", i+1)
	case isArtifact(o) && slices.Contains(partNames, o.Name):
		return "artifact " + o.Name
	}
	return o.Name
}

// isArtifact tells what the runner named from what the service did.
func isArtifact(o bundle.Object) bool {
	return o.Kind == bundle.KindArtifact || o.Kind == bundle.KindOutput
}

// partNames are the names of what every attempt has.
var partNames = []string{domain.ScannedTexts, domain.ScannedEvents, manifestName, "job_spec.json", "environment.json", "events.jsonl", "stdout", "stderr", "events log"}

// logName is a log's name in a verdict: the stream of events is not the attempt's own.
func logName(s bundle.Stream) string {
	if s == bundle.Events {
		return "events log"
	}
	return string(s)
}

// scanLimit is how long one bundle may be scanned.
func (w *Sealer) scanLimit() time.Duration {
	if w.ScanLimit > 0 {
		return w.ScanLimit
	}
	return scanLongest
}

// buildAndScan makes an attempt's bundle and the verdict on it.
func (w *Sealer) buildAndScan(ctx context.Context, a domain.Attempt) (domain.Seal, error) {
	s, manifest, sealed, err := w.build(ctx, a)
	if err != nil {
		return domain.Seal{}, err
	}
	verdict, err := s.scan(manifest)
	if err != nil {
		return domain.Seal{}, fmt.Errorf("scan the bundle of %s: %w", a.ID, err)
	}
	return domain.Seal{Sealed: sealed, Scan: verdict}, nil
}
