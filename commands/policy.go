package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// ActivePolicy says which bundle the ledger calls the active one, "" if none yet,
// and whether an operator made it so.
func (s *Service) ActivePolicy(ctx context.Context) (digest string, ordered bool, err error) {
	st, _, err := stateOf(ctx, s.Store, service, ServiceStream)
	if err != nil {
		return "", false, fmt.Errorf("read which policy is active: %w", err)
	}
	return st.PolicyDigest, st.PolicyOrdered, nil
}

// PolicyWasActive says whether a bundle was the active one at any time before.
func (s *Service) PolicyWasActive(ctx context.Context, digest string) (bool, error) {
	for after := int64(0); ; {
		events, err := s.Store.ReadStream(ctx, ServiceStream, after, 500)
		if err != nil {
			return false, fmt.Errorf("read the service's stream: %w", err)
		}
		if len(events) == 0 {
			return false, nil
		}
		for _, e := range events {
			after = e.Version
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				return false, err
			}
			switch d := d.(type) {
			case domain.PolicyActivated:
				if d.BundleDigest == digest {
					return true, nil
				}
			case domain.PolicyReplaced:
				if d.BundleDigest == digest {
					return true, nil
				}
			}
		}
	}
}

// ReplacePolicy is an operator's order that another bundle decides from now on. The
// caller has made sure that the bundle is kept and can be loaded.
func (s *Service) ReplacePolicy(ctx context.Context, m Meta, digest, reason string) error {
	ref, texts, err := reasonText(reason)
	if err != nil {
		return err
	}
	_, err = carryOut(ctx, s, service, ServiceStream, m, eventstore.ClassUrgent,
		func(st domain.Service, now time.Time) (decision, error) {
			events, err := domain.DecideService(st, domain.ReplacePolicy{BundleDigest: digest, ReasonText: ref}, now)
			return decision{events, texts}, err
		})
	return err
}
