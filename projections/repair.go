package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// repairStreams and repairRows bound what one transaction mends, and so how
	// long writers of its streams wait.
	repairStreams = 100
	repairRows    = 1000
	// repairWait is how long a repair waits for a lock before it lets go, and
	// others behind it go on; repairTries is how often it comes back.
	repairWait  = "200ms"
	repairTries = 100
	repairPause = 50 * time.Millisecond
)

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// repair writes the rows of damaged streams anew.
func (b *rebuild) repair(ctx context.Context, found map[string]*damage) error {
	if len(found) == 0 {
		return nil
	}
	var some, orphans []*damage
	rows := 0
	for _, name := range slices.Sorted(maps.Keys(found)) {
		d := found[name]
		if d.version == 0 {
			orphans = append(orphans, d)
			continue
		}
		n := len(d.want) + len(d.extra)
		if len(some) > 0 && (len(some) == repairStreams || rows+n > repairRows) {
			if err := b.mend(ctx, some); err != nil {
				return err
			}
			some, rows = nil, 0
		}
		some, rows = append(some, d), rows+n
	}
	if err := b.mend(ctx, some); err != nil {
		return err
	}
	for part := range slices.Chunk(orphans, repairStreams) {
		if err := b.retried(ctx, func(tx pgx.Tx) error { return b.removeOrphans(ctx, tx, part) }); err != nil {
			return err
		}
	}
	return nil
}

// mend repairs some streams in one transaction. If the database refuses the rows
// of one, the others are mended without it.
func (b *rebuild) mend(ctx context.Context, some []*damage) error {
	if len(some) == 0 {
		return nil
	}
	var broken map[string]error
	err := b.retried(ctx, func(tx pgx.Tx) (err error) {
		broken, err = b.mendIn(ctx, tx, some)
		return err
	})
	switch {
	case err == nil:
		for stream, why := range broken {
			b.cannot(stream, why)
		}
		return nil
	case !isDataError(err):
		return err
	case len(some) == 1:
		b.cannot(some[0].stream, err)
		return nil
	}
	half := len(some) / 2
	if err := b.mend(ctx, some[:half]); err != nil {
		return err
	}
	return b.mend(ctx, some[half:])
}

// retried runs fn in a transaction of its own, again if a lock was not to be had.
func (b *rebuild) retried(ctx context.Context, fn func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			// The plans of a page, see snapshotSettings, also for lists of streams.
			if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)", repairWait); err != nil {
				return err
			}
			return fn(tx)
		})
		var pg *pgconn.PgError
		busy := errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01") // lock_not_available, deadlock_detected
		if !busy || try == repairTries {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(repairPause):
		}
	}
}

// mendIn locks the heads first, as an append does, in the same order: until the
// end nobody adds to these streams, and nobody else writes their rows. A stream
// that has moved on since the snapshot is folded again.
func (b *rebuild) mendIn(ctx context.Context, tx pgx.Tx, some []*damage) (broken map[string]error, err error) {
	versions, err := lockHeads(ctx, tx, some)
	if err != nil {
		return nil, err
	}
	var moved []string
	for _, d := range some {
		if versions[d.stream] != d.version {
			moved = append(moved, d.stream)
		}
	}
	folds, err := foldsOf(ctx, tx, moved)
	if err != nil {
		return nil, err
	}
	var batch pgx.Batch
	broken = map[string]error{}
	for _, d := range some {
		o := folds[d.stream]
		switch {
		case o != nil && o.broken != nil:
			broken[d.stream] = o.broken
			continue
		case o != nil:
			d.want = rowTexts(o.fold, b.table.Name)
		}
		if len(d.extra) > 0 {
			batch.Queue(b.deleteSQL(), d.stream, d.extra)
		}
		if len(d.want) > 0 {
			batch.Queue(b.upsertSQL(), d.stream, d.want)
		}
	}
	return broken, tx.SendBatch(ctx, &batch).Close()
}

func lockHeads(ctx context.Context, tx pgx.Tx, some []*damage) (map[string]int64, error) {
	streams := make([]string, len(some))
	for i, d := range some {
		streams[i] = d.stream
	}
	rows, err := tx.Query(ctx, `SELECT stream, version FROM stream_heads WHERE stream = ANY($1) ORDER BY stream FOR UPDATE`, streams)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(some))
	var stream string
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&stream, &version}, func() error { out[stream] = version; return nil })
	return out, err
}

func foldsOf(ctx context.Context, tx pgx.Tx, streams []string) (map[string]*openStream, error) {
	if len(streams) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, selectEvents+"stream = ANY($1) ORDER BY stream, version", streams)
	if err != nil {
		return nil, readError("events", err)
	}
	defer rows.Close()
	out := make(map[string]*openStream, len(streams))
	var r eventReader
	for rows.Next() {
		e, err := r.scan(rows)
		if err != nil {
			return nil, readError("events", err)
		}
		o := out[string(e.Stream)]
		if o == nil {
			o = openAt(e.Stream)
			out[string(e.Stream)] = o
		}
		o.add(e)
	}
	return out, rows.Err()
}

// removeOrphans deletes rows of streams that do not exist. There is no head to
// lock, so all writers wait for its length.
func (b *rebuild) removeOrphans(ctx context.Context, tx pgx.Tx, orphans []*damage) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE stream_heads IN SHARE MODE"); err != nil {
		return err
	}
	streams := make([]string, len(orphans))
	for i, d := range orphans {
		streams[i] = d.stream
	}
	rows, err := tx.Query(ctx, "SELECT DISTINCT stream FROM events WHERE stream = ANY($1)", streams)
	if err != nil {
		return err
	}
	begun, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var batch pgx.Batch
	for _, d := range orphans {
		if !slices.Contains(begun, d.stream) { // its first append wrote its rows
			batch.Queue(b.deleteSQL(), d.stream, d.extra)
		}
	}
	return tx.SendBatch(ctx, &batch).Close()
}

// deleteSQL deletes rows of one stream by their keys.
func (b *rebuild) deleteSQL() string {
	keys := make([]string, len(b.table.Key))
	for i, k := range b.table.Key {
		keys[i] = fmt.Sprintf("x.%[1]s = p.%[1]s", quoted(k))
	}
	return fmt.Sprintf(`DELETE FROM %[1]s x USING unnest($2::text[]) AS r(doc), jsonb_populate_record(NULL::%[1]s, r.doc::jsonb) AS p
		WHERE %[2]s AND x.stream = $1`, quoted(b.table.Name), strings.Join(keys, " AND "))
}

// upsertSQL writes rows of one stream, also where their keys bear another stream's
// name: a key belongs to the stream whose events give it.
func (b *rebuild) upsertSQL() string {
	columns, sets := make([]string, len(b.table.Columns)), []string{"stream = excluded.stream"}
	for i, c := range b.table.Columns {
		columns[i] = quoted(c)
		if !slices.Contains(b.table.Key, c) {
			sets = append(sets, fmt.Sprintf("%[1]s = excluded.%[1]s", quoted(c)))
		}
	}
	keys := make([]string, len(b.table.Key))
	for i, k := range b.table.Key {
		keys[i] = quoted(k)
	}
	list := strings.Join(columns, ", ")
	return fmt.Sprintf(`INSERT INTO %[1]s (stream, %[2]s) SELECT $1, %[3]s FROM unnest($2::text[]) AS r(doc), jsonb_populate_record(NULL::%[1]s, r.doc::jsonb) AS p
		ON CONFLICT (%[4]s) DO UPDATE SET %[5]s`, quoted(b.table.Name), list, "p."+strings.Join(columns, ", p."), strings.Join(keys, ", "), strings.Join(sets, ", "))
}
