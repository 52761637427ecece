package projections_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Whatever is changed behind the service's back is named: table, stream, and what
// the row is and should be.
func TestCheckNamesEveryRowThatDiffers(t *testing.T) {
	b := newBench(t)
	ids := b.populate(8)
	if r := b.check(); len(r.Differences) != 0 || r.Rows == 0 {
		t.Fatalf("before: %+v", r)
	}
	stream := func(i int) string { return "attempt/" + ids[i].String() }
	stranger := uuid.New()
	b.exec("UPDATE attempt_status SET status = 'succeeded' WHERE attempt_id = $1", ids[0].UUID())
	b.exec("UPDATE leases SET lease_until = lease_until + interval '1 microsecond' WHERE attempt_id = $1", ids[2].UUID())
	b.exec("DELETE FROM log_index WHERE attempt_id = $1", ids[3].UUID())
	b.exec("INSERT INTO leases SELECT (jsonb_populate_record(NULL::leases, to_jsonb(l) || jsonb_build_object('attempt_id', $1::text, 'stream', 'attempt/' || $1::text))).* FROM leases l LIMIT 1", stranger.String())
	b.exec("UPDATE artifacts SET stream = 'attempt/elsewhere' WHERE attempt_id = $1", ids[3].UUID())

	got := map[string]string{}
	for _, d := range b.check().Differences {
		kind := "other"
		switch {
		case d.Got == nil:
			kind = "missing"
		case d.Want == nil:
			kind = "extra"
		}
		got[d.Table+" "+d.Stream+" "+kind] += "x"
		if !strings.Contains(d.String(), d.Table) || !strings.Contains(d.String(), d.Stream) {
			t.Errorf("text %q", d)
		}
	}
	// A changed row is a missing one and an extra one.
	want := map[string]string{}
	for _, k := range []string{
		"attempt_status " + stream(0) + " missing", "attempt_status " + stream(0) + " extra",
		"leases " + stream(2) + " missing", "leases " + stream(2) + " extra",
		"log_index " + stream(3) + " missing",
		"leases attempt/" + stranger.String() + " extra",
		"artifacts " + stream(3) + " missing", "artifacts attempt/elsewhere extra",
	} {
		want[k] = "x"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, table := range []string{"attempt_status", "leases", "log_index", "artifacts"} {
		if _, err := projections.Rebuild(t.Context(), b.pool, table); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.check(); len(r.Differences) != 0 {
		t.Errorf("after the rebuilds: %v", r.Differences)
	}
}

// Replaying gives the same rows however the streams are cut into pages, and every
// stream ends in exactly one.
func TestReplayDoesNotDependOnPages(t *testing.T) {
	b := newBench(t)
	b.populate(20)
	var first string
	for _, size := range []int{1, 2, 3, 4, 7, 16, 64, 100000} {
		var rows []string
		var last eventstore.StreamID
		streams := map[eventstore.StreamID]int{}
		err := projections.InSnapshot(t.Context(), b.pool, func(s projections.Snapshot) error {
			var f *projections.StreamFold
			end := func(p projections.Page) {
				if f == nil {
					return
				}
				if streams[last]++; last <= p.After || !p.Last && last > p.UpTo {
					t.Errorf("pages of %d: %s ends in the page (%s, %s]", size, last, p.After, p.UpTo)
				}
				for _, table := range projections.Tables() {
					for _, row := range f.Rows(table.Name) {
						rows = append(rows, fmt.Sprintf("%s %s %s", table.Name, last, row))
					}
				}
				f = nil
			}
			return s.Walk(t.Context(), "", size, func(p projections.Page) (err error) {
				for _, e := range p.Events {
					if f == nil || e.Stream != last {
						end(p)
						last = e.Stream
						if f, err = projections.NewStreamFold(last); err != nil {
							return err
						}
					}
					if err := f.Add(e); err != nil {
						return err
					}
				}
				if p.Last {
					end(p)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		for stream, n := range streams {
			if n != 1 {
				t.Errorf("%s was seen %d times in pages of %d", stream, n, size)
			}
		}
		slices.Sort(rows)
		all := strings.Join(rows, "\n")
		if first == "" {
			first = all
		}
		if all != first || len(rows) == 0 {
			t.Errorf("pages of %d give other rows: %s", size, cmp.Diff(first, all))
		}
	}
}
