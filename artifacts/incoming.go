package artifacts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// InputStore is object storage that bytes of jobs' inputs are put into and handed out
// from.
type InputStore interface {
	Objects
	presigner
}

type presigner interface {
	PresignGet(ctx context.Context, key string, ttl time.Duration, filename string) (objects.Presigned, error)
}

// Incoming is a body on its way in. Nothing of it is believed before it was read whole.
type Incoming struct {
	Body      io.Reader
	Bytes     int64         // -1 where the sender does not say
	SHA256    bundle.SHA256 // zero where the sender does not say
	MediaType string
	// Meta is of the command that records the bytes; Digest makes its digest, of the
	// request as received, once the body's is known.
	Meta   commands.Meta
	Digest func(body bundle.SHA256) eventstore.Digest
}

// Refusals of an upload.
var (
	errUploadDigest = &domain.Error{Kind: domain.KindInvalid, Code: "digest_mismatch", Message: "the bytes that came do not have the announced SHA-256", Next: "send the whole file again, or correct the digest"}
	errUploadLarge  = &domain.Error{Kind: domain.KindMalformed, Code: "too_large", Message: "the body is larger than this route takes", Next: "send a smaller file, or several"}
)

// received is an upload of which size and digest are certain.
type received struct {
	size int64
	sum  bundle.SHA256
}

// store puts an upload under the key that follows from its digest. Where the sender
// said size and digest, the bytes go straight through; otherwise they wait in a
// nameless file until both are known. Nothing is stored unless every byte came and is
// what was announced.
func (u Incoming) store(ctx context.Context, to Objects, spoolDir string, limit int64, key func(bundle.SHA256) string) (received, error) {
	if u.Bytes > limit {
		return received{}, errUploadLarge
	}
	if u.SHA256.IsZero() || u.Bytes < 0 {
		return u.spooled(ctx, to, spoolDir, limit, key)
	}
	r := received{u.Bytes, u.SHA256}
	body := &tally{r: u.Body, hash: sha256.New()}
	err := to.Put(ctx, key(r.sum), body, r.size, r.sum, objects.PutOptions{ContentType: u.MediaType})
	if err != nil {
		return r, u.failed(body.err, err)
	}
	// A store that has the object already may answer before it read the body.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return r, u.failed(body.err, err)
	}
	if body.n != r.size || body.sum() != r.sum {
		return r, errUploadDigest
	}
	return r, nil
}

func (u Incoming) spooled(ctx context.Context, to Objects, dir string, limit int64, key func(bundle.SHA256) string) (received, error) {
	f, err := u.spool(ctx, dir, limit)
	if err != nil {
		return received{}, err
	}
	defer f.Close()
	r := received{f.Size, f.SHA256}
	if err := to.Put(ctx, key(r.sum), f, r.size, r.sum, objects.PutOptions{ContentType: u.MediaType}); err != nil {
		return r, storageError("store an upload", err)
	}
	return r, nil
}

// spool reads the whole body into a nameless file and checks what was announced.
func (u Incoming) spool(ctx context.Context, dir string, limit int64) (*objects.Spooled, error) {
	body := &tally{r: u.Body, hash: sha256.New()}
	f, err := objects.Spool(ctx, dir, body, limit)
	switch {
	case errors.Is(err, objects.ErrTooLarge):
		return nil, errUploadLarge
	case err != nil && body.err != nil:
		return nil, body.err
	case err != nil:
		return nil, fmt.Errorf("keep an upload until it is whole: %w", err)
	case !u.SHA256.IsZero() && u.SHA256 != f.SHA256, u.Bytes >= 0 && u.Bytes != f.Size:
		return nil, errors.Join(errUploadDigest, f.Close())
	}
	return f, nil
}

// failed names what ended an upload that went straight through: the sender, its
// bytes, or the store.
func (u Incoming) failed(sender, err error) error {
	switch {
	case sender != nil:
		return sender
	case errors.Is(err, objects.ErrDigestMismatch):
		return errUploadDigest
	}
	return storageError("store an upload", err)
}

// tally counts and hashes what is read, and remembers why reading failed.
type tally struct {
	r    io.Reader
	n    int64
	hash hash.Hash
	err  error
}

func (t *tally) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	t.hash.Write(p[:n])
	t.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

func (t *tally) sum() bundle.SHA256 { return bundle.SHA256(t.hash.Sum(nil)) }
