package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// ResultsRebuilt says what a rebuild of results did. A result is promised to be the
// same bytes for ever, so whatever was not simply missing is named.
type ResultsRebuilt struct {
	Rows    int64        `json:"rows"` // in the end
	Filled  int64        `json:"filled"`
	Mended  int64        `json:"mended"`  // held something else than the events say
	Removed int64        `json:"removed"` // no event explains them
	Changed []Difference `json:"changed"` // of Mended and Removed, at most 1,000
	Omitted int64        `json:"omitted,omitempty"`
}

func (r ResultsRebuilt) String() string {
	return fmt.Sprintf("%d rows: %d were missing and are filled in, %d held something else and are mended, %d were of no ended attempt and are removed", r.Rows, r.Filled, r.Mended, r.Removed)
}

// resultPieceBytes is about how many bytes of bodies a piece of a rebuild holds.
const resultPieceBytes = 64 << 20

// RebuildResults makes results what the events say up to its reader's checkpoint,
// while the reader goes on: it writes only beyond. Rows that are right stay
// untouched. Whoever follows results by cursor does not see what is filled in
// behind it. Attempts whose streams give no result are an error after the rest is done.
func RebuildResults(ctx context.Context, pool *pgxpool.Pool) (ResultsRebuilt, error) {
	b := resultsRebuild{pool: pool}
	b.report.Changed = []Difference{}
	for !b.done {
		found, err := b.piece(ctx)
		if err == nil {
			err = b.mend(ctx, found)
		}
		if err != nil {
			return b.report, fmt.Errorf("rebuild %s: %w", resultsTable, err)
		}
	}
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM results").Scan(&b.report.Rows); err != nil {
		return b.report, readError("the rows of "+resultsTable, err)
	}
	return b.report, b.bad.unmended(resultsTable)
}

type resultsRebuild struct {
	pool       *pgxpool.Pool
	report     ResultsRebuilt
	generation int64
	after      eventstore.StreamID // all streams up to here are done
	done       bool
	bad        rebuild // keeps the account of streams that cannot be folded
}

// piece compares some streams in one snapshot.
func (b *resultsRebuild) piece(ctx context.Context) (found []resultDifference, err error) {
	began, held := time.Now(), 0
	err = InSnapshot(ctx, b.pool, func(s Snapshot) error {
		if err := s.tx.QueryRow(ctx, "SELECT generation FROM sequencer").Scan(&b.generation); err != nil {
			return readError("the feed's generation", err)
		}
		w, err := s.foldResults(ctx)
		if err != nil {
			return err
		}
		return s.Walk(ctx, b.after, 0, func(p Page) error {
			for _, e := range p.Events {
				d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
				w.add(e, d, err)
			}
			ds, _, err := w.page(ctx, p.Last)
			if err != nil {
				return err
			}
			for _, d := range ds {
				if found = append(found, d); d.want != nil {
					held += len(d.want.body)
				}
			}
			b.after, b.done = p.UpTo, p.Last
			if !p.Last && (held >= resultPieceBytes || time.Since(began) > pieceTime) {
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

// mend writes what a piece found, each row in a transaction of its own.
func (b *resultsRebuild) mend(ctx context.Context, found []resultDifference) error {
	for _, d := range found {
		if d.Reason != "" {
			b.bad.cannot(d.Stream, errors.New(d.Reason))
			continue
		}
		err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			// Whatever row stands at the place of this attempt's end is not right there.
			_, err := tx.Exec(ctx, `DELETE FROM results WHERE attempt_id = $1 OR seq = $2`, strings.TrimPrefix(d.Stream, "attempt/"), d.seq)
			if err == nil && d.want != nil {
				_, err = tx.Exec(ctx, insertResultSQL, d.want.args(eventstore.Cursor{Generation: b.generation, Seq: d.seq})...)
			}
			return err
		})
		if err != nil {
			return readError("repair of "+resultsTable, err)
		}
		b.note(d)
	}
	return nil
}

func (b *resultsRebuild) note(d resultDifference) {
	switch {
	case !d.got:
		b.report.Filled++
		return
	case d.want != nil:
		b.report.Mended++
	default:
		b.report.Removed++
	}
	if len(b.report.Changed) >= maxDifferences {
		b.report.Omitted++
		return
	}
	b.report.Changed = append(b.report.Changed, d.Difference)
}
