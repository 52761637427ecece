package plane

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/projections"
)

// Replay is what somebody with the database's and the brokers' credentials wants
// published again.
type Replay struct {
	Delivery
	From   string // a cursor, a position or a time; see forwarder.ResolveStart
	Until  string // a cursor; "" for all that was published so far
	Types  []string
	Topics []string
	Reason string
}

// standingFeed is a feed that nobody waits for.
type standingFeed struct{ *postgres.Store }

func (standingFeed) WaitFeed(ctx context.Context, _ eventstore.Cursor) error {
	<-ctx.Done()
	return ctx.Err()
}

// PublishAgain records that history is published again, and does it.
func PublishAgain(ctx context.Context, pool *pgxpool.Pool, s *commands.Service, r Replay, progress func(forwarder.ReplayProgress)) (forwarder.ReplayProgress, error) {
	store := postgres.Open(pool, projections.WrittenTables(), postgres.Options{})
	defer store.Close()
	reads := projections.NewReader(pool)
	f, err := forwarder.New(forwarder.Config{
		Feed: standingFeed{store}, History: store, Leases: store, Checkpoints: reads, Commands: s, Parked: reads, Holder: "replay-" + uuid.NewString(),
		Kafka: *r.Kafka, Topics: r.Delivery.Topics, Source: r.Source,
	})
	if err != nil {
		return forwarder.ReplayProgress{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	request := forwarder.ReplayRequest{Types: r.Types, Topics: r.Topics}
	if request.From, err = f.ResolveStart(ctx, r.From); errors.Is(err, eventstore.ErrUnavailable) {
		return forwarder.ReplayProgress{}, err
	} else if err != nil {
		return forwarder.ReplayProgress{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	// What was not published yet is not published again.
	if request.Until, err = reads.Checkpoint(ctx, forwarder.Lease); err != nil {
		return forwarder.ReplayProgress{}, err
	}
	if r.Until != "" {
		until, err := eventstore.ParseCursor(r.Until)
		if err != nil {
			return forwarder.ReplayProgress{}, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		request.Until.Seq = min(request.Until.Seq, until.Seq)
	}
	noted := domain.ForwarderReplayed{From: request.From.String(), Until: request.Until.String(), Types: r.Types, Topics: r.Topics}
	if err := s.NoteForwarderReplay(ctx, local("forwarder replay"), noted, r.Reason); err != nil {
		return forwarder.ReplayProgress{}, err
	}
	return f.Replay(ctx, request, progress)
}
