package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

const (
	// pieceTime is how long a rebuild keeps one snapshot, which holds back vacuum.
	pieceTime = 5 * time.Second
	// pieceRows is about how many rows to write it gathers before it mends them.
	pieceRows = 10000
)

// Rebuild makes one inline table what the events say, in place: it folds the
// streams page by page, and of the streams whose rows differ it writes the rows
// anew. The table stays the same object, with its grants, indexes and comment,
// and may be read all the while. Only writers of a stream under repair wait, for
// a few milliseconds. Several rebuilds of one table do not harm one another.
//
// It returns the number of rows that the table has in the end. Streams whose
// events cannot be folded keep their rows, and are an error after the rest is done.
//
// Of results, which is no inline table, RebuildResults tells more.
func Rebuild(ctx context.Context, pool *pgxpool.Pool, table string) (rows int64, err error) {
	if table == resultsTable {
		r, err := RebuildResults(ctx, pool)
		return r.Rows, err
	}
	return rebuildBy(ctx, pool, table, pieceRows, pageEvents)
}

// rebuildBy is Rebuild in pieces of about so many rows, and pages of so many events.
func rebuildBy(ctx context.Context, pool *pgxpool.Pool, table string, piece, page int) (rows int64, err error) {
	i := slices.IndexFunc(Tables(), func(t eventstore.Table) bool { return t.Name == table })
	if i < 0 {
		names := []string{}
		for _, t := range Tables() {
			names = append(names, t.Name)
		}
		names = append(names, resultsTable)
		return 0, fmt.Errorf("there is no projection %q; it is one of %s", table, strings.Join(names, ", "))
	}
	b := rebuild{pool: pool, table: Tables()[i], size: piece, page: page}
	for !b.done {
		found, err := b.piece(ctx)
		if err != nil {
			return 0, fmt.Errorf("rebuild %s: %w", table, err)
		}
		if err := b.repair(ctx, found); err != nil {
			return 0, fmt.Errorf("rebuild %s: %w", table, err)
		}
	}
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM "+quoted(table)).Scan(&rows); err != nil {
		return 0, readError("the rows of "+table, err)
	}
	return rows, b.unmended(table)
}

// rebuild is one rebuild on its way.
type rebuild struct {
	pool  *pgxpool.Pool
	table eventstore.Table
	size  int                 // of a piece, in rows
	page  int                 // events
	after eventstore.StreamID // all streams up to here are done
	done  bool
	bad   int // streams that could not be mended
	named []string
}

// damage is a stream whose rows differ, as a snapshot saw it.
type damage struct {
	stream  string
	version int64    // of its last event, 0 if there are none
	want    []string // the rows that it must have
	extra   []string // rows that no event explains
}

var errPieceOver = errors.New("the piece is over")

// piece compares a part of the table, in one snapshot.
func (b *rebuild) piece(ctx context.Context) (map[string]*damage, error) {
	began, gathered := time.Now(), 0
	found := map[string]*damage{}
	err := InSnapshot(ctx, b.pool, func(s Snapshot) error {
		c, err := s.Compare(ctx, []eventstore.Table{b.table}, b.after)
		if err != nil {
			return err
		}
		w := pass{c: c}
		return s.Walk(ctx, b.after, b.page, func(p Page) error {
			ds, err := w.page(ctx, p)
			if err != nil {
				return err
			}
			for _, d := range ds {
				gathered += b.note(found, d, w.ended[d.Stream])
			}
			b.after, b.done = p.UpTo, p.Last
			if !p.Last && (gathered >= b.size || time.Since(began) > pieceTime) {
				return errPieceOver
			}
			return nil
		})
	})
	if errors.Is(err, errPieceOver) {
		err = nil
	}
	return found, err
}

// note adds a difference to what was found and returns how many rows it keeps.
func (b *rebuild) note(found map[string]*damage, d Difference, o *openStream) int {
	if d.Reason != "" {
		b.cannot(d.Stream, errors.New(d.Reason))
		return 0
	}
	at, rows := found[d.Stream], 0
	if at == nil {
		at = &damage{stream: d.Stream}
		found[d.Stream] = at
		if o != nil {
			at.version, at.want = o.version, rowTexts(o.fold, b.table.Name)
			rows = len(at.want)
		}
	}
	if d.Want == nil {
		at.extra = append(at.extra, string(d.Got))
		rows++
	}
	return rows
}

func rowTexts(f *StreamFold, table string) []string {
	rows := f.Rows(table)
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(r)
	}
	return out
}

// cannot notes a stream that keeps the rows it has.
func (b *rebuild) cannot(stream string, why error) {
	if b.bad++; len(b.named) < 10 {
		b.named = append(b.named, stream+": "+why.Error())
	}
}

func (b *rebuild) unmended(table string) error {
	if b.bad == 0 {
		return nil
	}
	return fmt.Errorf("%s is rebuilt but for %d streams whose events give no rows; run execution-plane verify: %s", table, b.bad, strings.Join(b.named, "; "))
}
