package projections

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// CheckReport says what a check saw.
type CheckReport struct {
	Streams     int64        `json:"streams"`
	Events      int64        `json:"events"`
	Rows        int64        `json:"rows"` // that the events give
	Differences []Difference `json:"differences"`
	Omitted     int64        `json:"omitted,omitempty"` // differences beyond those named
}

const maxDifferences = 1000

// Check folds every stream and compares with the inline tables, and with results
// up to where its reader has come, in one snapshot and one pass over all. A stream that cannot be folded is a difference and ends
// nothing. progress, if not nil, is told how many of the events are done.
func Check(ctx context.Context, pool *pgxpool.Pool, progress func(done, of int)) (CheckReport, error) {
	var r CheckReport
	err := InSnapshot(ctx, pool, func(s Snapshot) error {
		of, err := s.EventCount(ctx)
		if err != nil {
			return err
		}
		c, err := s.Compare(ctx, Tables(), "")
		if err != nil {
			return err
		}
		results, err := s.foldResults(ctx)
		if err != nil {
			return err
		}
		w := pass{c: c, results: results}
		return s.Walk(ctx, "", 0, func(p Page) error {
			ds, err := w.page(ctx, p)
			if err != nil {
				return err
			}
			r.Streams, r.Events, r.Rows = w.streams, w.events, w.rows
			for _, d := range ds {
				r.add(d)
			}
			if progress != nil {
				progress(int(r.Events), int(max(of, r.Events)))
			}
			return nil
		})
	})
	return r, err
}

func (r *CheckReport) add(d Difference) {
	if len(r.Differences) >= maxDifferences {
		r.Omitted++
		return
	}
	r.Differences = append(r.Differences, d)
}

// pass folds the streams of a walk and compares.
type pass struct {
	c                     *Comparison
	results               *resultsFold // nil: they are left out
	streams, events, rows int64
	open                  *openStream            // nil before the first
	ended                 map[string]*openStream // of this page
}

// openStream is a stream on its way past.
type openStream struct {
	id      eventstore.StreamID
	version int64
	fold    *StreamFold
	broken  error // why it cannot be folded; nothing more is folded then
}

func openAt(id eventstore.StreamID) *openStream {
	o := &openStream{id: id}
	o.fold, o.broken = NewStreamFold(id)
	return o
}

func (o *openStream) add(e eventstore.Event) {
	d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
	o.take(e, d, err)
}

// take is add for a caller that has decoded the event, or could not.
func (o *openStream) take(e eventstore.Event, d domain.Event, err error) {
	o.version = e.Version
	switch {
	case o.broken != nil:
	case err != nil:
		o.broken = fmt.Errorf("fold %s version %d: %w", e.Stream, e.Version, err)
	default:
		o.broken = o.fold.Apply(d, e)
	}
}

func (w *pass) page(ctx context.Context, p Page) ([]Difference, error) {
	var out []Difference
	w.ended = map[string]*openStream{}
	end := func() {
		o := w.open
		if o == nil {
			return
		}
		w.open, w.ended[string(o.id)] = nil, o
		if o.broken == nil {
			w.rows += w.c.Add(o.id, o.fold)
		} else {
			w.c.Skip(o.id)
			out = append(out, Difference{Stream: string(o.id), Reason: o.broken.Error()})
		}
	}
	for _, e := range p.Events {
		if w.open == nil || w.open.id != e.Stream {
			end()
			w.open = openAt(e.Stream)
			w.streams++
		}
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		w.open.take(e, d, err)
		if w.results != nil {
			w.results.add(e, d, err)
		}
		w.events++
	}
	if p.Last {
		end()
	}
	rows, err := w.c.Page(ctx, p)
	if out = append(out, rows...); err != nil || w.results == nil {
		return out, err
	}
	results, n, err := w.results.page(ctx, p.Last)
	w.rows += n
	for _, d := range results {
		out = append(out, d.Difference)
	}
	return out, err
}
