package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

var cursorZero eventstore.Cursor

// check holds the whole ledger against what must be true of it: at the end also
// that everything ended, and that nothing acknowledged is missing.
func (w *World) check(end bool) {
	ctx := context.Background()
	feed, err := w.mem.ReadFeed(ctx, cursorZero, 1<<30)
	if err != nil {
		w.obs.violate("feed", domain.AttemptID{}, "%v", err)
		return
	}
	streams := map[eventstore.StreamID][]eventstore.Event{}
	commandsOf := map[uuid.UUID]bool{}
	for _, f := range feed {
		streams[f.Event.Stream] = append(streams[f.Event.Stream], f.Event)
		commandsOf[f.Event.CommandID] = true
	}
	want := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(streams)) {
		w.checkStream(ctx, id, streams[id], want)
	}
	w.checkRows(want)
	if end {
		w.checkEnds(streams)
		w.checkAcknowledged(streams, commandsOf)
	}
}

// checkStream checks one stream: chain, head, and the state that the head carries.
func (w *World) checkStream(ctx context.Context, id eventstore.StreamID, events []eventstore.Event, rows map[string][]string) {
	attempt := attemptOf(id)
	if fault := ledger.VerifyChain(events); fault != nil {
		w.obs.violate("I14", attempt, "%s", fault)
		return
	}
	fold, err := projections.NewStreamFold(id)
	if err != nil {
		w.obs.violate("I6", attempt, "%v", err)
		return
	}
	for _, e := range events {
		if err := fold.Add(e); err != nil {
			w.obs.violate("I6", attempt, "%v", err)
			return
		}
	}
	for _, t := range projections.Tables() {
		for _, r := range fold.Rows(t.Name) {
			rows[t.Name] = append(rows[t.Name], canonical(r))
		}
	}
	state, err := fold.State()
	if err != nil {
		w.obs.violate("I6", attempt, "%v", err)
		return
	}
	l, err := w.mem.Load(ctx, id, uuid.Nil)
	if err != nil {
		w.obs.violate("I6", attempt, "%v", err)
		return
	}
	last := events[len(events)-1]
	if l.Head.Version != last.Version || l.Head.Hash != last.Hash || canonical(l.Head.State) != canonical(state) {
		w.obs.violate("I6", attempt, "the head of %s is at version %d with %s; its events fold to version %d with %s", id, l.Head.Version, l.Head.State, last.Version, state)
	}
	if closed := strings.HasPrefix(string(id), "attempt/") && w.obs.closed(attempt); closed != l.Head.Closed {
		w.obs.violate("I2", attempt, "the head of %s is closed: %v, its events end: %v", id, l.Head.Closed, closed)
	}
}

func attemptOf(id eventstore.StreamID) domain.AttemptID {
	s, ok := strings.CutPrefix(string(id), "attempt/")
	if !ok {
		return domain.AttemptID{}
	}
	a, _ := domain.ParseID[domain.AttemptID](s)
	return a
}

// canonical writes JSON with sorted members.
func canonical(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "not JSON: " + string(b)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return "not JSON: " + err.Error()
	}
	return string(out)
}

// checkRows compares every inline table with what the events fold to.
func (w *World) checkRows(want map[string][]string) {
	for _, t := range projections.Tables() {
		var got []string
		for _, r := range w.mem.Rows(t.Name) {
			got = append(got, canonical(r.JSON))
		}
		slices.Sort(got)
		slices.Sort(want[t.Name])
		if i := firstDifference(got, want[t.Name]); i >= 0 {
			w.obs.violate("I6", domain.AttemptID{}, "table %s has %s; its events give %s", t.Name, at(got, i), at(want[t.Name], i))
		}
	}
}

func firstDifference(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if at(a, i) != at(b, i) {
			return i
		}
	}
	return -1
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "nothing"
}

// checkEnds: every attempt has ended within the bound, and gives a result.
func (w *World) checkEnds(streams map[eventstore.StreamID][]eventstore.Event) {
	for _, s := range w.submissions {
		id := eventstore.StreamID("attempt/" + s.id.String())
		if !s.accepted || !w.obs.closed(s.id) {
			l, _ := w.rows.Attempt(context.Background(), s.id)
			w.obs.violate("I15", s.id, "%s after the last fault it is %q; accepted: %v", w.bound(), l.Status, s.accepted)
			continue
		}
		var facts []domain.Fact
		for _, e := range streams[id] {
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				w.obs.violate("I14", s.id, "%v", err)
			}
			facts = append(facts, domain.Fact{Event: d, At: e.Time})
		}
		res, err := domain.ResultOf(facts)
		if err != nil {
			w.obs.violate("I2", s.id, "%v", err)
			continue
		}
		row, _ := w.rows.Attempt(context.Background(), s.id)
		if row.Status != string(res.Status) {
			w.obs.violate("I3", s.id, "its row says %s, its result %s", row.Status, res.Status)
		}
	}
}

// checkAcknowledged: what a runner was told is durable is there, once and in order.
func (w *World) checkAcknowledged(streams map[eventstore.StreamID][]eventstore.Event, stored map[uuid.UUID]bool) {
	o := w.obs
	for _, id := range slices.SortedFunc(maps.Keys(o.acks), func(a, b domain.CommandID) int { return cmp.Compare(a.String(), b.String()) }) {
		if !stored[id.UUID()] {
			o.violate("I13", o.acks[id].attempt, "%s was acknowledged and is not in the ledger", o.acks[id].what)
		}
	}
	for _, s := range w.submissions {
		have := map[string][]byte{}
		var epoch int64
		for _, e := range streams[eventstore.StreamID("attempt/"+s.id.String())] {
			var l domain.LogStored
			if e.Type != l.EventType() {
				continue
			}
			if err := json.Unmarshal(e.Payload, &l); err != nil {
				o.violate("I12", s.id, "%v", err)
			}
			have[l.Stream] = append(have[l.Stream], w.objects[l.Key]...)
			epoch = l.Epoch
		}
		for _, stream := range logStreams {
			if n := o.logs[s.id][stream].bytes; n > int64(len(have[stream])) {
				o.violate("I12", s.id, "%d bytes of %s were acknowledged, %d are there", n, stream, len(have[stream]))
			}
			for i, b := range have[stream] {
				if b != logByte(s.id, epoch, stream, i) {
					o.violate("I12", s.id, "byte %d of %s is not what was written there", i, stream)
					break
				}
			}
		}
	}
}
