package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// prints tells the service, by keyed hashes, what must not be found in the
// attempt's bundle. It is told before anything can show the values.
type prints struct {
	at    *attempt
	keyed bool
	key   [32]byte
	limit int
	sent  map[uint64]bool
}

// send makes prints of all that the masker knows and sends those that are new.
func (p *prints) send(ctx context.Context) error {
	at := p.at
	if !p.keyed {
		if err := p.fetchKey(ctx); err != nil {
			return err
		}
	}
	var fresh []uint64
	all := at.mask.Fingerprints(p.key)
	for _, x := range all {
		if !p.sent[x] {
			fresh = append(fresh, x)
		}
	}
	certain := at.mask.Coverage().Certain
	if certain == 0 {
		return secretDenied(errors.New("the secrets are too large for the scan of what the job leaves behind; give the job fewer or smaller ones"))
	}
	if n := len(p.sent) + len(fresh); p.limit > 0 && n > p.limit {
		return secretDenied(fmt.Errorf("the secrets have %d fingerprints and the service keeps %d; give the job fewer or smaller ones", n, p.limit))
	}
	key := uuid.New()
	err := insist(ctx, byteTimeout, func(ctx context.Context) error {
		return at.agent.plane().Fingerprints(ctx, at.lease, key, certain, fresh)
	})
	if err != nil {
		return at.heard(fmt.Errorf("send the fingerprints of the secrets: %w", err))
	}
	for _, x := range fresh {
		p.sent[x] = true
	}
	return nil
}

func (p *prints) fetchKey(ctx context.Context) error {
	at := p.at
	var limit int
	err := insist(ctx, callTimeout, func(ctx context.Context) error {
		got, err := at.agent.plane().FingerprintKey(ctx, at.lease)
		if err == nil && len(got.Key) != len(p.key) {
			return &domain.Error{Kind: domain.KindInvalid, Code: "fingerprint_key", Message: "the fingerprint key does not have 32 bytes"}
		}
		if err == nil {
			copy(p.key[:], got.Key)
			limit = got.Limit
		}
		return err
	})
	if err != nil {
		return at.heard(fmt.Errorf("get the fingerprint key: %w", err))
	}
	p.keyed, p.limit, p.sent = true, limit, map[uint64]bool{}
	return nil
}

// forget wipes the key.
func (p *prints) forget() {
	clear(p.key[:])
	p.keyed, p.sent = false, nil
}
