package main

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

// flat is the least that a large backlog may do of what a small one does.
const flat = 0.8

// backlogs measures, on ledgers of several sizes and in turns, how fast the first
// events behind the checkpoint are read, published, and made results of. A query
// that looks at the whole backlog would be slower the longer that is.
func backlogs(ctx context.Context, b *bench) error {
	k, err := b.kafka(ctx)
	if err != nil {
		return err
	}
	sizes := b.deliver.backlogs
	ledgers := make([]*filled, len(sizes))
	for i, n := range sizes {
		if ledgers[i], err = b.filledWith(ctx, n); err != nil {
			return err
		}
		defer ledgers[i].undo()
		b.progress(fmt.Sprintf("  a ledger of %d events is filled", n))
	}
	topics := topicsOf(k.prefix())
	first := int64(b.deliver.first)
	for _, m := range []struct {
		name string
		take func(ctx context.Context, l *filled) (float64, error)
	}{
		{"read the feed", func(ctx context.Context, l *filled) (float64, error) { return l.read(ctx, b.deliver.first) }},
		{"publish", func(ctx context.Context, l *filled) (float64, error) { return l.publish(ctx, k, topics, false, first) }},
		{"store results", func(ctx context.Context, l *filled) (float64, error) { return l.project(ctx, first) }},
	} {
		got := make([][]float64, len(sizes))
		for round := range b.rounds + 1 {
			for i, l := range ledgers {
				v, err := m.take(ctx, l)
				if err != nil {
					return fmt.Errorf("%s, a backlog of %d: %w", m.name, sizes[i], err)
				}
				if round > 0 || b.tiny { // the first makes topics, plans and caches
					got[i] = append(got[i], v)
				}
			}
		}
		for i := 1; i < len(sizes); i++ {
			f := figure{Name: fmt.Sprintf("%s, the first %d of %d events", m.name, first, sizes[i]), Unit: "events/s", PeerName: fmt.Sprintf("of %d/s", sizes[0]),
				ours: got[i], peers: got[0]}
			if !b.tiny {
				f.atLeast = flat
			}
			b.add(f)
		}
	}
	return nil
}

// read reads n events of the feed, page by page.
func (l *filled) read(ctx context.Context, n int) (float64, error) {
	began := time.Now()
	var at eventstore.Cursor
	for got := 0; got < n; {
		page, err := l.ReadFeed(ctx, at, min(feedPage, n-got))
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			return 0, fmt.Errorf("the feed ends after %d events", got)
		}
		got, at = got+len(page), page[len(page)-1].Cursor
	}
	return float64(n) / time.Since(began).Seconds(), nil
}

// project makes results of the first n events.
func (l *filled) project(ctx context.Context, n int64) (float64, error) {
	if err := l.forget(ctx); err != nil {
		return 0, err
	}
	r := catchup.New(l.pool, catchup.Results(), catchup.Options{Growth: l})
	return measureGrowth(ctx, n, r.Run, func() (int64, error) {
		c, err := l.reads.Checkpoint(ctx, projections.ResultsReader)
		return c.Seq, err
	})
}
