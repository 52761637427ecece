package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// settings hold for the statement that follows in the same pipeline, which
// Postgres runs as one implicit transaction: no explicit BEGIN, one round trip,
// nothing left on the pooled connection.
//
// Sequential scans are off because a plan that was made and cached while the
// tables were tiny would otherwise be kept while they grow, until the next
// ANALYZE. Compiling (jit) and parallel workers are off because a statement with
// sequential scans off, or a generic plan over a large table, looks so dear to
// Postgres that it would use them each time, which takes far longer than running
// it. Generic plans are forced because planning the append costs more than
// running it. A commit waits for the disk even where the database has a default
// that would not.
const settings = `SELECT set_config('lock_timeout', $1, true), ` + planSettings

const planSettings = `set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`

// query runs one statement and hands its rows to scan, which must not keep them.
func (s *Store) query(ctx context.Context, sql string, args []any, scan func(pgx.Rows) error) (err error) {
	b := &pgx.Batch{}
	b.Queue(settings, strconv.FormatInt(s.opts.LockTimeout.Milliseconds(), 10)+"ms")
	b.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, b)
	defer func() {
		if cerr := results.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}
