package artifacts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// Policies keeps policy bundles in object storage by digest, for as long as any
// event may refer to one: none is ever removed here.
type Policies struct {
	Objects Objects

	mu   sync.Mutex
	seen map[string][]byte // archives by bundle digest; guarded by mu
}

// MaxPolicyArchive bounds a bundle as one archive, in bytes; policy.Open bounds what is
// in it.
const MaxPolicyArchive = 16 << 20

func policyKey(digest string) string { return "policy/" + digest }

// NewPolicies serves active from memory from the first moment, so that runners go
// on deciding while object storage is away.
func NewPolicies(o Objects, active *policy.Bundle) *Policies {
	return &Policies{Objects: o, seen: map[string][]byte{active.Digest(): active.Bytes()}}
}

// Keep makes a bundle durable and serves it.
func (p *Policies) Keep(ctx context.Context, b *policy.Bundle) error {
	archive := b.Bytes()
	p.mu.Lock()
	p.seen[b.Digest()] = archive
	p.mu.Unlock()
	err := p.Objects.Put(ctx, policyKey(b.Digest()), bytes.NewReader(archive), int64(len(archive)), bundle.Sum(archive), objects.PutOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return storageError("keep the policy bundle", err)
	}
	return nil
}

// Archive returns the archive form of the bundle with this digest.
func (p *Policies) Archive(ctx context.Context, digest string) ([]byte, error) {
	p.mu.Lock()
	b, ok := p.seen[digest]
	p.mu.Unlock()
	if ok {
		return b, nil
	}
	if _, err := bundle.ParseSHA256(digest); err != nil {
		return nil, unknownPolicy
	}
	r, err := p.Objects.Get(ctx, policyKey(digest), 0, -1)
	if errors.Is(err, objects.ErrNotFound) {
		return nil, unknownPolicy
	}
	if err != nil {
		return nil, storageError("read a policy bundle", err)
	}
	defer r.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(io.LimitReader(r, MaxPolicyArchive)); err != nil {
		return nil, storageError("read a policy bundle", err)
	}
	opened, err := policy.Open(buf.Bytes())
	if err != nil {
		return nil, err
	}
	if opened.Digest() != digest {
		return nil, storageError("read a policy bundle", objects.ErrDigestMismatch)
	}
	return buf.Bytes(), nil
}

var unknownPolicy = &domain.Error{Kind: domain.KindNotFound, Code: "policy_bundle_unknown", Message: "no policy bundle has this digest"}

// Bundle returns the policy bundle with this digest; an error of kind not_found
// if there is none.
func (p *Policies) Bundle(ctx context.Context, digest string) (*policy.Bundle, error) {
	b, err := p.Archive(ctx, digest)
	if err != nil {
		return nil, err
	}
	return policy.Open(b)
}
