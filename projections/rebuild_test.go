package projections_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/projections"
)

// Two tables are rebuilt in both orders, twice, while writers append. After each
// step both are what the events say, and no writer noticed.
func TestRebuildWhileWritersAppend(t *testing.T) {
	const writers = 20
	b := newBench(t)
	b.populate(8)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	errs := make([]error, writers)
	lives := make([]int, writers)
	var slowest struct {
		sync.Mutex
		time.Duration
	}
	// The writers' work is bounded by step, or a slow machine would let them outrun
	// the checks for ever.
	work := make(chan struct{}, 1000)
	for i := range writers {
		wg.Go(func() {
			for errs[i] == nil {
				select {
				case <-ctx.Done():
					return
				case <-work:
				}
				began := time.Now()
				_, errs[i] = b.life(t.Context(), lives[i]%4+1)
				lives[i]++
				slowest.Lock()
				slowest.Duration = max(slowest.Duration, time.Since(began))
				slowest.Unlock()
			}
		})
	}
	for range 2 {
		for _, order := range [][]string{{"leases", "attempt_status"}, {"attempt_status", "leases"}} {
			for _, table := range order {
				for range 3 * writers {
					work <- struct{}{}
				}
				if _, err := projections.Rebuild(t.Context(), b.pool, table); err != nil {
					t.Errorf("rebuild %s: %v", table, err)
				}
				if r := b.check(); len(r.Differences) > 0 {
					t.Errorf("after the rebuild of %s: %v", table, r.Differences)
				}
			}
		}
	}
	cancel()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("a writer failed: %v", err)
	}
	for i, n := range lives {
		if n == 0 {
			t.Errorf("writer %d did nothing", i)
		}
	}
	r := b.check()
	if len(r.Differences) > 0 || r.Streams < writers {
		t.Errorf("in the end: %+v", r)
	}
	t.Logf("%d events; the longest life of an attempt took %s", r.Events, slowest.Duration)
}

// A rebuilt table is the old one in every respect: contents, columns, indexes with
// their names, constraints, storage parameters, comment and grants.
func TestARebuiltTableIsAsTheMigrationsMadeIt(t *testing.T) {
	b := newBench(t)
	b.populate(8)
	b.exec("GRANT SELECT ON attempts TO PUBLIC")
	for _, table := range projections.Tables() {
		before := b.shape(table.Name) + "\n" + b.contents(table.Name)
		if b.contents(table.Name) == "" {
			t.Errorf("the test has no row in %s", table.Name)
		}
		for range 2 {
			rows, err := projections.Rebuild(t.Context(), b.pool, table.Name)
			if err != nil || int(rows) != strings.Count(b.contents(table.Name), "\n")+1 {
				t.Fatalf("rebuild %s: %d rows, %v", table.Name, rows, err)
			}
		}
		if d := cmp.Diff(before, b.shape(table.Name)+"\n"+b.contents(table.Name)); d != "" {
			t.Errorf("%s after two rebuilds: %s", table.Name, d)
		}
	}
	if left := b.text("SELECT coalesce(string_agg(relname, ', '), '') FROM pg_class WHERE relname LIKE '%rebuild%'"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func (b *bench) shape(table string) string {
	b.t.Helper()
	return b.text(`
		SELECT concat_ws(E'\n', coalesce(c.reloptions::text, 'no parameters'), obj_description(c.oid, 'pg_class'), coalesce(c.relacl::text, 'no grants'),
			(SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || coalesce(col_description(c.oid, a.attnum), ''), E'\n' ORDER BY a.attnum)
				FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
			(SELECT string_agg(i.indexdef, E'\n' ORDER BY i.indexname) FROM pg_indexes i WHERE i.tablename = c.relname),
			(SELECT string_agg(k.conname || ' ' || pg_get_constraintdef(k.oid), E'\n' ORDER BY k.conname) FROM pg_constraint k WHERE k.conrelid = c.oid))
		FROM pg_class c WHERE c.oid = to_regclass($1)`, table)
}
