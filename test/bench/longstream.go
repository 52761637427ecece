package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/projections"
)

// longStreams measures a command, load and append, on a stream of 100,000
// versions beside the same on one of 10: the time, and the buffers that
// PostgreSQL counts for its statements.
func longStreams(ctx context.Context, b *bench) error {
	u, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	c, err := pgxpool.ParseConfig(u)
	if err != nil {
		return err
	}
	c.MaxConns = 4
	c.ConnConfig.RuntimeParams["pg_stat_statements.track"] = "all"
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return fmt.Errorf("count buffers: %w", err)
	}
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	defer store.Close()
	young, old := &growing{store: store, id: uuid.New()}, &growing{store: store, id: uuid.New()}
	if err := young.reach(ctx, 10); err != nil {
		return err
	}
	if err := old.reach(ctx, int64(b.long)); err != nil {
		return err
	}
	pages := figure{Name: fmt.Sprintf("buffers of a command at version %d", b.long), Unit: "buffers", PeerName: "at version 10", atMost: 1.05}
	spent := figure{Name: fmt.Sprintf("time of a command at version %d", b.long), Unit: "ms", PeerName: "ms at version 10", atMost: 1.3}
	for round := range b.rounds + 1 {
		// Row versions that the rounds before left behind are nobody's age.
		if _, err := pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
			return err
		}
		a, p, err := b.oldAndYoung(ctx, pool, old, young)
		if err != nil {
			return err
		}
		if round == 0 && !b.tiny {
			continue
		}
		pages.ours, pages.peers = append(pages.ours, a.buffers), append(pages.peers, p.buffers)
		spent.ours, spent.peers = append(spent.ours, a.ms), append(spent.peers, p.ms)
		// The young one must stay young.
		young = &growing{store: store, id: uuid.New()}
		if err := young.reach(ctx, 10); err != nil {
			return err
		}
	}
	b.add(pages)
	b.add(spent)
	return nil
}

// growing is a stream that grows.
type growing struct {
	store *postgres.Store
	id    uuid.UUID
	head  eventstore.Head
}

func (g *growing) stream() eventstore.StreamID {
	return eventstore.StreamID("attempt/" + g.id.String())
}

// reach appends until the stream has some versions, many events at a time.
func (g *growing) reach(ctx context.Context, version int64) error {
	for g.head.Version < version {
		a := command(g.id, g.head)
		for int64(len(a.Events)) < min(500, version-g.head.Version) {
			a.Events = append(a.Events, a.Events[0])
		}
		if err := g.append(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (g *growing) append(ctx context.Context, a eventstore.Append) error {
	events, err := g.store.Append(ctx, a)
	if err == nil {
		last := events[len(events)-1]
		g.head = eventstore.Head{Version: last.Version, Hash: last.Hash}
	}
	return err
}

// command carries out one command and returns what it took.
func (g *growing) command(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	l, err := g.store.Load(ctx, g.stream(), uuid.New())
	if err != nil {
		return 0, err
	}
	a := command(g.id, l.Head)
	a.Now = l.Now
	err = g.append(ctx, a)
	return time.Since(began), err
}

type cost struct{ ms, buffers float64 }

// perTurn is how many commands one stream gets before it is the other's turn:
// few, so that the young one is still young at the end of a round.
const perTurn = 10

func (b *bench) oldAndYoung(ctx context.Context, pool *pgxpool.Pool, old, young *growing) (a, p cost, err error) {
	turns := max(1, b.samples/perTurn/4)
	var times [2][]float64
	for range turns {
		for i, g := range []*growing{old, young} {
			before, err := buffers(ctx, pool)
			if err != nil {
				return a, p, err
			}
			for range perTurn {
				took, err := g.command(ctx)
				if err != nil {
					return a, p, err
				}
				times[i] = append(times[i], ms(took))
			}
			after, err := buffers(ctx, pool)
			if err != nil {
				return a, p, err
			}
			[]*cost{&a, &p}[i].buffers += (after - before) / float64(turns*perTurn)
		}
	}
	a.ms, p.ms = median(times[0]), median(times[1])
	return a, p, nil
}

// buffers is how many buffers the store's statements touched so far.
func buffers(ctx context.Context, pool *pgxpool.Pool) (n float64, err error) {
	err = pool.QueryRow(ctx, `SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query LIKE '%stream_heads%' AND query NOT LIKE '%pg_stat_statements%'`).Scan(&n)
	return n, err
}
