package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

// readLedger measures the verification of a whole ledger and the reading of the
// feed, each beside a plain SELECT of every column of the same events.
func readLedger(ctx context.Context, b *bench) error {
	pool, done, err := b.pool(ctx, 4)
	if err != nil {
		return err
	}
	defer done()
	if err := fill(ctx, pool, b.streams); err != nil {
		return err
	}
	events := float64(b.streams * eventsEach)
	plain := func(ctx context.Context) (float64, error) {
		began := time.Now()
		err := selectAll(ctx, pool, int64(events))
		return events / time.Since(began).Seconds(), err
	}
	err = b.compare(ctx, figure{Name: "verify", Unit: "events/s", PeerName: "by SELECT/s"}, func(ctx context.Context) (float64, error) {
		began := time.Now()
		r, err := ledger.Verify(ctx, pool, nil)
		if err == nil && (!r.OK() || r.Events != int64(events)) {
			err = fmt.Errorf("the ledger that was filled does not verify: %d events, %v, %v", r.Events, r.Faults, r.Differences)
		}
		return events / time.Since(began).Seconds(), err
	}, plain)
	if err != nil {
		return err
	}
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	defer store.Close()
	return b.compare(ctx, figure{Name: "read the feed", Unit: "events/s", PeerName: "by SELECT/s"}, func(ctx context.Context) (float64, error) {
		began := time.Now()
		n, err := followFeed(ctx, store)
		if err == nil && n != int(events) {
			err = fmt.Errorf("the feed has %d events of %d", n, int(events))
		}
		return events / time.Since(began).Seconds(), err
	}, plain)
}

// feedPage is how many events a forwarder reads at a time.
const feedPage = 500

func followFeed(ctx context.Context, store *postgres.Store) (n int, err error) {
	var at eventstore.Cursor
	for {
		page, err := store.ReadFeed(ctx, at, feedPage)
		if err != nil || len(page) == 0 {
			return n, err
		}
		n, at = n+len(page), page[len(page)-1].Cursor
	}
}

// selectAll reads every column of every event and looks at none.
func selectAll(ctx context.Context, pool *pgxpool.Pool, want int64) error {
	rows, err := pool.Query(ctx, "SELECT * FROM events ORDER BY stream, version")
	if err != nil {
		return err
	}
	defer rows.Close()
	var n int64
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("%d events were read of %d", n, want)
	}
	return nil
}
