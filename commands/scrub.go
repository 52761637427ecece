package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// bundles are the streams of what was found in object storage.
var bundles = aggregate[domain.Bundle]{domain.BundleStateVersion, domain.EvolveBundle, projections.BundleChanges, nil, nil}

// BundleStream names the stream of what was found of an attempt's stored objects.
func BundleStream(id domain.AttemptID) eventstore.StreamID {
	return eventstore.StreamID("bundle/" + id.String())
}

// Scrubber is the meta of one look at a stored object by the service itself.
func Scrubber() Meta { return internalMeta("scrubber", newCommandID()) }

// NoteScrub records what a look at a stored object gave, if that is news. known
// reads which problem stands against the object; it is asked after the stream's
// head was read, so that of two who found the same one records it.
func (s *Service) NoteScrub(ctx context.Context, m Meta, found domain.ScrubFailed, known func(context.Context) (string, error)) (changed bool, err error) {
	r, err := carryOut(ctx, s, bundles, BundleStream(found.AttemptID), m, eventstore.ClassUrgent,
		func(b domain.Bundle, now time.Time) (decision, error) {
			problem, err := known(ctx)
			if err != nil {
				return decision{}, err
			}
			events, err := domain.DecideBundle(b, domain.NoteScrub{Found: found, Known: problem}, now)
			return decision{events: events}, err
		})
	return r.Changed, err
}
