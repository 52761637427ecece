package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// ReplayRequest says which part of the history is published again.
type ReplayRequest struct {
	From   eventstore.Cursor // exclusive, as every cursor; the zero one is the beginning
	Until  eventstore.Cursor // inclusive; zero, or beyond it: as far as the feed is published at the start
	Types  []string          // of events; empty: all
	Topics []string          // as configured; empty: all
}

// ReplayProgress says how far a replay is.
type ReplayProgress struct {
	// At is how far all is done; a replay that broke off goes on from there.
	At        eventstore.Cursor
	Until     eventstore.Cursor
	Published int64
	// PassedOver counts events of keys that are parked, or whose earlier event was
	// refused in this replay; Refused the refused ones, and Refusal says why the last was.
	PassedOver int64
	Refused    int64
	Refusal    string
}

// progressEvery is how often a replay tells how far it is.
const progressEvery = time.Second

// errTopicRefused ends a replay.
var errTopicRefused = errors.New("the broker refuses the topic")

// Replay publishes history again, with the header ce_replayed, in order per key
// and over a producer of its own; any replica may do it, at any time. It moves no
// checkpoint and neither parks nor unparks: events of parked keys are passed over,
// for they would overtake the one that is refused. An event that the broker refuses
// is counted, and the later ones of its key are passed over; a topic that it refuses
// ends the replay with an error. Brokers that are away are waited for. Progress is
// called about once a second and at the end, from one goroutine; nil is allowed.
func (f *Forwarder) Replay(ctx context.Context, r ReplayRequest, progress func(ReplayProgress)) (ReplayProgress, error) {
	for _, name := range r.Topics {
		if !slices.Contains(f.Topics.All(), name) {
			return ReplayProgress{}, fmt.Errorf("replay: there is no topic %q; the topics are %s", name, strings.Join(f.Topics.All(), ", "))
		}
	}
	// What was not published once would overtake what precedes it, where only some
	// types or topics are asked for.
	end, err := f.Checkpoints.Checkpoint(ctx, Lease)
	if err != nil {
		return ReplayProgress{}, fmt.Errorf("replay: %w", err)
	}
	if r.Until == (eventstore.Cursor{}) || r.Until.Seq > end.Seq {
		r.Until = end
	}
	parked, err := f.Parked.ParkedKeys(ctx)
	if err != nil {
		return ReplayProgress{}, fmt.Errorf("replay: %w", err)
	}
	pipe, err := f.newPipe()
	if err != nil {
		return ReplayProgress{}, fmt.Errorf("replay: %w", err)
	}
	defer pipe.close()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	p := &replay{f: f, request: r, pipe: pipe, giveUp: giveUp, over: map[keyOf]bool{}}
	for _, row := range parked {
		p.over[keyOf{row.Topic, row.Key}] = true
	}
	p.flow = newFlow(ctx, &f.Config, r.From, p.handle)
	told := make(chan struct{})
	go func() {
		defer close(told)
		p.tell(ctx, progress)
	}()
	err = p.run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	giveUp(nil)
	pipe.letGo()
	p.flow.wait()
	<-told
	last := p.progress()
	if progress != nil {
		progress(last)
	}
	if err != nil {
		return last, fmt.Errorf("replay broke off at %s: %w", last.At, err)
	}
	return last, nil
}

type replay struct {
	f       *Forwarder
	request ReplayRequest
	pipe    *pipe
	flow    *flow
	giveUp  context.CancelCauseFunc

	mu   sync.Mutex
	over map[keyOf]bool
	n    ReplayProgress
}

func (p *replay) run(ctx context.Context) error {
	known := newTracker(p.f.History)
	cursor := p.request.From
	for cursor.Seq < p.request.Until.Seq {
		page, err := p.f.page(ctx, known, cursor, feedPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, it := range page {
			cursor = it.cursor
			if cursor.Seq > p.request.Until.Seq {
				break
			}
			if len(p.request.Types) > 0 && !slices.Contains(p.request.Types, it.event.Type) ||
				len(p.request.Topics) > 0 && !slices.Contains(p.request.Topics, it.topic) {
				continue
			}
			it.replayed = true
			if err := p.flow.admit(ctx, it); err != nil {
				return err
			}
		}
	}
	if err := p.flow.drain(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n.At = p.request.Until
	return nil
}

func (p *replay) handle(ctx context.Context, it *item) error {
	k := keyOf{it.topic, it.key}
	p.mu.Lock()
	over := p.over[k] || p.over[keyOf{it.topic, domain.WholeTopic}]
	if over {
		p.n.PassedOver++
	}
	p.mu.Unlock()
	if over {
		return nil
	}
	err := p.pipe.publish(ctx, it, func(*item) bool { return false })
	p.mu.Lock()
	defer p.mu.Unlock()
	var refused *refusal
	switch {
	case err == nil:
		p.n.Published++
	case errors.As(err, &refused):
		p.n.Refused++
		p.n.Refusal = fmt.Sprintf("event %s of %s: %v", it.event.EventID, it.event.Stream, refused)
		if refused.topic {
			err = fmt.Errorf("%w %s: %w", errTopicRefused, it.topic, refused)
			p.giveUp(err)
			return err
		}
		p.over[k] = true
		return nil
	}
	return err
}

func (p *replay) progress() ReplayProgress {
	at := p.flow.upTo()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.n
	if n.At == (eventstore.Cursor{}) {
		n.At = at
	}
	n.Until = p.request.Until
	return n
}

func (p *replay) tell(ctx context.Context, progress func(ReplayProgress)) {
	for progress != nil && pause(ctx, progressEvery) == nil {
		progress(p.progress())
	}
}

// ResolveStart reads where a replay is to begin and returns the cursor before it,
// for ReplayRequest.From: "<generation>.<seq>" (a ce_cursor), a bare number (a
// ce_position), or a time in RFC 3339. All are inclusive. By position it begins
// with that event, or the next higher one there is; by time with the first event in
// the feed at or after it, so that none is missed. A start beyond the last event is
// the end of the feed.
func (f *Forwarder) ResolveStart(ctx context.Context, text string) (eventstore.Cursor, error) {
	end, err := f.Feed.FeedEnd(ctx)
	if err != nil {
		return end, fmt.Errorf("find the start %q: %w", text, err)
	}
	var seq int64
	var ok bool
	switch {
	case strings.Count(text, ".") == 1 && !strings.ContainsAny(text, "T:"):
		c, err := eventstore.ParseCursor(text)
		if err != nil {
			return c, fmt.Errorf("find the start: %w", err)
		}
		seq, ok = c.Seq, c.Seq <= end.Seq
	case strings.Trim(text, "0123456789") == "" && text != "":
		position, perr := strconv.ParseInt(text, 10, 64)
		if perr != nil {
			return end, fmt.Errorf("find the start: %q is no event's position", text)
		}
		seq, ok, err = f.History.SeqOfPosition(ctx, position)
	default:
		at, perr := time.Parse(time.RFC3339Nano, text)
		if perr != nil {
			return end, fmt.Errorf("find the start: %q is no cursor (1.42), position (42) or time (2026-01-02T15:04:05Z)", text)
		}
		seq, ok, err = f.History.SeqOfTime(ctx, at)
	}
	if err != nil {
		return end, fmt.Errorf("find the start %q: %w", text, err)
	}
	if ok {
		end.Seq = max(seq-1, 0)
	}
	return end, nil
}
