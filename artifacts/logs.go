package artifacts

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Logs serves what was stored: the same bytes before and after sealing. Its memory
// is bounded, whatever is read and by how many. It is not to be copied.
type Logs struct {
	Store   eventstore.Store
	Reads   *projections.Reader
	Objects Objects

	chunks chunkCache
}

// within refuses an offset that lies beyond what is stored.
func (l *Logs) within(ctx context.Context, id domain.AttemptID, stream string, offset int64) error {
	have, err := l.Reads.LogEnd(ctx, id, stream)
	if err == nil && offset > have {
		err = domain.ErrLogOffset.With("offset", have)
	}
	return err
}

func readObject(ctx context.Context, o Objects, key string, size int64) ([]byte, error) {
	r, err := o.Get(ctx, key, 0, size)
	if err != nil {
		return nil, readError(key, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, size+1))
	return b, readError(key, err)
}

// ErrQuarantined refuses every read of a bundle whose scan failed, to everybody.
var ErrQuarantined = &domain.Error{Kind: domain.KindForbidden, Code: "bundle_quarantined",
	Message: "the bundle is quarantined: its scan for secrets failed, so nobody can download it here",
	Next:    "GET …/events tells in scan_failed what was found and where; who has the right to the bucket itself can read the objects there, see Quarantine in docs/operations.md"}

// Manifest returns the sealed manifest's bytes: from the stream alone where the
// bundle is empty or was sealed by an operator, from object storage otherwise,
// checked against the ledger. ErrQuarantined where the scan failed.
func (l *Logs) Manifest(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	all, err := readStream(ctx, l.Store, id)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if _, failed := f.Event.(domain.ScanFailed); failed {
			return nil, ErrQuarantined
		}
	}
	b, _, err := l.manifest(ctx, id, all)
	return b, err
}

// manifest is Manifest for a stream that was read. derived says that the bytes are
// a function of the stream and did not come from object storage.
func (l *Logs) manifest(ctx context.Context, id domain.AttemptID, all []stored) (b []byte, derived bool, err error) {
	var created domain.Created
	var code domain.FailureCode
	var sealed *domain.Sealed
	forced := false
	for _, f := range all {
		switch e := f.Event.(type) {
		case domain.Created:
			created = e
		case domain.SealForced:
			forced = true
		case domain.Sealed:
			sealed = &e
		case domain.Failed:
			code = e.FailureCode
		case domain.Cancelled:
			code = e.FailureCode
		case domain.TimedOut:
			code = e.FailureCode
		}
	}
	if sealed == nil {
		return nil, false, &domain.Error{Kind: domain.KindNotFound, Code: "bundle_not_sealed", Message: "the bundle is not sealed yet", Next: "wait for the attempt's end: GET …/result?wait=30"}
	}
	var m bundle.Manifest
	switch {
	case sealed.State == string(bundle.Empty):
		m, err = domain.EmptyManifest(created.AttemptID, created.OperationID, created.PlanNodeID, created.SpecDigest, code)
		derived = true
	case forced:
		m, err = domain.UnverifiedManifest(factsOf(all))
		derived = true
	}
	if derived {
		if err == nil {
			b, err = m.Encode()
		}
		if err == nil && bundle.Sum(b).String() != sealed.ManifestSHA256 {
			err = fmt.Errorf("manifest of %s: made from the stream it has SHA-256 %s, the ledger says %s; run execution-plane verify", id, bundle.Sum(b), sealed.ManifestSHA256)
		}
		return b, true, err
	}
	b, err = l.storedManifest(ctx, created, *sealed)
	return b, false, err
}

// storedManifest reads a manifest that the sealer wrote.
func (l *Logs) storedManifest(ctx context.Context, created domain.Created, sealed domain.Sealed) ([]byte, error) {
	sum, err := bundle.ParseSHA256(sealed.ManifestSHA256)
	if err != nil {
		return nil, err
	}
	key := bundle.ManifestKey(bundle.Prefix(created.OperationID.UUID(), created.PlanNodeID, created.AttemptID.UUID()), sum)
	b, err := readObject(ctx, l.Objects, key, bundle.MaxManifest)
	if err != nil {
		return nil, err
	}
	if bundle.Sum(b) != sum {
		return nil, fmt.Errorf("manifest of %s: its SHA-256 is not the ledger's; run execution-plane scrub", created.AttemptID)
	}
	return b, nil
}

// stored is a decoded event with its envelope.
type stored struct {
	domain.Fact
	Raw eventstore.Event
}

func factsOf(all []stored) []domain.Fact {
	out := make([]domain.Fact, len(all))
	for i, s := range all {
		out[i] = s.Fact
	}
	return out
}

// readStream reads and decodes an attempt's whole stream.
func readStream(ctx context.Context, store eventstore.Store, id domain.AttemptID) ([]stored, error) {
	var out []stored
	for {
		events, err := store.ReadStream(ctx, eventstore.StreamID("attempt/"+id.String()), int64(len(out)), 500)
		if err != nil {
			return nil, err
		}
		if len(events) == 0 {
			if len(out) == 0 {
				return nil, domain.ErrUnknownAttempt
			}
			return out, nil
		}
		for _, e := range events {
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				return nil, err
			}
			out = append(out, stored{domain.Fact{Event: d, At: e.Time}, e})
		}
	}
}

// Result folds the attempt's stream into its ExecutionResult; the error of
// domain.ResultOf if it has not ended.
func (l *Logs) Result(ctx context.Context, id domain.AttemptID) (domain.ExecutionResult, error) {
	all, err := readStream(ctx, l.Store, id)
	if err != nil {
		return domain.ExecutionResult{}, err
	}
	return domain.ResultOf(factsOf(all))
}

// text reads a text by its ref; nil if it was erased.
func text(ctx context.Context, store eventstore.Store, ref domain.TextRef) ([]byte, error) {
	if ref == "" {
		return nil, nil
	}
	var d eventstore.Digest
	if n, err := hex.Decode(d[:], []byte(ref)); err != nil || n != len(d) {
		return nil, fmt.Errorf("text ref %q is not 64 hex digits", ref)
	}
	t, err := store.ReadText(ctx, d)
	if err != nil {
		return nil, err
	}
	return t.Bytes, nil
}
