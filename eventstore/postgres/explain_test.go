package postgres_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

// plan is what EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) says about a node.
type plan struct {
	NodeType  string  `json:"Node Type"`
	Relation  string  `json:"Relation Name"`
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Hit       int64   `json:"Shared Hit Blocks"`
	Read      int64   `json:"Shared Read Blocks"`
	Plans     []plan  `json:"Plans"`
}

func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, child := range p.Plans {
		child.walk(visit)
	}
}

// explain runs a statement under the settings of the store, commits it, and
// returns its plan.
func explain(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) plan {
	t.Helper()
	var out []byte
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&out)
	})
	if err != nil {
		t.Fatal(err)
	}
	var doc []struct{ Plan plan }
	if err := json.Unmarshal(out, &doc); err != nil || len(doc) != 1 {
		t.Fatalf("plan %s: %v", out, err)
	}
	return doc[0].Plan
}

// manyEvents is how many events stand behind the open transaction.
const manyEvents = 300_000

// insertMany writes events of new streams by SQL, as one committed transaction.
// Only the columns that the feed looks at matter.
func insertMany(t *testing.T, pool *pgxpool.Pool, prefix string, n int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
		INSERT INTO events (version, time, event_id, command_id, cause, schema, stream, type, command_digest, actor_kind, actor_id,
			actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
		SELECT 1, clock_timestamp(), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, $1 || n, 'suite.happened', z, '', '',
			'', '', '', '', '', z, z, '{}'
		FROM generate_series(1, $2::int) n, (SELECT decode(repeat('00', 32), 'hex') AS z) z`, prefix, n)
	if err != nil {
		t.Fatal(err)
	}
}

// TestTickBehindAnOpenTransaction: 300,000 events were appended and fed while a
// transaction stays open. The next tick reads its few new events and not those
// again, whatever the statistics of the table say.
func TestTickBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	term := acquire(t, s, "q")
	q := postgres.NewSequencer(s, "q", postgres.SequencerOptions{})
	openTransaction(t, pool)
	insertMany(t, pool, "many/", manyEvents)
	if fed, _, err := q.Tick(t.Context(), term); err != nil || fed != manyEvents {
		t.Fatalf("the first tick fed %d (%v), want %d", fed, err, manyEvents)
	}
	for _, statistics := range []string{`SELECT 1`, `ANALYZE events`, `VACUUM ANALYZE events`} {
		if _, err := pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 5} {
			if n > 0 {
				do(t, s, "few/a", n)
			}
			var blocks int64
			var touched float64
			root := explain(t, pool, postgres.TickSQL, "q", term)
			root.walk(func(p plan) {
				blocks = max(blocks, p.Hit+p.Read)
				if p.Relation == "events" {
					touched += (p.Rows + p.Filtered + p.Rechecked) * max(p.Loops, 1)
				}
			})
			if touched > float64(n) || blocks > 400 {
				t.Errorf("after %s: a tick over %d new events touched %.0f rows and %d blocks", statistics, n, touched, blocks)
			}
			if blocks == 0 {
				t.Error("the plan says nothing about blocks: the test sees nothing")
			}
		}
	}
	if end, err := s.FeedEnd(t.Context()); err != nil || end.Seq != manyEvents+15 {
		t.Errorf("the feed ends at %v (%v), want seq %d", end, err, manyEvents+15)
	}
}

// TestTickBehindAnOldSnapshot: a transaction that reads for hours keeps vacuum
// from removing anything. What thousands of ticks leave behind does not make the
// next one read more.
func TestTickBehindAnOldSnapshot(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	term := acquire(t, s, "q")
	q := postgres.NewSequencer(s, "q", postgres.SequencerOptions{})
	blocks := func() (n int64) {
		for range 3 {
			root := explain(t, pool, postgres.TickSQL, "q", term)
			n = root.Hit + root.Read
		}
		return n
	}
	before := blocks()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM sequencer`); err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if _, _, err := q.Tick(t.Context(), term); err != nil {
			t.Fatal(err)
		}
	}
	if after := blocks(); before == 0 || after > before+20 {
		t.Errorf("a tick touches %d blocks behind 3,000 others and an old snapshot, %d before", after, before)
	}
}

// appendBlocks appends one event to a stream, n times, and returns the median
// number of blocks that load and append touched.
func appendBlocks(t *testing.T, s *postgres.Store, pool *pgxpool.Pool, stream eventstore.StreamID, n int) int64 {
	t.Helper()
	var all []int64
	for range n {
		command := uuid.New()
		l, err := s.Load(t.Context(), stream, command)
		if err != nil {
			t.Fatal(err)
		}
		a := storetest.Command(l, stream, command, 1)
		a.Rows = []eventstore.Change{{Table: "suite_status", Row: []byte(`{"id":"` + string(stream) + `","status":"s","n":1,"at":null}`)}}
		sql, args, err := s.Statement(a)
		if err != nil {
			t.Fatal(err)
		}
		loaded := explain(t, pool, postgres.LoadSQL, string(stream), eventstore.EventID(command, 0))
		root := explain(t, pool, sql, args...)
		root.walk(func(p plan) {
			if strings.Contains(p.NodeType, "Seq Scan") {
				t.Errorf("the append reads %s as a whole", p.Relation)
			}
		})
		all = append(all, loaded.Hit+loaded.Read+root.Hit+root.Read)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// TestCommandCostDoesNotGrow: a command costs the same at version 10 and at
// version 10,000 of a stream.
func TestCommandCostDoesNotGrow(t *testing.T) {
	t.Parallel()
	s, pool := openStore(t, postgres.Options{})
	do(t, s, "cost/young", 10)
	for range 20 {
		do(t, s, "cost/old", 500)
	}
	for _, statistics := range []string{`SELECT 1`, `ANALYZE`} {
		if _, err := pool.Exec(t.Context(), statistics); err != nil {
			t.Fatal(err)
		}
		young, old := appendBlocks(t, s, pool, "cost/young", 15), appendBlocks(t, s, pool, "cost/old", 15)
		if young == 0 || old > young+young/10+2 {
			t.Errorf("after %s: load and append touch %d blocks at version 10,000 and %d at version 10", statistics, old, young)
		}
	}
	if got := versions(t, s, "cost/old"); got["cost/old"] != 10_030 {
		t.Errorf("versions %v: the explained appends did not take effect", got)
	}
}

// TestHeadsStayHOT: appends update the head within its page, with no index entry.
func TestHeadsStayHOT(t *testing.T) {
	t.Parallel()
	_, pool := openStore(t, postgres.Options{})
	cfg := pool.Config()
	cfg.MaxConns = 1 // one session, whose statistics are then complete
	single, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(single.Close)
	s := postgres.Open(single, storetest.Tables(), postgres.Options{})
	t.Cleanup(s.Close)
	for range 200 {
		do(t, s, "hot/a", 1)
	}
	var updates, hot int64
	if _, err := single.Exec(context.WithoutCancel(t.Context()), `SELECT pg_stat_force_next_flush()`); err != nil {
		t.Fatal(err)
	}
	if err := single.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'stream_heads'`).Scan(&updates, &hot); err != nil {
		t.Fatal(err)
	}
	if updates != 199 || hot < 190 {
		t.Errorf("%d of %d head updates were HOT, want nearly all of 199", hot, updates)
	}
}
