package artifacts

import (
	"context"
	"fmt"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// chunksPerPart bounds what one part takes from the log index.
const chunksPerPart = 16

// LogPart is a part of a log that is about to be read. It holds places and no
// bytes: whoever reads it slowly, or not to its end, holds no memory and no
// connection.
type LogPart struct {
	Bytes int64 // content bytes from the offset on
	// Complete says that the attempt has ended and nothing follows this part.
	Complete bool
	// Next copies the next bytes, as many as into has room for, or all that are left;
	// no bytes and no error at the part's end.
	Next func(ctx context.Context, into []byte) (int, error)
}

// Part finds up to limit content bytes of a stream from offset on. An offset beyond
// what is stored is domain.ErrLogOffset while more may come too. The log of a bundle
// whose scan failed is ErrQuarantined.
func (l *Logs) Part(ctx context.Context, id domain.AttemptID, stream string, offset, limit int64) (LogPart, error) {
	s, err := bundle.ParseStream(stream)
	if err != nil {
		return LogPart{}, &domain.Error{Kind: domain.KindMalformed, Code: "log_stream", Message: err.Error()}
	}
	// The state is read before the chunks: if it has ended here, the chunks read
	// afterwards are all there are.
	v, err := l.Reads.Attempt(ctx, id)
	if err != nil {
		return LogPart{}, err
	}
	if v.BundleState != nil && *v.BundleState == domain.BundleQuarantined {
		return LogPart{}, ErrQuarantined
	}
	chunks, err := l.Reads.LogChunks(ctx, id, stream, offset, chunksPerPart)
	if err != nil {
		return LogPart{}, err
	}
	if len(chunks) == 0 && offset > 0 {
		if err := l.within(ctx, id, stream, offset); err != nil {
			return LogPart{}, err
		}
	}
	end := offset
	for _, c := range chunks {
		if c.LogOffset > end {
			return LogPart{}, fmt.Errorf("log %s of %s: nothing is stored from %d to %d", stream, id, end, c.LogOffset)
		}
		end = c.LogOffset + c.Bytes
	}
	p := LogPart{Bytes: min(end-offset, limit)}
	p.Complete = v.Phase == string(domain.PhaseClosed) && len(chunks) < chunksPerPart && p.Bytes == end-offset
	p.Next = (&partReader{l, s, chunks, offset, offset + p.Bytes}).next
	return p, nil
}

// partReader reads the chunks of a part through the cache.
type partReader struct {
	l       *Logs
	s       bundle.Stream
	chunks  []projections.LogChunk
	at, end int64
}

func (r *partReader) next(ctx context.Context, into []byte) (n int, err error) {
	into = into[:min(int64(len(into)), r.end-r.at)]
	for n < len(into) {
		for r.chunks[0].LogOffset+r.chunks[0].Bytes <= r.at {
			r.chunks = r.chunks[1:]
		}
		c := r.chunks[0]
		some, err := r.l.chunks.read(ctx, r.l.Objects, r.s, c, r.at, into[n:])
		if err == nil && some == 0 {
			err = fmt.Errorf("log chunk %s holds less than the ledger says; run execution-plane scrub", c.ObjectKey)
		}
		if err != nil {
			return n, err
		}
		n += some
		r.at += int64(some)
	}
	return n, nil
}

// Read returns up to limit content bytes, as Part finds them, in memory of their
// own.
func (l *Logs) Read(ctx context.Context, id domain.AttemptID, stream string, offset int64, limit int) (data []byte, complete bool, err error) {
	p, err := l.Part(ctx, id, stream, offset, int64(limit))
	if err != nil {
		return nil, false, err
	}
	data = make([]byte, p.Bytes)
	if _, err := p.Next(ctx, data); err != nil {
		return nil, false, err
	}
	return data, p.Complete, nil
}
