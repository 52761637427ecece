package objects

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Info is what the server says of an object.
type Info struct {
	Key         string
	Size        int64
	SHA256      bundle.SHA256 // zero if none is known
	Verified    bool          // the server itself computed SHA256; else the writer claimed it
	ContentType string
	Modified    time.Time
}

// Get opens length bytes of an object from offset; a negative length means up to
// the end, and fewer come if the object ends before. The caller closes the reader
// and gets errors of the same kinds from it.
//
// Errors: ErrNotFound, ErrRange if offset is not below the size (offset 0 of an
// empty object is fine), ErrUnavailable, ErrDenied.
func (b *Bucket) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 {
		return nil, fmt.Errorf("reading %s: offset %d is negative", b.name(key), offset)
	}
	if length == 0 {
		if _, err := b.Stat(ctx, key); err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	var opts minio.GetObjectOptions
	var err error
	switch {
	case length > 0:
		// A last byte behind any object's end is cut by the server.
		err = opts.SetRange(offset, offset+min(length, MaxObject)-1)
	case offset > 0:
		err = opts.SetRange(offset, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", b.name(key), err)
	}
	body, _, _, err := b.client.GetObject(ctx, b.config.Bucket, key, opts)
	if err != nil {
		err = b.classify(ctx, "reading", key, err)
		if errors.Is(err, ErrRange) && offset == 0 {
			return b.emptyOr(ctx, key, err)
		}
		return nil, err
	}
	return &objectReader{bucket: b, ctx: ctx, key: key, body: body}, nil
}

// emptyOr answers a range from 0 that the server refused: an empty object has no
// byte 0 and is yet no error.
func (b *Bucket) emptyOr(ctx context.Context, key string, refused error) (io.ReadCloser, error) {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if info.Size > 0 {
		return nil, refused
	}
	return io.NopCloser(bytes.NewReader(nil)), nil
}

type objectReader struct {
	bucket *Bucket
	ctx    context.Context
	key    string
	body   io.ReadCloser
}

func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.bucket.classify(r.ctx, "reading", r.key, err)
	}
	return n, err
}

func (r *objectReader) Close() error { return r.body.Close() }

// Stat describes an object. Errors: ErrNotFound, ErrUnavailable, ErrDenied.
func (b *Bucket) Stat(ctx context.Context, key string) (Info, error) {
	o, err := b.client.StatObject(ctx, b.config.Bucket, key, minio.StatObjectOptions{Checksum: true})
	if err != nil {
		err = b.classify(ctx, "looking at", key, err)
		if errors.Is(err, ErrNotFound) {
			// The answer to HEAD has no body and does not tell a missing
			// object from a missing bucket.
			if unhealthy := b.Health(ctx); unhealthy != nil {
				return Info{}, unhealthy
			}
		}
		return Info{}, err
	}
	info := Info{Key: key, Size: o.Size, ContentType: o.ContentType, Modified: o.LastModified}
	for name, value := range o.UserMetadata {
		if strings.EqualFold(name, "sha256") {
			// Metadata that is no digest is none.
			info.SHA256, _ = bundle.ParseSHA256(value)
		}
	}
	if o.ChecksumSHA256 == "" {
		return info, nil
	}
	raw, err := base64.StdEncoding.DecodeString(o.ChecksumSHA256)
	if err != nil || len(raw) != len(info.SHA256) {
		return info, nil // of parts, not of the object
	}
	trusted, err := b.verifiesChecksums(ctx)
	if err != nil {
		return Info{}, err
	}
	if trusted {
		info.SHA256, info.Verified = bundle.SHA256(raw), true
	}
	return info, nil
}

// Delete removes an object; one that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	err := b.client.RemoveObject(ctx, b.config.Bucket, key, minio.RemoveObjectOptions{})
	if err = b.classify(ctx, "deleting", key, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
