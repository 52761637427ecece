package main

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// progress shows where an attempt stands: a bar on a terminal, a line for each
// change elsewhere.
type progress struct {
	w    io.Writer
	last string

	bars  *mpb.Progress // nil where there is no terminal
	bar   *mpb.Bar
	label string
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if isTerminal(w) {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(150*time.Millisecond))
	}
	return p
}

func (p *progress) show(a wire.Attempt) {
	text := stateWord(a)
	var done, total int64
	if g := a.Progress; g != nil && a.State == "running" {
		text = a.State + ": " + g.Phase
		if g.Message != "" {
			text += ": " + printable(g.Message)
		}
		done, total = g.Done, g.Total
	}
	if p.bars == nil {
		if total > 0 {
			text += fmt.Sprintf(" (%d/%d)", done, total)
		}
		if text != p.last {
			fmt.Fprintln(p.w, "  "+text)
			p.last = text
		}
		return
	}
	p.label = text
	if p.bar == nil {
		p.bar = p.bars.AddBar(0, mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return fmt.Sprintf("%-44.44s", p.label) })),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO)))
	}
	p.bar.SetTotal(max(total, done, 1), false)
	p.bar.SetCurrent(done)
}

func (p *progress) end() {
	if p.bars == nil {
		return
	}
	if p.bar != nil {
		p.bar.Abort(true)
	}
	p.bars.Wait()
}
