package projections_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// stepwise gives the rows that commands leave behind which append one event each.
func stepwise(t *testing.T, events []domain.Event, at time.Time) []string {
	t.Helper()
	keys := map[string][]string{}
	for _, table := range projections.Tables() {
		keys[table.Name] = table.Key
	}
	rows := map[string]string{}
	var state domain.Attempt
	for _, e := range events {
		after, err := domain.EvolveAttempt(state, e, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range projections.AttemptChanges(state, after, []domain.Event{e}, at) {
			var members map[string]any
			if err := json.Unmarshal(c.Row, &members); err != nil {
				t.Fatal(err)
			}
			key := c.Table
			for _, k := range keys[c.Table] {
				key += fmt.Sprint(" ", members[k])
			}
			if c.Delete {
				delete(rows, key)
			} else {
				rows[key] = c.Table + " " + string(c.Row)
			}
		}
		state = after
	}
	return slices.Sorted(maps.Values(rows))
}

// A fold gives the rows that the same events give one by one, also those of a
// stream that nobody would write.
func TestAFoldGivesWhatCommandsWrote(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	id := func(n byte) domain.AttemptID { return domain.NewID[domain.AttemptID](uuid.UUID{n}) }
	created := func(n byte) domain.Event { return domain.Created{AttemptID: id(n), PlanNodeID: "n"} }
	leased := domain.Leased{Epoch: 1, LeaseID: domain.LeaseIDOf(id(1), 1), RunnerID: runner, TokenSHA256: sha("t"), OfferUntil: at}
	progressed := domain.Progressed{Epoch: 1, Phase: "a", Done: 1, Total: 2}
	started := domain.Started{Epoch: 1, LeaseUntil: at.Add(time.Minute)}
	released := domain.LeaseReleased{Epoch: 1, Reason: domain.ReleaseDeclined}
	log := domain.LogStored{Epoch: 1, Stream: "stdout", Bytes: 3, Key: "k", SHA256: sha("k"), ObjectBytes: 9}
	for name, events := range map[string][]domain.Event{
		"nothing":            nil,
		"queued":             {created(1)},
		"leased":             {created(1), leased},
		"running":            {created(1), leased, started, progressed, log, log, domain.Heartbeat{Epoch: 1, LeaseUntil: at.Add(time.Hour)}, progressed},
		"released":           {created(1), leased, released},
		"begun in the midst": {leased, progressed, created(1), log},
		"another id":         {created(1), leased, created(2), progressed, leased, released},
		"there and back":     {created(1), created(2), leased, created(1), progressed},
	} {
		stream := eventstore.StreamID("attempt/" + id(1).String())
		f, err := projections.NewStreamFold(stream)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, e := range events {
			if err := f.Apply(e, eventstore.Event{Envelope: eventstore.Envelope{Stream: stream, Version: int64(i) + 1, Time: at}}); err != nil {
				t.Fatal(err)
			}
			got = nil // asking changes nothing, and what was told is not told again
			for _, table := range projections.Tables() {
				for _, r := range f.Rows(table.Name) {
					got = append(got, table.Name+" "+string(r))
				}
			}
		}
		slices.Sort(got)
		if d := cmp.Diff(stepwise(t, events, at), got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
