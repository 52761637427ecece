package projections_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/projections"
)

// statements keeps what a reader asks.
type statements struct{ all []pgx.TraceQueryStartData }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.all = append(s.all, d)
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestDeliveryQueriesStayFlat: what is asked for now and then must not read a table
// that grows for ever. CallbackCounts is not among them: it reads all that are open,
// by an index where vacuum has been, and its answers are kept for some seconds.
func TestDeliveryQueriesStayFlat(t *testing.T) {
	t.Parallel()
	pool := pgtest.NewPool(t)
	// Of 40,000 callbacks some wait and many were given up; "busy" has none of these.
	for _, sql := range []string{
		`INSERT INTO callbacks (callback_id, stream, endpoint, attempt_id, state, round, tries, next_at, scheduled_at, give_up_at, result_sha256, result_bytes)
			SELECT gen_random_uuid(), 'callback/' || n, CASE WHEN n % 2 = 0 THEN 'busy' ELSE 'ops' END, gen_random_uuid(),
				CASE WHEN n % 4000 = 3 THEN 'pending' WHEN n % 4 = 1 THEN 'exhausted' ELSE 'delivered' END, 1, 1, at, at, at, '', 1
			FROM generate_series(1, 40000) n, LATERAL (SELECT now() - make_interval(secs => n) AS at) x`,
		`INSERT INTO results (seq, generation, attempt_id, job_type, environment, sha256, body, ended_at)
			SELECT n, 1, gen_random_uuid(), '', '', '', convert_to(repeat('x', 500), 'UTF8'), now() - make_interval(secs => 40000 - n) FROM generate_series(1, 40000) n`,
		`VACUUM ANALYZE callbacks, results`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	asked := &statements{}
	config := pool.Config()
	config.ConnConfig.Tracer = asked
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer traced.Close()
	r := projections.NewReader(traced)
	list := func(f projections.CallbackFilter) func() error {
		f.Limit = 50
		return func() error { _, err := r.Callbacks(t.Context(), f); return err }
	}
	seqAt := func(ago time.Duration) func() error {
		return func() error { _, _, err := r.SeqAt(t.Context(), time.Now().Add(-ago)); return err }
	}
	for name, ask := range map[string]func() error{
		"all":                   list(projections.CallbackFilter{}),
		"a later page":          list(projections.CallbackFilter{Before: time.Now().Add(-9 * time.Hour), BeforeID: uuid.New()}),
		"an endpoint":           list(projections.CallbackFilter{Endpoint: "ops"}),
		"an endpoint of nobody": list(projections.CallbackFilter{Endpoint: "none"}),
		"an attempt":            list(projections.CallbackFilter{AttemptID: domain.NewID[domain.AttemptID](uuid.New())}),
		"given up":              list(projections.CallbackFilter{Endpoint: "ops", State: "exhausted"}),
		"none given up":         list(projections.CallbackFilter{Endpoint: "busy", State: "exhausted"}),
		"none waits":            list(projections.CallbackFilter{Endpoint: "busy", State: "pending"}),
		"waiting anywhere":      list(projections.CallbackFilter{State: "pending"}),
		"due":                   func() error { _, err := r.DueCallbacks(t.Context(), "ops", 50); return err },
		"results by time":       seqAt(time.Hour),
		"results before any":    seqAt(24 * time.Hour),
		"results after all":     seqAt(-time.Hour),
		"the newest results":    func() error { _, err := r.ResultsAfter(t.Context(), 39_900, 50); return err },
		"the result of somebody": func() error {
			_, _, err := r.StoredResult(t.Context(), domain.NewID[domain.AttemptID](uuid.New()))
			return err
		},
	} {
		asked.all = nil
		if err := ask(); err != nil || len(asked.all) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		for _, q := range asked.all {
			if n := blocks(t, pool, q.SQL, q.Args); n > 300 {
				t.Errorf("%s: %d blocks: %s", name, n, q.SQL)
			}
		}
	}
}

// blocks is how many a statement touches at most, while the server makes a plan for
// its arguments and when it may have settled on one for all.
func blocks(t *testing.T, pool *pgxpool.Pool, sql string, args []any) (most int64) {
	t.Helper()
	places := make([]string, len(args))
	for i := range args {
		places[i] = "$" + strconv.Itoa(i+1)
	}
	call := "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked"
	if len(args) > 0 {
		call += "(" + strings.Join(places, ", ") + ")"
	}
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Release()
	// A statement that is explained by itself is always planned for its arguments.
	if _, err := c.Conn().Prepare(t.Context(), "asked", sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for range 7 {
		var out []byte
		if err := c.QueryRow(t.Context(), call, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&out); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var doc []struct {
			Plan struct {
				Hit  int64 `json:"Shared Hit Blocks"`
				Read int64 `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(out, &doc); err != nil || len(doc) != 1 {
			t.Fatalf("plan %s: %v", out, err)
		}
		most = max(most, doc[0].Plan.Hit+doc[0].Plan.Read)
	}
	if err := c.Conn().Deallocate(t.Context(), "asked"); err != nil {
		t.Fatal(err)
	}
	return most
}
