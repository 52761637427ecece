package ledger

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// folded is what a page's events show by themselves.
type folded struct {
	page   projections.Page // without its events
	events int64
	faults []Fault
	texts  references
	ended  []*stream // streams that end in this page, in order
}

// run is the part of a page that belongs to one stream.
type run struct {
	stream *stream
	events []eventstore.Event
	faults []Fault
	texts  references
}

// fold checks and folds a page's events. Streams do not depend on each other, so
// every processor takes some; what they find is put together in the order of the
// page.
func (v *verification) fold(p projections.Page, fed places) *folded {
	runs := v.runs(p)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(runs)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(runs)); i = next.Add(1) - 1 {
				r := &runs[i]
				for _, e := range r.events {
					r.faults = append(r.faults, r.stream.add(e, fed, &r.texts)...)
				}
				if p.Last || i < int64(len(runs))-1 {
					r.stream.settle()
				}
			}
		})
	}
	wg.Wait()
	out := &folded{page: p, events: int64(len(p.Events))}
	out.page.Events = nil
	for _, r := range runs {
		out.faults = append(out.faults, r.faults...)
		out.texts.join(r.texts)
		out.ended = append(out.ended, r.stream)
	}
	v.open = nil
	if n := len(out.ended); n > 0 && !p.Last {
		v.open, out.ended = out.ended[n-1], out.ended[:n-1]
	}
	return out
}

// runs cuts a page at the borders of streams. The stream that the page before
// ended within comes first, also if nothing more of it is there.
func (v *verification) runs(p projections.Page) []run {
	var out []run
	if v.open != nil {
		out = append(out, run{stream: v.open})
	}
	begin := 0
	for i, e := range p.Events {
		if len(out) == 0 || out[len(out)-1].stream.id != e.Stream {
			out = append(out, run{stream: openStream(e.Stream)})
			begin = i
		}
		out[len(out)-1].events = p.Events[begin : i+1]
	}
	return out
}
