package objects

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/platform-core/execution-plane-service/bundle"
)

// PutOptions describe an object beside its bytes.
type PutOptions struct {
	ContentType string // empty: application/octet-stream
}

// Put stores size bytes of r under key, if nothing is stored there yet. It
// succeeds too if the key already holds the same bytes. r is not read after Put
// has returned; a Read of r that blocks holds Put up.
//
// Errors: ErrDifferent if the key holds other bytes; ErrDigestMismatch if r does
// not give exactly size bytes with the digest sum (then nothing was stored);
// ErrTooLarge; ErrUnavailable; ErrDenied; or r's own error.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, size int64, sum bundle.SHA256, opts PutOptions) error {
	if size < 0 || sum.IsZero() {
		return fmt.Errorf("storing %s: size and digest must be known, spool the stream first", b.name(key))
	}
	if size > MaxObject {
		return fmt.Errorf("storing %s: %w: %d bytes, at most %d", b.name(key), ErrTooLarge, size, int64(MaxObject))
	}
	body := newCheckedReader(r, size, sum)
	defer body.stop()
	if size == 0 {
		// No body is sent, so nobody would read r.
		if _, err := io.Copy(io.Discard, body.reader()); err != nil {
			return fmt.Errorf("storing %s: %w", b.name(key), err)
		}
	}
	err := b.putOnce(ctx, key, body, size, sum, opts)
	if failure := body.failure(); failure != nil {
		return fmt.Errorf("storing %s: reading the source: %w", b.name(key), failure)
	}
	if !errors.Is(err, errExists) && !errors.Is(err, errConflict) {
		return err
	}
	// Another writer holds the key or was about to. What it stored shows now; if
	// nothing is there after all, the caller repeats.
	found := b.compare(ctx, key, size, sum)
	if errors.Is(found, ErrNotFound) {
		return fmt.Errorf("storing %s: %w: %w", b.name(key), ErrUnavailable, err)
	}
	return found
}

func (b *Bucket) putOnce(ctx context.Context, key string, body *checkedReader, size int64, sum bundle.SHA256, opts PutOptions) error {
	put := minio.PutObjectOptions{
		ContentType:          opts.ContentType,
		DisableMultipart:     true,
		DisableContentSha256: true, // of chunks; the digest of the whole body is signed instead
		UserMetadata:         digestHeaders(sum),
	}
	put.SetMatchETagExcept("*")
	_, err := b.client.PutObject(ctx, b.config.Bucket, key, body.reader(), size, "", sum.String(), put)
	return b.classify(ctx, "storing", key, err)
}

// compare is the end of a conditional write that found the key taken.
func (b *Bucket) compare(ctx context.Context, key string, size int64, sum bundle.SHA256) error {
	err := b.Verify(ctx, key, size, sum)
	if errors.Is(err, ErrDigestMismatch) {
		return fmt.Errorf("storing %s: %w: wanted %d bytes with digest %s", b.name(key), ErrDifferent, size, sum)
	}
	return err
}

func digestHeaders(sum bundle.SHA256) map[string]string {
	return map[string]string{
		metadataSHA256: sum.String(),
		checksumSHA256: base64.StdEncoding.EncodeToString(sum[:]),
	}
}
