package objects

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"

	"github.com/platform-core/execution-plane-service/bundle"
)

// probePrefix holds, for an instant, the object that shows whether the server
// checks checksums.
const probePrefix = "probe/"

// Verify makes sure that the stored object has this size and digest. It trusts a
// checksum that the server computed itself, and reads the object back otherwise.
// Errors: ErrDigestMismatch, ErrNotFound, ErrUnavailable, ErrDenied.
func (b *Bucket) Verify(ctx context.Context, key string, size int64, sum bundle.SHA256) error {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return err
	}
	if info.Size != size {
		return fmt.Errorf("verifying %s: %w: it has %d bytes, announced were %d", b.name(key), ErrDigestMismatch, info.Size, size)
	}
	got := info.SHA256
	if !info.Verified {
		if got, err = b.readBack(ctx, key); err != nil {
			return err
		}
	}
	if got != sum {
		return fmt.Errorf("verifying %s: %w: it has digest %s, announced was %s", b.name(key), ErrDigestMismatch, got, sum)
	}
	return nil
}

func (b *Bucket) readBack(ctx context.Context, key string) (bundle.SHA256, error) {
	r, err := b.Get(ctx, key, 0, -1)
	if err != nil {
		return bundle.SHA256{}, err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return bundle.SHA256{}, err
	}
	return bundle.SHA256(h.Sum(nil)), nil
}

// verifiesChecksums finds out, once per Bucket, whether the server refuses a body
// that does not match its x-amz-checksum-sha256. Some servers store the header
// unread and give it back, and their word would be the uploader's.
func (b *Bucket) verifiesChecksums(ctx context.Context) (bool, error) {
	b.probe.Lock()
	defer b.probe.Unlock()
	if b.probed {
		return b.checksums, nil
	}
	key := probePrefix + uuid.NewString()
	opts := minio.PutObjectOptions{
		DisableMultipart:     true,
		DisableContentSha256: true,
		UserMetadata:         digestHeaders(bundle.Sum([]byte("announced"))),
	}
	const sent = "something"
	_, err := b.client.PutObject(ctx, b.config.Bucket, key, strings.NewReader(sent), int64(len(sent)), "", "", opts)
	if err == nil {
		if err := b.Delete(ctx, key); err != nil {
			return false, err
		}
		b.probed, b.checksums = true, false
		return false, nil
	}
	err = b.classify(ctx, "probing the checksums of", key, err)
	if errors.Is(err, ErrDigestMismatch) {
		b.probed, b.checksums = true, true
		return true, nil
	}
	if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		return false, err
	}
	// Refused for another reason, as by a reader without the right to write:
	// nothing is known, so nothing is trusted.
	b.probed, b.checksums = true, false
	return false, nil
}
