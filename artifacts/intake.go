package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
)

// Objects is the object storage that this package needs. Writes are conditional
// on absence and durable when they return; see artifacts/objects.
type Objects interface {
	Put(ctx context.Context, key string, r io.Reader, size int64, sum bundle.SHA256, opts objects.PutOptions) error
	Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Verify(ctx context.Context, key string, size int64, sum bundle.SHA256) error
	PresignPut(ctx context.Context, key string, size int64, sum bundle.SHA256, ttl time.Duration) (objects.Presigned, error)
	URI(key string) string
}

// Intake takes what runners send.
type Intake struct {
	Commands *commands.Service
	Objects  Objects
	// Policies finds the bundle that an attempt's offer named; nil: the active one
	// decides for all.
	Policies *Policies
}

const (
	maxInline    = 4 << 10
	maxArtifact  = 5 << 30
	presignedFor = 15 * time.Minute
)

// StoreLog takes an encoded chunk of a log stream. It returns how much of the
// stream is stored; with domain.ErrLogOffset the runner sends again from there.
//
// The attempt's id comes with every answer that tells an offset.
func (i *Intake) StoreLog(ctx context.Context, m commands.Meta, call commands.LeaseCall, stream string, offset int64, frames []byte) (id domain.AttemptID, have int64, err error) {
	s, err := bundle.ParseStream(stream)
	if err != nil {
		return id, 0, &domain.Error{Kind: domain.KindMalformed, Code: "log_stream", Message: err.Error()}
	}
	n, err := bundle.ChunkLen(s, offset, frames)
	if err != nil {
		return id, 0, &domain.Error{Kind: domain.KindMalformed, Code: "log_frames", Message: err.Error(), Next: "send whole frames, at most 1 MiB of content"}
	}
	a, have, err := i.Commands.CheckLog(ctx, call, stream, offset, n)
	if err != nil || offset+n <= have {
		return a.ID, have, err
	}
	sum := bundle.Sum(frames)
	key := bundle.LogChunkKey(prefixOf(a), s, offset, sum)
	crashpoint.Here("log.put.before")
	if err := i.Objects.Put(ctx, key, bytes.NewReader(frames), int64(len(frames)), sum, objects.PutOptions{ContentType: "application/octet-stream"}); err != nil {
		return a.ID, have, storageError("store log", err)
	}
	crashpoint.Here("log.put.after")
	have, err = i.Commands.StoreLog(ctx, m, call, domain.StoreLog{
		Stream: stream, Offset: offset, Bytes: n, Key: key, SHA256: sum.String(), ObjectBytes: int64(len(frames)),
	})
	return a.ID, have, err
}

func prefixOf(a domain.Attempt) string {
	return bundle.Prefix(a.OperationID.UUID(), a.PlanNodeID, a.ID.UUID())
}

// storageError names a failure of object storage for callers.
func storageError(doing string, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, objects.ErrDifferent), errors.Is(err, objects.ErrDigestMismatch), errors.Is(err, objects.ErrTooLarge):
		return &domain.Error{Kind: domain.KindConflict, Code: "object_differs", Message: "the stored bytes are not the announced ones", Err: err}
	}
	return &domain.Error{Kind: domain.KindUnavailable, Code: "storage_unavailable", Message: "object storage did not take it",
		Next: "keep the bytes and repeat the request with the same Idempotency-Key", Err: err}
}

// readError names a failure to read an object that the ledger names.
func readError(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objects.ErrNotFound), errors.Is(err, objects.ErrRange):
		return fmt.Errorf("the ledger names %s and object storage does not have it; restore the bucket from a copy, and run execution-plane scrub: %w", key, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("read %s: %w", key, err)
	}
	return doesNotAnswer(err)
}

func doesNotAnswer(err error) error {
	return &domain.Error{Kind: domain.KindUnavailable, Code: "storage_unavailable", Message: "object storage does not answer",
		Next: "ask again later; nothing is lost", Err: err}
}

// Announcement says what a runner wants to leave behind.
type Announcement struct {
	Name, Type  string
	Output      bool
	Sensitivity string
	MediaType   string
	Bytes       int64
	SHA256      string
	Inline      json.RawMessage
	Vault       *VaultPlace // of a secret artifact
}

// Announced answers an announcement: stored and registered, or where to put it.
type Announced struct {
	ID     domain.ArtifactID
	Stored bool
	Upload *Upload
}

// Upload is the right to put an object's bytes.
type Upload struct {
	Method, URL string
	Headers     map[string]string
}

// Announce takes an artifact. Inline JSON is registered at once. Otherwise the
// bytes are looked for in object storage: there and right, they are registered;
// not there, the answer says where to put them, and the same announcement
// afterwards registers them.
func (i *Intake) Announce(ctx context.Context, m commands.Meta, call commands.LeaseCall, n Announcement) (Announced, error) {
	if err := n.check(); err != nil {
		return Announced{}, err
	}
	a, err := i.Commands.CheckArtifact(ctx, call)
	if err != nil {
		return Announced{}, err
	}
	if n.Vault != nil {
		return i.announceSecret(ctx, m, call, a, n)
	}
	id := domain.ArtifactIDOf(a.ID, n.Name)
	e := domain.ArtifactCreated{Name: n.Name, Type: n.Type, Output: n.Output, Sensitivity: n.Sensitivity, MediaType: n.MediaType, Bytes: n.Bytes, SHA256: n.SHA256}
	if n.Inline != nil {
		// The digest is of the bytes as the event keeps them.
		inline, err := json.Marshal(n.Inline)
		if err != nil {
			return Announced{}, &domain.Error{Kind: domain.KindMalformed, Code: "artifact_inline", Message: "the inline artifact is not JSON", Err: err}
		}
		sum := bundle.Sum(inline)
		e.Storage, e.URI, e.Inline, e.Bytes, e.SHA256 = "inline_metadata", "inline:"+id.String(), inline, int64(len(inline)), sum.String()
		return Announced{ID: id, Stored: true}, i.Commands.RegisterArtifact(ctx, m, call, e)
	}
	sum, err := bundle.ParseSHA256(n.SHA256)
	if err != nil {
		return Announced{}, err
	}
	e.Key = n.key(a, sum)
	e.Storage, e.URI = "s3", i.Objects.URI(e.Key)
	return i.registerStored(ctx, m, call, id, e, n.Bytes, sum)
}

// key names the object whose digest is sum.
func (n *Announcement) key(a domain.Attempt, sum bundle.SHA256) string {
	if n.Output {
		return bundle.OutputKey(prefixOf(a), n.Name, sum)
	}
	return bundle.ArtifactKey(prefixOf(a), n.Name, sum)
}

// registerStored registers an artifact whose object is there and right, or says
// where to put it.
func (i *Intake) registerStored(ctx context.Context, m commands.Meta, call commands.LeaseCall, id domain.ArtifactID, e domain.ArtifactCreated, size int64, sum bundle.SHA256) (Announced, error) {
	switch err := i.Objects.Verify(ctx, e.Key, size, sum); {
	case err == nil:
		crashpoint.Here("artifact.verified")
		return Announced{ID: id, Stored: true}, i.Commands.RegisterArtifact(ctx, m, call, e)
	case errors.Is(err, objects.ErrNotFound):
		p, err := i.Objects.PresignPut(ctx, e.Key, size, sum, presignedFor)
		if err != nil {
			return Announced{}, storageError("make an upload", err)
		}
		u := Upload{Method: p.Method, URL: p.URL, Headers: map[string]string{}}
		for k := range p.Header {
			u.Headers[k] = p.Header.Get(k)
		}
		return Announced{ID: id, Upload: &u}, nil
	default:
		return Announced{}, storageError("look for an artifact", err)
	}
}

func (n *Announcement) check() error {
	var v []domain.Violation
	add := func(pointer, message string) {
		v = append(v, domain.Violation{Pointer: pointer, Code: "invalid", Message: message})
	}
	if n.Name == "" || len(n.Name) > 200 {
		add("/name", "has from 1 to 200 bytes")
	}
	if n.Type == "" || len(n.Type) > 200 {
		add("/type", "has from 1 to 200 bytes, such as diagnostics_bundle")
	}
	if n.MediaType == "" {
		n.MediaType = "application/octet-stream"
	}
	if !slices.Contains([]string{"public", "internal", domain.SensitivitySecret}, n.Sensitivity) {
		add("/sensitivity", "is one of public, internal, secret")
	}
	if n.Sensitivity == domain.SensitivitySecret || n.Vault != nil {
		n.checkSecret(add)
	} else if n.Inline != nil {
		if len(n.Inline) > maxInline {
			add("/inline", "has at most 4 KiB; upload it instead")
		}
		n.MediaType = "application/json"
	} else if _, err := bundle.ParseSHA256(n.SHA256); err != nil || n.Bytes < 0 || n.Bytes > maxArtifact {
		add("/sha256", "with bytes, names what will be uploaded: 64 lower-case hex digits and a size up to 5 GiB")
	}
	if len(v) == 0 {
		return nil
	}
	return &domain.Error{Kind: domain.KindInvalid, Code: "artifact_invalid", Message: "the artifact breaks rules", Violations: v}
}
