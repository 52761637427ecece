package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// history gives the world results 1 to 6 at every tenth place of the feed, an hour
// apart. "ops" wants all but the fifth; of the second and third it has callbacks.
func (w *world) history() {
	for n := 1; n <= 6; n++ {
		r := projections.StoredResult{Seq: int64(10 * n), Generation: 1, AttemptID: numbered(n), JobType: "verification", Environment: "dev",
			SHA256: hash64, Body: []byte("{}"), EndedAt: recordedAt.Add(time.Duration(n) * time.Hour)}
		if n == 5 {
			r.CallbackRef = "named"
		}
		w.results = append(w.results, r)
	}
	w.sent = map[domain.CallbackID]projections.Callback{}
	w.add("ops", numbered(2), domain.CallbackDone)
	w.add("ops", numbered(3), domain.CallbackAbandoned)
}

// replayAll sends pages until there is no next, and returns the attempts that were
// asked for and the sums.
func replayAll(t *testing.T, w *world, request string) (attempts []int, total wire.ReplayAnswer) {
	t.Helper()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	next := decode[map[string]any](t, request)
	for pages := 0; ; pages++ {
		b, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		body := string(b)
		resp, answer := ask(t, srv, "POST", "/v1/callbacks/replay", operator, body)
		if resp.StatusCode != 200 || pages > 20 {
			t.Fatalf("page %d, %s: status %d: %s", pages, body, resp.StatusCode, answer)
		}
		p := decode[wire.ReplayAnswer](t, answer)
		total.Scheduled += p.Scheduled
		total.Replayed += p.Replayed
		total.PassedOver += p.PassedOver
		total.Refused = append(total.Refused, p.Refused...)
		if p.Next == nil {
			break
		}
		next["after"] = *p.Next
	}
	for _, d := range w.wanted {
		attempts = append(attempts, int(d.Attempt.UUID()[15]))
	}
	return attempts, total
}

func TestRangesAreReplayed(t *testing.T) {
	at := func(h float64) string {
		return recordedAt.Add(time.Duration(h * float64(time.Hour))).Format(time.RFC3339Nano)
	}
	for name, c := range map[string]struct {
		request   string
		attempts  []int
		scheduled int
		replayed  int
	}{
		"everything":                    {`{"endpoint":"ops","after":"0.0","reason":"x"}`, []int{1, 2, 3, 4, 6}, 3, 2},
		"everything, in pages of two":   {`{"endpoint":"ops","after":"0.0","limit":2,"reason":"x"}`, []int{1, 2, 3, 4, 6}, 3, 2},
		"between cursors":               {`{"endpoint":"ops","after":"1.10","until":"1.40","reason":"x"}`, []int{2, 3, 4}, 1, 2},
		"between cursors, one by one":   {`{"endpoint":"ops","after":"1.10","until":"1.40","limit":1,"reason":"x"}`, []int{2, 3, 4}, 1, 2},
		"until between two results":     {`{"endpoint":"ops","after":"1.10","until":"1.39","reason":"x"}`, []int{2, 3}, 0, 2},
		"those that were given up":      {`{"endpoint":"ops","after":"0.0","states":["exhausted"],"reason":"x"}`, []int{3}, 0, 1},
		"given up or delivered":         {`{"endpoint":"ops","after":"0.0","states":["exhausted","delivered"],"limit":1,"reason":"x"}`, []int{2, 3}, 0, 2},
		"since a time":                  {`{"endpoint":"ops","since":"` + at(4) + `","reason":"x"}`, []int{4, 6}, 2, 0},
		"between times":                 {`{"endpoint":"ops","since":"` + at(1.5) + `","to":"` + at(4) + `","reason":"x"}`, []int{2, 3}, 0, 2},
		"between times, one by one":     {`{"endpoint":"ops","since":"` + at(1.5) + `","to":"` + at(4) + `","limit":1,"reason":"x"}`, []int{2, 3}, 0, 2},
		"since a time that is to come":  {`{"endpoint":"ops","since":"` + at(7) + `","reason":"x"}`, nil, 0, 0},
		"a time that is over":           {`{"endpoint":"ops","since":"` + at(-2) + `","to":"` + at(0) + `","reason":"x"}`, nil, 0, 0},
		"behind a cursor, until a time": {`{"endpoint":"ops","after":"1.20","to":"` + at(5) + `","reason":"x"}`, []int{3, 4}, 1, 1},
		"an endpoint for named jobs":    {`{"endpoint":"named","after":"0.0","reason":"x"}`, []int{5}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.history()
			attempts, total := replayAll(t, w, c.request)
			if d := cmp.Diff(c.attempts, attempts); d != "" {
				t.Errorf("attempts (-want +got):\n%s", d)
			}
			if total.Scheduled != c.scheduled || total.Replayed != c.replayed {
				t.Errorf("%+v", total)
			}
		})
	}
}

// A page that is sent again under its key asks for the same deliveries under the same
// commands; the window is the endpoint's.
func TestReplayedPageHasOneEffect(t *testing.T) {
	w := newWorld()
	w.history()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	key := uuid.NewString()
	for range 2 {
		ask(t, srv, "POST", "/v1/callbacks/replay", operator, `{"endpoint":"ops","after":"0.0","reason":"x"}`, wire.HeaderIdempotencyKey, key)
	}
	if len(w.wanted) != 5 || w.wanted[0].Window != 72*time.Hour || w.lastMeta().Actor.Role != domain.RoleOperator {
		t.Errorf("%+v", w.wanted)
	}
	ask(t, srv, "POST", "/v1/callbacks/replay", operator, `{"endpoint":"ops","after":"0.0","reason":"x"}`, wire.HeaderIdempotencyKey, uuid.NewString())
	if len(w.wanted) != 10 {
		t.Errorf("another request asked for %d deliveries in all", len(w.wanted))
	}
}

// One result that cannot be delivered stops no other.
func TestARefusedResultStopsNoOther(t *testing.T) {
	w := newWorld()
	w.history()
	w.changed[numbered(2)] = true
	attempts, total := replayAll(t, w, `{"endpoint":"ops","after":"0.0","reason":"x"}`)
	if !slices.Equal(attempts, []int{1, 3, 4, 6}) || len(total.Refused) != 1 || total.Refused[0].AttemptID != numbered(2) || total.Refused[0].Code != "result_changed" {
		t.Errorf("%v %+v", attempts, total)
	}
}

func TestBadRangesAreRefused(t *testing.T) {
	w := newWorld()
	w.history()
	w.add("old", numbered(2), domain.CallbackDone)
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	for body, want := range map[string]struct {
		status        int
		code, pointer string
	}{
		`{"endpoint":"ops","reason":"x"}`:                                                            {422, "request_invalid", ""},
		`{"endpoint":"ops","until":"1.9","reason":"x"}`:                                              {422, "request_invalid", ""},
		`{"after":"1.1","reason":"x"}`:                                                               {422, "request_invalid", "/endpoint"},
		`{"endpoint":"ops","after":"1.1"}`:                                                           {422, "reason_required", "/reason"},
		`{"endpoint":"ops","after":"1.1","reason":" "}`:                                              {422, "reason_required", "/reason"},
		`{"endpoint":"ops","after":"1.1","reason":"` + strings.Repeat("x", 1001) + `"}`:              {422, "reason_required", "/reason"},
		`{"endpoint":"ops","after":"yesterday","reason":"x"}`:                                        {400, "cursor_invalid", ""},
		`{"endpoint":"ops","after":"1.1","until":"1","reason":"x"}`:                                  {400, "cursor_invalid", ""},
		`{"endpoint":"ops","after":"1.9","until":"1.9","reason":"x"}`:                                {422, "request_invalid", "/until"},
		`{"endpoint":"ops","after":"1.9","until":"1.8","reason":"x"}`:                                {422, "request_invalid", "/until"},
		`{"endpoint":"ops","since":"2026-03-02T00:00:00Z","to":"2026-03-01T00:00:00Z","reason":"x"}`: {422, "request_invalid", "/to"},
		`{"endpoint":"ops","since":"0001-01-01T00:00:00Z","reason":"x"}`:                             {422, "request_invalid", "/since"},
		`{"endpoint":"ops","since":"yesterday","reason":"x"}`:                                        {400, "invalid_value", "/since"},
		`{"endpoint":"ops","after":"1.1","states":["done"],"reason":"x"}`:                            {422, "request_invalid", "/states"},
		`{"endpoint":"ops","after":"1.1","limit":501,"reason":"x"}`:                                  {422, "request_invalid", "/limit"},
		`{"endpoint":"ops","after":"1.1","limit":-1,"reason":"x"}`:                                   {422, "request_invalid", "/limit"},
		`{"endpoint":"nobody","after":"1.1","reason":"x"}`:                                           {404, "endpoint_unknown", ""},
		`{"endpoint":"old","after":"1.1","reason":"x"}`:                                              {409, "endpoint_not_configured", ""},
		`{"endpoint":"ops","after":"1.1","reason":"x","dry_run":true}`:                               {400, "unknown_name", "/dry_run"},
	} {
		resp, answer := ask(t, srv, "POST", "/v1/callbacks/replay", operator, body)
		if p := problemIn(t, resp, answer); resp.StatusCode != want.status || p.Code != want.code || p.Pointer != want.pointer {
			t.Errorf("%s: %d %s at %q, want %+v", body, resp.StatusCode, p.Code, p.Pointer, want)
		}
	}
	if len(w.wanted) != 0 {
		t.Errorf("a bad range asked for %d deliveries", len(w.wanted))
	}
}

// A page that runs out of time says where to go on, and has come at least one result
// further.
func TestReplayWithoutTimeGoesOnLater(t *testing.T) {
	w := newWorld()
	w.history()
	srv := w.serve(t, func(c *api.Config) { c.RequestTimeout = 2 })
	resp, body := ask(t, srv, "POST", "/v1/callbacks/replay", w.token(domain.RoleOperator, nil), `{"endpoint":"ops","after":"1.10","reason":"x"}`)
	if p := decode[wire.ReplayAnswer](t, body); resp.StatusCode != 200 || p.Next == nil || *p.Next != "1.20" || len(w.wanted) != 1 {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

// Feed order is not exactly the order of time: a result that stands behind a later
// one is in its range all the same, and nothing else is.
func TestRangesOfTimeDoNotTrustTheOrderOfTheFeed(t *testing.T) {
	at := func(seconds int) time.Time { return recordedAt.Add(time.Duration(seconds) * time.Second) }
	for request, want := range map[string][]int{
		`{"endpoint":"ops","reason":"x","since":"` + at(8).Format(time.RFC3339) + `"}`:            {1},
		`{"endpoint":"ops","reason":"x","after":"0.0","to":"` + at(8).Format(time.RFC3339) + `"}`: {2},
	} {
		w := newWorld()
		for n, ended := range map[int]time.Time{1: at(10), 2: at(5)} {
			w.results = append(w.results, projections.StoredResult{Seq: int64(n), Generation: 1, AttemptID: numbered(n), JobType: "verification", SHA256: hash64, EndedAt: ended})
		}
		slices.SortFunc(w.results, func(a, b projections.StoredResult) int { return int(a.Seq - b.Seq) })
		if got, _ := replayAll(t, w, request); !slices.Equal(got, want) {
			t.Errorf("%s: attempts %v, want %v", request, got, want)
		}
	}
}
