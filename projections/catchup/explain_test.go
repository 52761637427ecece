package catchup_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/projections/catchup"
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

// touched is how many rows of the feed and of events the plan looked at.
func (p plan) touched() (n float64) {
	if p.Relation == "feed" || p.Relation == "events" {
		n = (p.Rows + p.Filtered + p.Rechecked) * max(p.Loops, 1)
	}
	for _, child := range p.Plans {
		n += child.touched()
	}
	return n
}

// TestReadingStaysFlat: a page costs the same whether 10,000 events wait or
// 400,000, whatever the statistics of the tables say and whoever makes the plan.
func TestReadingStaysFlat(t *testing.T) {
	t.Parallel()
	const all, page = 400_000, 500
	pool := pgtest.NewPool(t)
	exec := func(sql string, args ...any) {
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	// A page looks at none of these; without them the events come in a third of the time.
	exec(`ALTER TABLE events DROP CONSTRAINT events_pkey, DROP CONSTRAINT events_event_id_key; DROP INDEX events_tx_id_position;
		ALTER TABLE feed DROP CONSTRAINT feed_position_key; ALTER TABLE events SET UNLOGGED; ALTER TABLE feed SET UNLOGGED`)
	exec(`INSERT INTO events (position, version, time, event_id, command_id, cause, schema, stream, type, command_digest, actor_kind, actor_id,
			actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
		SELECT n, 1, clock_timestamp(), gen_random_uuid(), z, z, 1, 'many/' || n, CASE WHEN n % 100 = 0 THEN $2 ELSE 'execution.attempt.heartbeat' END,
			d, '', '', '', '', '', '', '', d, d, '{}'
		FROM generate_series(1, $1::int) n, (SELECT decode(repeat('00', 32), 'hex') AS d, '00000000-0000-0000-0000-000000000000'::uuid AS z) x`, all, wanted.EventType())
	exec(`INSERT INTO feed SELECT n, n FROM generate_series(1, $1::int) n`, all)
	exec(`INSERT INTO checkpoints VALUES ('suite', 1, 0, now())`)
	query, args := catchup.SelectSQL(projection(nil), page)
	look := func(mode string, backlog int64) plan {
		exec(`UPDATE checkpoints SET seq = $1 WHERE name = 'suite'`, all-backlog)
		var out []byte
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT set_config('plan_cache_mode', $1, true)`, mode); err != nil {
				return err
			}
			// A statement that is explained by itself is always planned for its arguments.
			if _, err := tx.Prepare(t.Context(), "page", query); err != nil {
				return err
			}
			places := make([]string, len(args))
			for i := range args {
				places[i] = "$" + strconv.Itoa(i+1)
			}
			explain := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE page(" + strings.Join(places, ", ") + ")"
			err := tx.QueryRow(t.Context(), explain, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&out)
			return errors.Join(err, tx.Conn().Deallocate(t.Context(), "page"))
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
	for _, statistics := range []string{`SELECT 1`, `ANALYZE feed, events, checkpoints`, `VACUUM ANALYZE feed, events, checkpoints`} {
		exec(statistics)
		for i, backlog := range []int64{10_000, 100_000, all, 10_000, 100_000, all} {
			p := look([]string{"force_generic_plan", "force_custom_plan"}[i/3], backlog)
			if n := p.touched(); n != 2*page {
				t.Errorf("after %s, backlog %d: a page touched %.0f rows of feed and events, want %d", statistics, backlog, n, 2*page)
			}
			if blocks := p.Hit + p.Read; blocks == 0 || blocks > 8*page {
				t.Errorf("after %s, backlog %d: a page touched %d blocks", statistics, backlog, blocks)
			}
			if p.Rows != page/100 {
				t.Errorf("after %s, backlog %d: %.0f rows were handed on, want the %d wanted ones (the last of the page is one)", statistics, backlog, p.Rows, page/100)
			}
		}
	}
}
