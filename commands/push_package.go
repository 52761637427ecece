package commands

import (
	"context"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

var packageStreams = aggregate[domain.Package]{domain.PackageStateVersion, domain.EvolvePackage, projections.PackageChanges, nil, nil}

// PackageStream names a package's stream.
func PackageStream(sha256 string) eventstore.StreamID {
	return eventstore.StreamID("package/" + sha256)
}

// PushPackage records a package whose bytes are durable and were looked at. One that
// was pushed before is returned as it was; first says that it was not.
func (s *Service) PushPackage(ctx context.Context, m Meta, p domain.PackagePushed) (is domain.PackagePushed, first bool, err error) {
	r, err := carryOut(ctx, s, packageStreams, PackageStream(p.SHA256), m, eventstore.ClassUrgent,
		func(st domain.Package, now time.Time) (decision, error) {
			events, err := domain.DecidePackage(st, domain.PushPackage{Pushed: p}, now)
			return decision{events: events}, err
		})
	crashpoint.Here("package.reply")
	return r.State.PackagePushed, r.Changed, err
}
