package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// frameSize is how much an agent reads of a pipe at a time.
const frameSize = 32 << 10

// logs measures the log's way: chunks of 1 MiB as an agent sends them, to the
// service, to object storage, into the ledger; and back through the API. The peer
// puts and gets objects of the same bytes in the same storage. Both have one
// request on its way at a time. Nothing is masked: the masker's set is empty.
func logs(ctx context.Context, b *bench) error {
	s, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer s.done()
	r, err := s.runner(ctx)
	if err != nil {
		return err
	}
	defer r.client.CloseIdle()
	plain, err := minio.New(s.s3.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(s.s3.AccessKey, s.s3.SecretKey, ""), BucketLookup: minio.BucketLookupPath})
	if err != nil {
		return err
	}
	if err := s.submit(ctx); err != nil {
		return err
	}
	l := &logWriter{runner: r}
	lease, offer, err := r.takeOffer(ctx)
	if err == nil {
		err = r.start(ctx, lease)
	}
	if err != nil {
		return err
	}
	l.lease, l.attempt = lease, offer.AttemptID
	keys := &plainObjects{client: plain, bucket: s.s3.Bucket}
	chunks := max(2, b.logSize/bundle.MaxChunk/(b.rounds+1))
	err = b.compare(ctx, figure{Name: "upload of log", Unit: "MB/s", PeerName: "MB/s by PUT"},
		func(ctx context.Context) (float64, error) {
			return perSecond(chunks, func() error { return l.send(ctx) })
		},
		func(ctx context.Context) (float64, error) {
			return perSecond(chunks, func() error { return keys.put(ctx) })
		})
	if err != nil {
		return err
	}
	var at int64
	return b.compare(ctx, figure{Name: "reading of log", Unit: "MB/s", PeerName: "MB/s by GET"},
		func(ctx context.Context) (float64, error) {
			return perSecond(chunks, func() error {
				part, err := s.control.Log(ctx, l.attempt, "stdout", at%l.offset, bundle.MaxChunk)
				if err == nil && len(part.Data) != bundle.MaxChunk {
					err = fmt.Errorf("a read of the log gave %d bytes", len(part.Data))
				}
				at += int64(len(part.Data))
				return err
			})
		},
		func(ctx context.Context) (float64, error) {
			return perSecond(chunks, func() error { return keys.get(ctx) })
		})
}

// perSecond does n chunks and returns MB/s.
func perSecond(n int, do func() error) (float64, error) {
	began := time.Now()
	for range n {
		if err := do(); err != nil {
			return 0, err
		}
	}
	return float64(n) * bundle.MaxChunk / 1e6 / time.Since(began).Seconds(), nil
}

// text is a chunk's worth of bytes that look like a log and do not repeat.
func text() []byte {
	raw := make([]byte, bundle.MaxChunk*3/4)
	rand.Read(raw)
	return []byte(base64.StdEncoding.EncodeToString(raw))[:bundle.MaxChunk]
}

// logWriter sends a log, chunk after chunk.
type logWriter struct {
	runner  *runner
	lease   client.Lease
	attempt domain.AttemptID
	offset  int64
}

func (l *logWriter) send(ctx context.Context) error {
	content := text()
	var frames []byte
	for len(content) > 0 {
		n := min(frameSize, len(content))
		frames = bundle.AppendFrame(frames, time.Now().UnixMicro(), content[:n])
		content = content[n:]
	}
	a, err := l.runner.client.SendLog(ctx, newKey(), l.lease, "stdout", l.offset, frames)
	if err == nil {
		l.offset = a.Offset
	}
	return err
}

// plainObjects puts and gets without the service.
type plainObjects struct {
	client *minio.Client
	bucket string
	keys   []string
	next   int
}

func (p *plainObjects) put(ctx context.Context) error {
	key := "plain/" + uuid.NewString()
	_, err := p.client.PutObject(ctx, p.bucket, key, bytes.NewReader(text()), bundle.MaxChunk, minio.PutObjectOptions{})
	p.keys = append(p.keys, key)
	return err
}

func (p *plainObjects) get(ctx context.Context) error {
	p.next++
	o, err := p.client.GetObject(ctx, p.bucket, p.keys[p.next%len(p.keys)], minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }()
	_, err = io.Copy(io.Discard, o)
	return err
}
