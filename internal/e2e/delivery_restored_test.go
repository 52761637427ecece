package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

// A database is moved to another cluster while events of it were not published and
// callbacks not made: there it goes on, under the next generation of the feed, and
// nothing is left out.
func restoredElsewhere(t *testing.T, broker *kafkatest.Process) {
	server := pgtest.StartServer(t)
	d := newDelivered(t, setup{}, broker)
	s := d.serve()
	r := d.startRunner(s.plane.URL(), 2)
	d.wantSucceeded(s.control, d.quickly(s.control, 2)...)
	d.arrived()
	// A replica that does not deliver: what it takes stands in the ledger alone.
	s.stop()
	quiet := d.startService("api", "dispatcher", "artifact-worker")
	r.stop()
	runner := d.startRunner(quiet.plane.URL(), 2)
	ids := d.quickly(quiet.control, 3)
	d.wantSucceeded(quiet.control, ids...)
	runner.stop()
	quiet.stop()
	before, err := d.desk.Store.FeedEnd(d.ctx)
	if err != nil {
		t.Fatal(err)
	}

	moveRows(t, d.desk.Pool, server.NewPool())
	d.moveTo(server.URL)
	next := d.serve()
	d.startRunner(next.plane.URL(), 2)
	d.wantSucceeded(next.control, append(d.quickly(next.control, 1), ids...)...)
	d.arrived()
	if end, err := d.desk.Store.FeedEnd(d.ctx); err != nil || end.Generation != before.Generation+1 {
		t.Errorf("the feed ends at %s after %s (%v)", end, before, err)
	}
}

// moveRows copies all rows of one migrated database into another.
func moveRows(t *testing.T, from, to *pgxpool.Pool) {
	t.Helper()
	rows, err := from.Query(t.Context(), `SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relname <> 'goose_db_version'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	dst, err := to.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Release()
	src, err := from.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer src.Release()
	for _, table := range tables {
		name := pgx.Identifier{table}.Sanitize()
		var data bytes.Buffer
		if _, err := src.Conn().PgConn().CopyTo(t.Context(), &data, "COPY "+name+" TO STDOUT"); err != nil {
			t.Fatalf("read %s: %v", table, err)
		}
		// What the migrations put in goes first; triggers guard it from others.
		for _, sql := range []string{"ALTER TABLE %s DISABLE TRIGGER ALL", "DELETE FROM %s"} {
			if _, err := dst.Exec(t.Context(), fmt.Sprintf(sql, name)); err != nil {
				t.Fatalf("empty %s: %v", table, err)
			}
		}
		if _, err := dst.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(data.String()), "COPY "+name+" FROM STDIN"); err != nil {
			t.Fatalf("write %s: %v", table, err)
		}
		if _, err := dst.Exec(t.Context(), fmt.Sprintf("ALTER TABLE %s ENABLE TRIGGER ALL", name)); err != nil {
			t.Fatal(err)
		}
	}
	sequences, err := src.Query(t.Context(), `SELECT schemaname || '.' || sequencename, last_value FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL AND sequencename NOT LIKE 'goose%'`)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]int64{}
	for sequences.Next() {
		var name string
		var value int64
		if err := sequences.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}
		values[name] = value
	}
	if err := sequences.Err(); err != nil || len(values) == 0 {
		t.Fatalf("sequences %v, %v", values, err)
	}
	for name, value := range values {
		if _, err := dst.Exec(t.Context(), "SELECT setval($1::text::regclass, $2)", name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// moveTo lets the world go on with another database; its tokens stay good.
func (d *delivered) moveTo(url string) {
	d.t.Helper()
	d.t.Cleanup(d.desk.Close)
	d.db = url
	d.look()
}
