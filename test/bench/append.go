package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/projections"
)

// serviceConns is how many connections a replica's pool has by default.
const serviceConns = 16

// ledgers is a store and a database beside it that is written without one.
type ledgers struct {
	store *postgres.Store
	bare  *pgxpool.Pool // one connection for each client
	done  func()
}

func (b *bench) ledgers(ctx context.Context, clients int) (*ledgers, error) {
	pool, done, err := b.pool(ctx, serviceConns)
	if err != nil {
		return nil, err
	}
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	bare, undo, err := b.pool(ctx, clients)
	if err != nil {
		store.Close()
		done()
		return nil, err
	}
	return &ledgers{store, bare, func() { store.Close(); done(); undo() }}, nil
}

// appends measures store.Append from some clients at once beside the same rows
// written by bare INSERTs, a connection for each client: first with streams that
// are opened, then with streams that go on, where the peer updates two rows.
func appends(ctx context.Context, b *bench) error {
	counts := []int{1, 8, 32, 64}
	if b.tiny {
		counts = []int{1, 8}
	}
	for _, n := range counts {
		l, err := b.ledgers(ctx, n)
		if err != nil {
			return err
		}
		err = b.opening(ctx, l, n)
		if err == nil {
			err = b.goingOn(ctx, l, n)
		}
		l.done()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) opening(ctx context.Context, l *ledgers, n int) error {
	f := figure{Name: fmt.Sprintf("open a stream, %d clients", n), Unit: "appends/s", PeerName: "bare inserts/s"}
	if b.fsync && n >= 8 {
		f.atLeast = 0.7
	}
	return b.compare(ctx, f,
		func(ctx context.Context) (float64, error) {
			return b.rate(ctx, n, func(ctx context.Context, _ int, _ int64) error {
				_, err := l.store.Append(ctx, command(uuid.New(), eventstore.Head{}))
				return err
			})
		},
		func(ctx context.Context) (float64, error) {
			return b.rate(ctx, n, func(ctx context.Context, _ int, _ int64) error { return bare(ctx, l.bare, uuid.New(), 1) })
		})
}

// streamsEach is how many streams a client goes on with in turn.
const streamsEach = 20

func (b *bench) goingOn(ctx context.Context, l *ledgers, n int) error {
	type stream struct {
		id      uuid.UUID
		head    eventstore.Head
		version int64 // the peer's
	}
	streams := make([][streamsEach]stream, n)
	err := b.each(ctx, n, func(c int) error {
		for i := range streams[c] {
			s := &streams[c][i]
			s.id, s.version = uuid.New(), 1
			events, err := l.store.Append(ctx, command(s.id, eventstore.Head{}))
			if err != nil {
				return err
			}
			s.head = eventstore.Head{Version: 1, Hash: events[0].Hash}
			if err := bare(ctx, l.bare, s.id, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.compare(ctx, figure{Name: fmt.Sprintf("go on with a stream, %d clients", n), Unit: "appends/s", PeerName: "bare insert and updates/s"},
		func(ctx context.Context) (float64, error) {
			turn := make([]int, n)
			return b.rate(ctx, n, func(ctx context.Context, c int, _ int64) error {
				s := &streams[c][turn[c]%streamsEach]
				turn[c]++
				events, err := l.store.Append(ctx, command(s.id, s.head))
				if err == nil {
					s.head = eventstore.Head{Version: s.head.Version + 1, Hash: events[0].Hash}
				}
				return err
			})
		},
		func(ctx context.Context) (float64, error) {
			turn := make([]int, n)
			return b.rate(ctx, n, func(ctx context.Context, c int, _ int64) error {
				s := &streams[c][turn[c]%streamsEach]
				turn[c]++
				s.version++
				return bare(ctx, l.bare, s.id, s.version)
			})
		})
}
