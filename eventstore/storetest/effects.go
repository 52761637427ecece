package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

func textOf(salt byte, s string) eventstore.Text {
	t := eventstore.Text{Salt: [16]byte{salt}, Bytes: []byte(s)}
	t.Digest = eventstore.TextDigest(t.Salt, t.Bytes)
	return t
}

func texts(t *testing.T, h Harness) {
	kept, secret, empty := textOf(1, "a reason\x00\xff"), textOf(2, "a name"), textOf(3, "")
	empty.Bytes = []byte{}
	with := func(texts ...eventstore.Text) func(*eventstore.Append) {
		return func(a *eventstore.Append) { a.Texts = texts }
	}
	must(t, h.Store, "suite/text", 1, with(kept, secret, empty))
	must(t, h.Store, "suite/text2", 1, with(kept)) // the same text again is one text
	for _, want := range []eventstore.Text{kept, secret, empty} {
		got, err := h.Replica.ReadText(t.Context(), want.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("text (-want +got):\n%s", diff)
		}
	}
	if _, err := h.Store.ReadText(t.Context(), eventstore.Digest{7}); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("reading no text: %v, want ErrNotFound", err)
	}
	if err := h.Store.EraseText(t.Context(), eventstore.Digest{7}); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("erasing no text: %v, want ErrNotFound", err)
	}
	for range 2 {
		if err := h.Store.EraseText(t.Context(), secret.Digest); err != nil {
			t.Fatalf("erase: %v", err)
		}
	}
	must(t, h.Store, "suite/text", 1, with(secret)) // what was erased does not come back
	if _, err := h.Replica.ReadText(t.Context(), secret.Digest); !errors.Is(err, eventstore.ErrErased) {
		t.Errorf("reading an erased text: %v, want ErrErased", err)
	}
	if _, err := h.Store.ReadText(t.Context(), kept.Digest); err != nil {
		t.Errorf("the text beside the erased one: %v", err)
	}
}

func status(id, s string, n int) eventstore.Change {
	return eventstore.Change{Table: "suite_status", Row: row(map[string]any{"id": id, "status": s, "n": n, "at": "2026-01-02T03:04:05.000006Z"})}
}

func lease(pool string, slot int, owner any) eventstore.Change {
	return eventstore.Change{Table: "suite_lease", Row: row(map[string]any{"pool": pool, "slot": slot, "owner": owner})}
}

func with(changes ...eventstore.Change) func(*eventstore.Append) {
	return func(a *eventstore.Append) { a.Rows = changes }
}

func deleted(c eventstore.Change) eventstore.Change {
	c.Delete = true
	return c
}

func wantRows(t *testing.T, h Harness, table, member string, want map[string]any) {
	t.Helper()
	got, err := h.Rows(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for key, r := range got {
		values[key] = fmt.Sprint(r["stream"], " ", r[member])
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("rows of %s (-want +got):\n%s", table, diff)
	}
}

func rows(t *testing.T, h Harness) {
	must(t, h.Store, "suite/r1", 1, with(status("a", "queued", 1), lease("p", 1, "x"), lease("p", 2, nil)))
	must(t, h.Store, "suite/r2", 1, with(status("b", "queued", 1)))
	wantRows(t, h, "suite_status", "status", map[string]any{"a": "suite/r1 queued", "b": "suite/r2 queued"})
	wantRows(t, h, "suite_lease", "owner", map[string]any{"p/1": "suite/r1 x", "p/2": "suite/r1 <nil>"})

	must(t, h.Replica, "suite/r1", 1, with(status("a", "running", 2), deleted(lease("p", 1, "x")), lease("p", 2, "y")))
	wantRows(t, h, "suite_status", "status", map[string]any{"a": "suite/r1 running", "b": "suite/r2 queued"})
	wantRows(t, h, "suite_lease", "owner", map[string]any{"p/2": "suite/r1 y"})

	// Several changes of one row in one command: the last one counts.
	must(t, h.Store, "suite/r1", 1, with(status("a", "one", 3), lease("p", 3, "z"), status("a", "two", 4), deleted(lease("p", 3, "z"))))
	wantRows(t, h, "suite_status", "status", map[string]any{"a": "suite/r1 two", "b": "suite/r2 queued"})
	wantRows(t, h, "suite_lease", "owner", map[string]any{"p/2": "suite/r1 y"})

	must(t, h.Store, "suite/r1", 1, with(deleted(lease("p", 9, nil)), deleted(eventstore.Change{Table: "suite_lease", Row: []byte(`{"pool":"p","slot":2}`)})))
	wantRows(t, h, "suite_lease", "owner", map[string]any{})
}

func foreignRow(t *testing.T, h Harness) {
	must(t, h.Store, "suite/mine", 1, with(status("m", "mine", 1), lease("p", 1, "mine")))
	_, err := Do(t.Context(), h.Store, "suite/theirs", 1, with(status("t", "theirs", 1), status("m", "theirs", 1)))
	if !errors.Is(err, eventstore.ErrRowTaken) {
		t.Errorf("writing a row of another stream: %v, want ErrRowTaken", err)
	}
	if got := read(t, h.Store, "suite/theirs"); len(got) != 0 {
		t.Errorf("%d events were stored without their row", len(got))
	}
	must(t, h.Store, "suite/theirs", 1, with(deleted(lease("p", 1, nil))))
	wantRows(t, h, "suite_status", "status", map[string]any{"m": "suite/mine mine"})
	wantRows(t, h, "suite_lease", "owner", map[string]any{"p/1": "suite/mine mine"})

	// The same from many at once: one stream gets the row.
	var wg sync.WaitGroup
	results := make([]error, 12)
	for i := range results {
		s := []Store{h.Store, h.Replica}[i%2]
		wg.Go(func() {
			_, results[i] = Do(t.Context(), s, eventstore.StreamID(fmt.Sprintf("suite/many/%d", i)), 1, with(status("one", "s", i)))
		})
	}
	wg.Wait()
	won := 0
	for i, err := range results {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, eventstore.ErrRowTaken):
			t.Errorf("contender %d: %v, want ErrRowTaken", i, err)
		}
	}
	if won != 1 {
		t.Errorf("%d streams wrote the same row", won)
	}
}

func refusedLeavesNothing(t *testing.T, h Harness) {
	stale := load(t, h.Store, "suite/nothing", uuid.New())
	must(t, h.Store, "suite/nothing", 1, with(status("n", "first", 1)))
	note := textOf(9, "refused")
	a := Command(stale, "suite/nothing", uuid.New(), 2)
	a.Rows, a.Texts = []eventstore.Change{status("n", "second", 2), lease("n", 1, "x")}, []eventstore.Text{note}
	if _, err := h.Store.Append(t.Context(), a); err == nil {
		t.Fatal("the stale append was accepted")
	}
	wantRows(t, h, "suite_status", "status", map[string]any{"n": "suite/nothing first"})
	wantRows(t, h, "suite_lease", "owner", map[string]any{})
	if _, err := h.Store.ReadText(t.Context(), note.Digest); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("text of the refused append: %v, want ErrNotFound", err)
	}
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if end, err := h.Feed.FeedEnd(t.Context()); err != nil || end.Seq != 1 {
		t.Errorf("feed ends at %v (%v), want one event", end, err)
	}
}

func failedNotPersisted(t *testing.T, h Harness) {
	must(t, h.Store, "suite/fail", 1)
	command := uuid.New()
	a := Command(load(t, h.Store, "suite/fail", command), "suite/fail", command, 1)
	h.FailNext(false)
	if _, err := h.Store.Append(t.Context(), a); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("append with the database gone: %v, want ErrUnavailable", err)
	}
	if l := load(t, h.Store, "suite/fail", command); l.Done != nil || l.Head.Version != 1 {
		t.Errorf("version %d, receipt %v: the append took effect", l.Head.Version, l.Done)
	}
	if _, err := h.Store.Append(t.Context(), a); err != nil {
		t.Errorf("repeating it: %v", err)
	}
}

func failedButPersisted(t *testing.T, h Harness) {
	must(t, h.Store, "suite/fail", 1)
	command := uuid.New()
	a := Command(load(t, h.Store, "suite/fail", command), "suite/fail", command, 2)
	h.FailNext(true)
	if _, err := h.Store.Append(t.Context(), a); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("append whose answer is lost: %v, want ErrUnavailable", err)
	}
	l := load(t, h.Store, "suite/fail", command)
	if l.Done == nil || l.Head.Version != 3 || l.Done.Version != 2 {
		t.Fatalf("version %d, receipt %v: the append is not to be found", l.Head.Version, l.Done)
	}
	_, err := h.Store.Append(t.Context(), a)
	conflict(t, err, eventstore.ConflictError{Stream: "suite/fail", Expected: 1, Actual: 3, Reason: "duplicate_command"})
}

func feedGapless(t *testing.T, h Harness) {
	const streams, writers, each = 5, 8, 12
	var wg sync.WaitGroup
	for w := range writers {
		s := []Store{h.Store, h.Replica}[w%2]
		wg.Go(func() {
			for i := range each {
				stream := eventstore.StreamID(fmt.Sprintf("suite/feed/%d", (w+i)%streams))
				for {
					_, err := Do(t.Context(), s, stream, 1+i%3)
					var c *eventstore.ConflictError
					if errors.As(err, &c) {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	wg.Wait()
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	CheckFeed(t, h.Feed, writers*each*2)
}

// CheckFeed reads the whole feed and fails if it has a gap, a repetition, a
// version out of order, or another number of events than want.
func CheckFeed(t *testing.T, f eventstore.Feed, want int) {
	t.Helper()
	versions := map[eventstore.StreamID]int64{}
	ids := map[uuid.UUID]bool{}
	var at eventstore.Cursor
	for {
		page, err := f.ReadFeed(t.Context(), at, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Cursor.Seq != at.Seq+1 {
				t.Fatalf("after seq %d comes %d", at.Seq, e.Cursor.Seq)
			}
			if v := versions[e.Event.Stream]; e.Event.Version != v+1 {
				t.Fatalf("seq %d: %s goes from version %d to %d", e.Cursor.Seq, e.Event.Stream, v, e.Event.Version)
			}
			if ids[e.Event.EventID] {
				t.Fatalf("seq %d: event %s comes again", e.Cursor.Seq, e.Event.EventID)
			}
			ids[e.Event.EventID], versions[e.Event.Stream], at = true, e.Event.Version, e.Cursor
		}
	}
	if len(ids) != want {
		t.Fatalf("the feed holds %d events, %d were stored", len(ids), want)
	}
	end, err := f.FeedEnd(t.Context())
	if err != nil || end.Seq != int64(want) {
		t.Fatalf("the feed ends at %v (%v), want seq %d", end, err, want)
	}
}

func feedCursors(t *testing.T, h Harness) {
	stored := must(t, h.Store, "suite/cursor", 5)
	if err := h.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := h.Feed.ReadFeed(t.Context(), eventstore.Cursor{}, 2)
	if err != nil || len(first) != 2 {
		t.Fatalf("%d events (%v), want 2", len(first), err)
	}
	parsed, err := eventstore.ParseCursor(first[1].Cursor.String())
	if err != nil {
		t.Fatal(err)
	}
	rest, err := h.Feed.ReadFeed(t.Context(), parsed, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []eventstore.Event
	for _, e := range append(first, rest...) {
		got = append(got, e.Event)
	}
	if diff := cmp.Diff(stored, got); diff != "" {
		t.Errorf("feed in two pages (-stored +read):\n%s", diff)
	}
	again, err := h.Feed.ReadFeed(t.Context(), eventstore.Cursor{Generation: parsed.Generation + 7, Seq: parsed.Seq}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rest, again); diff != "" {
		t.Errorf("a cursor of another generation (-same seq +got):\n%s", diff)
	}
	end, err := h.Feed.FeedEnd(t.Context())
	if err != nil || end != rest[2].Cursor {
		t.Errorf("the feed ends at %v (%v), want %v", end, err, rest[2].Cursor)
	}
	if past, err := h.Feed.ReadFeed(t.Context(), end, 10); err != nil || len(past) != 0 {
		t.Errorf("%d events past the end (%v)", len(past), err)
	}
}
