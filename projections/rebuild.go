package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

const (
	barrierTimeout = "500ms" // how long a swap waits for the table before it lets go and tries again
	swapTries      = 20
)

// Rebuild makes one inline table anew from the events and puts it in the live
// one's place. Writers go on while the copy is folded beside the table; only the
// swap holds them, for what has changed since. It returns the number of rows.
func Rebuild(ctx context.Context, pool *pgxpool.Pool, table string) (rows int64, err error) {
	i := slices.IndexFunc(Tables(), func(t eventstore.Table) bool { return t.Name == table })
	if i < 0 {
		names := []string{}
		for _, t := range Tables() {
			names = append(names, t.Name)
		}
		return 0, fmt.Errorf("there is no projection %q; it is one of %s", table, strings.Join(names, ", "))
	}
	b := rebuild{pool: pool, table: Tables()[i], shadow: table + "_rebuild", seen: map[string]int64{}}
	release, err := b.alone(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	if err := b.begin(ctx); err != nil {
		return 0, errors.Join(err, b.drop(context.WithoutCancel(ctx)))
	}
	if err := b.fill(ctx); err != nil {
		return 0, errors.Join(err, b.drop(context.WithoutCancel(ctx)))
	}
	for range swapTries {
		rows, err = b.swap(ctx)
		var pg *pgconn.PgError
		if err == nil || !errors.As(err, &pg) || pg.Code != "55P03" && pg.Code != "40P01" { // lock_not_available, deadlock_detected
			break
		}
		select {
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), b.drop(context.WithoutCancel(ctx)))
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return 0, errors.Join(err, b.drop(context.WithoutCancel(ctx)))
	}
	return rows, nil
}

type rebuild struct {
	pool   *pgxpool.Pool
	table  eventstore.Table
	shadow string
	seen   map[string]int64 // stream → version that the copy holds
}

func (b *rebuild) begin(ctx context.Context) error {
	live, shadow := pgx.Identifier{b.table.Name}.Sanitize(), pgx.Identifier{b.shadow}.Sanitize()
	if _, err := b.pool.Exec(ctx, "DROP TABLE IF EXISTS "+shadow); err != nil {
		return readError("drop an unfinished rebuild", err)
	}
	if _, err := b.pool.Exec(ctx, "CREATE TABLE "+shadow+" (LIKE "+live+" INCLUDING ALL)"); err != nil {
		return readError("make the rebuild's table", err)
	}
	shape, err := b.statements(ctx, b.pool, shapeSQL)
	if err != nil {
		return err
	}
	return execAll(ctx, b.pool, shape)
}

const rebuildLock = "hashtext('projections.rebuild'), hashtext($1)"

// alone takes the right to rebuild the table, for as long as the connection lives:
// two rebuilds of one table would swap each other's half-filled copy.
func (b *rebuild) alone(ctx context.Context) (release func(), err error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return nil, readError("the right to rebuild", err)
	}
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock("+rebuildLock+")", b.table.Name).Scan(&mine); err != nil {
		conn.Release()
		return nil, readError("the right to rebuild", err)
	}
	if !mine {
		conn.Release()
		return nil, fmt.Errorf("%s is being rebuilt already; wait for that rebuild to end", b.table.Name)
	}
	return func() {
		ctx := context.WithoutCancel(ctx)
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock("+rebuildLock+")", b.table.Name); err != nil {
			// With the session the lock ends too.
			_ = conn.Hijack().Close(ctx) // it is broken already
			return
		}
		conn.Release()
	}, nil
}

func (b *rebuild) drop(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{b.shadow}.Sanitize())
	return err
}

// fill folds everything that one snapshot sees.
func (b *rebuild) fill(ctx context.Context) error {
	return InSnapshot(ctx, b.pool, func(s Snapshot) error {
		stripes, err := s.Stripes(ctx)
		if err != nil {
			return err
		}
		for i := range stripes {
			var batch shadowRows
			err := s.StreamsOf(ctx, i, stripes, func(stream eventstore.StreamID, events []eventstore.Event) error {
				b.seen[string(stream)] = events[len(events)-1].Version
				return batch.fold(stream, events, b.table.Name)
			})
			if err != nil {
				return err
			}
			if err := b.insert(ctx, b.pool, batch); err != nil {
				return err
			}
		}
		return nil
	})
}

type shadowRows struct{ streams, rows []string }

func (r *shadowRows) fold(stream eventstore.StreamID, events []eventstore.Event, table string) error {
	f, err := foldStream(stream, events)
	if err != nil {
		return err
	}
	for _, row := range f.Rows(table) {
		r.streams = append(r.streams, string(stream))
		r.rows = append(r.rows, string(row))
	}
	return nil
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func (b *rebuild) insert(ctx context.Context, x execer, batch shadowRows) error {
	cols := make([]string, len(b.table.Columns))
	for i, c := range b.table.Columns {
		cols[i] = pgx.Identifier{c}.Sanitize()
	}
	list := strings.Join(cols, ", ")
	sql := fmt.Sprintf("INSERT INTO %[1]s (stream, %[2]s) SELECT w.stream, %[3]s FROM unnest($1::text[], $2::text[]) AS w(stream, row), jsonb_populate_record(NULL::%[1]s, w.row::jsonb) AS r",
		pgx.Identifier{b.shadow}.Sanitize(), list, "r."+strings.Join(cols, ", r."))
	if _, err := x.Exec(ctx, sql, batch.streams, batch.rows); err != nil {
		return readError("fill the rebuilt "+b.table.Name, err)
	}
	return nil
}

// swap holds writers of the table, folds again the streams that have moved since
// the snapshot, and renames.
func (b *rebuild) swap(ctx context.Context) (rows int64, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		rows, err = b.swapIn(ctx, tx)
		return err
	})
	return rows, err
}

func (b *rebuild) swapIn(ctx context.Context, tx pgx.Tx) (rows int64, err error) {
	live, shadow := pgx.Identifier{b.table.Name}.Sanitize(), pgx.Identifier{b.shadow}.Sanitize()
	if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+barrierTimeout+"'"); err != nil {
		return 0, err
	}
	// Every append updates a head, but only some touch this table. The heads are
	// locked against writers, so that no stream moves between catching up and the
	// rename.
	if _, err := tx.Exec(ctx, "LOCK TABLE stream_heads, "+live+" IN EXCLUSIVE MODE"); err != nil {
		return 0, err
	}
	moved, err := b.moved(ctx, tx)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+shadow+" WHERE stream = ANY($1)", moved); err != nil {
		return 0, err
	}
	var batch shadowRows
	for _, stream := range moved {
		events, err := streamEvents(ctx, tx, stream)
		if err != nil {
			return 0, err
		}
		if err := batch.fold(eventstore.StreamID(stream), events, b.table.Name); err != nil {
			return 0, err
		}
	}
	if err := b.insert(ctx, tx, batch); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+shadow).Scan(&rows); err != nil {
		return 0, err
	}
	names, err := b.statements(ctx, tx, indexNamesSQL)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "DROP TABLE "+live); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "ALTER TABLE "+shadow+" RENAME TO "+live); err != nil {
		return 0, err
	}
	return rows, execAll(ctx, tx, names)
}

func (b *rebuild) moved(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, "SELECT stream, version FROM stream_heads")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	moved := []string{}
	for rows.Next() {
		var stream string
		var version int64
		if err := rows.Scan(&stream, &version); err != nil {
			return nil, err
		}
		if b.seen[stream] != version {
			moved = append(moved, stream)
		}
	}
	return moved, rows.Err()
}

func streamEvents(ctx context.Context, tx pgx.Tx, stream string) ([]eventstore.Event, error) {
	rows, err := tx.Query(ctx, selectEvents+"stream = $1 ORDER BY version", stream)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []eventstore.Event
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}
