package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
)

// An append that comes too late is told so, whatever is wrong with it besides: its
// rows are not looked at. That holds for the statement for one append and for that
// for many.
func TestALostAppendIsNotBlamedForItsRows(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*pgxpool.Pool, []eventstore.Table, postgres.Options) *postgres.Store{
		"one": postgres.Open, "many": postgres.OpenMany,
	} {
		_, pool := openStore(t, postgres.Options{})
		s := open(pool, storetest.Tables(), postgres.Options{})
		t.Cleanup(s.Close)
		stale := batchOf(t, s, 3)
		do(t, s, "batch/00", 1)
		do(t, s, "batch/01", 1)
		const poison = `{"id":"poison","status":"s","n":"many","at":null}`
		stale[0].Rows[0].Row = []byte(poison)
		stale[1].Rows = append(stale[1].Rows, eventstore.Change{Table: "suite_status", Row: []byte(poison)})
		stale[2].Rows[0].Row = []byte(poison)
		for i, a := range stale {
			_, err := s.Append(t.Context(), a)
			var c *eventstore.ConflictError
			if i < 2 && (!errors.As(err, &c) || c.Reason != "version" || c.Actual != 1) || i == 2 && !errors.Is(err, eventstore.ErrInvalid) {
				t.Errorf("%s, append %d: %v", name, i, err)
			}
		}
	}
}
