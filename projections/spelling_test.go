package projections_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/projections"
)

// What the events give and what the tables hold is spelled alike, every row of
// every table: the database is asked about none of them.
func TestRowsAreSpelledAlike(t *testing.T) {
	b := newBench(t)
	b.populate(4)
	b.exec("UPDATE attempts SET labels = labels") // another version of each row
	err := projections.InSnapshot(t.Context(), b.pool, func(s projections.Snapshot) error {
		want, got, err := projections.Spellings(t.Context(), s)
		for _, table := range projections.Tables() {
			slices.Sort(want[table.Name])
			slices.Sort(got[table.Name])
			if d := cmp.Diff(want[table.Name], got[table.Name]); d != "" || slices.Contains(want[table.Name], "") {
				t.Errorf("%s: %s", table.Name, d)
			}
			if len(want[table.Name]) == 0 && table.Name != "tokens" {
				t.Errorf("%s has no rows: nothing is tried", table.Name)
			}
			if !slices.Equal(table.Columns[:len(table.Key)], table.Key) {
				t.Errorf("rows of %s do not begin with their keys", table.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// changed is another value of a column's type.
var changed = map[string]string{
	"uuid":                     "gen_random_uuid()",
	"text":                     "coalesce(%, '') || ' '",
	"bigint":                   "coalesce(%, 0) + 1",
	"integer":                  "coalesce(%, 0) + 4294967",
	"boolean":                  "NOT %",
	"timestamp with time zone": "coalesce(%, '2026-01-01') + interval '1 microsecond'",
	"jsonb":                    `coalesce(%, '{}') || '{"x": 1.0}'`,
	"ARRAY":                    "array_append(%, NULL)",
}

// A change of any column of any table is found, however small, and so is a column
// that only the table knows.
func TestEveryColumnCounts(t *testing.T) {
	b := newBench(t)
	b.populate(4)
	b.exec("ALTER TABLE attempt_status DROP CONSTRAINT attempt_status_phase")
	b.exec("ALTER TABLE leases DROP CONSTRAINT leases_kind")
	b.exec("ALTER TABLE callbacks DROP CONSTRAINT callbacks_state")
	try := func(table, column, value string) {
		t.Helper()
		b.exec("CREATE TABLE kept AS SELECT * FROM " + table)
		b.exec("UPDATE " + table + " SET " + column + " = " + value + " WHERE ctid = (SELECT min(ctid) FROM " + table + ")")
		if r := b.check(); len(r.Differences) != 2 || r.Differences[0].Table != table || r.Differences[0].Got == nil || r.Differences[1].Want == nil {
			t.Errorf("%s.%s = %s: %v", table, column, value, r.Differences)
		}
		b.exec("TRUNCATE " + table)
		b.exec("INSERT INTO " + table + " SELECT * FROM kept")
		b.exec("DROP TABLE kept")
	}
	for _, table := range projections.Tables() {
		if b.text("SELECT count(*)::text FROM "+table.Name) == "0" {
			continue
		}
		for _, column := range table.Columns {
			kind := b.text("SELECT data_type FROM information_schema.columns WHERE table_name = $1 AND column_name = $2", table.Name, column)
			try(table.Name, column, strings.ReplaceAll(changed[kind], "%", column))
		}
	}
	b.exec("ALTER TABLE runners ADD COLUMN extra text")
	if r := b.check(); len(r.Differences) != 0 {
		t.Errorf("a column without values: %v", r.Differences)
	}
	try("runners", "extra", "'x'")
	// The same value in another form is no difference.
	b.exec("UPDATE attempts SET resource_ids = ('[3:3]={' || resource_ids[1] || '}')::text[], labels = '{ \"team\" : \"a\" }'")
	b.exec("UPDATE runners SET labels = '{}', isolation = '{process}'")
	if r := b.check(); len(r.Differences) != 0 {
		t.Errorf("other forms: %v", r.Differences)
	}
}
