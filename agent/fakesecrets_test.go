package agent

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func (b *boundPlane) FingerprintKey(ctx context.Context, l Lease) (wire.FingerprintKey, error) {
	return call(ctx, b, "fingerprint_key", uuid.Nil, nil, func() (wire.FingerprintKey, error) {
		_, err := b.f.running(l)
		return wire.FingerprintKey{Key: b.f.printKey[:], Limit: 1 << 19}, err
	})
}

func (b *boundPlane) Fingerprints(ctx context.Context, l Lease, key uuid.UUID, certain int, prints []uint64) error {
	_, err := call(ctx, b, "fingerprints", key, prints, func() (any, error) {
		j, err := b.f.running(l)
		if err == nil {
			j.prints, j.certain = append(j.prints, prints...), certain
		}
		return nil, err
	})
	return err
}

func (b *boundPlane) Revoked(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.RevokedRequest) error {
	_, err := call(ctx, b, "revoked", key, req, func() (any, error) {
		b.f.revoked = append(b.f.revoked, req)
		b.f.revoke = slices.DeleteFunc(b.f.revoke, func(r wire.Revoke) bool { return r.AttemptID == req.AttemptID })
		return nil, nil
	})
	return err
}
