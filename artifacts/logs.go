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

// Logs serves what was stored: the same bytes before and after sealing.
type Logs struct {
	Store   eventstore.Store
	Reads   *projections.Reader
	Objects Objects
}

const chunksPerRead = 16

// Read returns up to limit content bytes of a stream from offset on. complete
// says that the attempt has ended and nothing follows what was returned. An offset
// beyond what is stored is domain.ErrLogOffset while more may come too.
func (l *Logs) Read(ctx context.Context, id domain.AttemptID, stream string, offset int64, limit int) (data []byte, complete bool, err error) {
	s, err := bundle.ParseStream(stream)
	if err != nil {
		return nil, false, &domain.Error{Kind: domain.KindMalformed, Code: "log_stream", Message: err.Error()}
	}
	// The state is read before the chunks: if it has ended here, the chunks read
	// afterwards are all there are.
	v, err := l.Reads.Attempt(ctx, id)
	if err != nil {
		return nil, false, err
	}
	chunks, err := l.Reads.LogChunks(ctx, id, stream, offset, chunksPerRead)
	if err != nil {
		return nil, false, err
	}
	if len(chunks) == 0 && offset > 0 {
		if err := l.within(ctx, id, stream, offset); err != nil {
			return nil, false, err
		}
	}
	at, more := offset, false
	for n, c := range chunks {
		if c.LogOffset > at {
			return nil, false, fmt.Errorf("log %s of %s: nothing is stored from %d to %d", stream, id, at, c.LogOffset)
		}
		content, err := l.chunk(ctx, s, c)
		if err != nil {
			return nil, false, err
		}
		part := content[at-c.LogOffset:]
		if room := limit - len(data); len(part) > room {
			part, more = part[:room], true
		}
		data = append(data, part...)
		at += int64(len(part))
		if more || len(data) == limit {
			more = more || n < len(chunks)-1
			break
		}
	}
	if len(chunks) == chunksPerRead {
		more = true
	}
	return data, v.Phase == string(domain.PhaseClosed) && !more, nil
}

// within refuses an offset that lies beyond what is stored.
func (l *Logs) within(ctx context.Context, id domain.AttemptID, stream string, offset int64) error {
	have, err := l.Reads.LogEnd(ctx, id, stream)
	if err == nil && offset > have {
		err = domain.ErrLogOffset.With("offset", have)
	}
	return err
}

// chunk reads a chunk back and checks it against the ledger's digest.
func (l *Logs) chunk(ctx context.Context, s bundle.Stream, c projections.LogChunk) ([]byte, error) {
	b, err := readObject(ctx, l.Objects, c.ObjectKey, c.ObjectBytes)
	if err != nil {
		return nil, err
	}
	if got := bundle.Sum(b).String(); got != c.SHA256 {
		return nil, fmt.Errorf("log chunk %s: its SHA-256 is %s, the ledger says %s; run execution-plane verify", c.ObjectKey, got, c.SHA256)
	}
	chunk, err := bundle.DecodeChunk(s, c.LogOffset, b)
	if err != nil {
		return nil, err
	}
	return chunk.Content(), nil
}

func readObject(ctx context.Context, o Objects, key string, size int64) ([]byte, error) {
	r, err := o.Get(ctx, key, 0, size)
	if err != nil {
		return nil, storageError("read "+key, err)
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return nil, storageError("read "+key, err)
	}
	return b, nil
}

// Manifest returns the sealed manifest's bytes: from the stream alone where the
// bundle is empty, from object storage otherwise, checked against the ledger.
func (l *Logs) Manifest(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	facts, err := readStream(ctx, l.Store, id)
	if err != nil {
		return nil, err
	}
	var created domain.Created
	var code domain.FailureCode
	var sealed *domain.Sealed
	for _, f := range facts {
		switch e := f.Event.(type) {
		case domain.Created:
			created = e
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
		return nil, &domain.Error{Kind: domain.KindNotFound, Code: "bundle_not_sealed", Message: "the bundle is not sealed yet", Next: "wait for the attempt's end: GET …/result?wait=30"}
	}
	if sealed.State == string(bundle.Empty) {
		m, err := domain.EmptyManifest(created.AttemptID, created.OperationID, created.PlanNodeID, created.SpecDigest, code)
		if err != nil {
			return nil, err
		}
		return m.Encode()
	}
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
		return nil, fmt.Errorf("manifest of %s: its SHA-256 is not the ledger's; run execution-plane verify", id)
	}
	return b, nil
}

// stored is a decoded event with its envelope.
type stored struct {
	domain.Fact
	Raw eventstore.Event
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
	facts := make([]domain.Fact, len(all))
	for i, s := range all {
		facts[i] = s.Fact
	}
	return domain.ResultOf(facts)
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
