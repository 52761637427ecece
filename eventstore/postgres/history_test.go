package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
)

// fedStore is a store with these appends in its feed, and one event of no-feed that
// is not.
func fedStore(t *testing.T, streams ...eventstore.StreamID) (*postgres.Store, []eventstore.FeedEvent) {
	t.Helper()
	s, _ := openStore(t, postgres.Options{})
	term := acquire(t, s, "sequencer")
	for _, stream := range streams {
		do(t, s, stream, 1)
	}
	if _, err := postgres.NewSequencer(s, "sequencer", postgres.SequencerOptions{}).Step(t.Context(), term); err != nil {
		t.Fatal(err)
	}
	do(t, s, streams[0], 1)
	feed, err := s.ReadFeed(t.Context(), eventstore.Cursor{}, 10000)
	if err != nil || len(feed) != len(streams) {
		t.Fatalf("%d events in the feed, want %d: %v", len(feed), len(streams), err)
	}
	return s, feed
}

func TestReadFeedOfStreams(t *testing.T) {
	t.Parallel()
	var appends []eventstore.StreamID
	r := rand.New(rand.NewPCG(1, 2))
	for range 80 {
		appends = append(appends, eventstore.StreamID(fmt.Sprintf("attempt/%d", r.IntN(4))))
	}
	s, feed := fedStore(t, appends...)
	streams := []eventstore.StreamID{"attempt/1", "attempt/3", "attempt/none"}
	for _, after := range []int64{0, 27, 80} {
		for _, limit := range []int{1, 7, 1000} {
			want := slices.DeleteFunc(slices.Clone(feed), func(e eventstore.FeedEvent) bool {
				return e.Cursor.Seq <= after || !slices.Contains(streams, e.Event.Stream)
			})
			var got []eventstore.FeedEvent
			versions := make([]int64, len(streams))
			cursor := eventstore.Cursor{Seq: after}
			for {
				page, err := s.ReadFeedOfStreams(t.Context(), streams, versions, cursor, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page {
					versions[slices.Index(streams, e.Event.Stream)], cursor = e.Event.Version, e.Cursor
				}
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("after %d by %d (-want +got):\n%s", after, limit, diff)
			}
		}
	}
	if _, err := s.ReadFeedOfStreams(t.Context(), streams, nil, eventstore.Cursor{}, 1); err == nil {
		t.Error("streams without versions are read")
	}
}

func TestStreamsOf(t *testing.T) {
	t.Parallel()
	s, _ := fedStore(t, "callback/a/x", "callback/a/y", "callback/a-b/x", "callback/a0/x", "callback/b/x/y", "callback/b", "callback/b/z", "callbacks/a/x",
		"access/2026-01-01/x", "access/2026-01-02/y", "attempt/x", "attempt/y", "x", "service", "forwarder/t/x/y")
	for _, c := range []struct {
		suffix string
		want   []eventstore.StreamID
	}{
		{"x", []eventstore.StreamID{"access/2026-01-01/x", "attempt/x", "callback/a-b/x", "callback/a/x", "callback/a0/x", "x"}},
		{"x/y", []eventstore.StreamID{"callback/b/x/y", "forwarder/t/x/y"}},
		{"none", nil},
	} {
		names := []eventstore.StreamID{eventstore.StreamID("attempt/" + c.suffix), eventstore.StreamID(c.suffix)}
		got, err := s.StreamsOf(t.Context(), names, []string{"callback", "access", "forwarder"}, c.suffix)
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("streams of %s (-want +got), %v:\n%s", c.suffix, err, diff)
		}
	}
}

func TestPreviousVersions(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, postgres.Options{})
	types := []string{"a", "a", "hb", "a", "hb", "hb"}
	for _, typ := range types {
		do(t, s, "one", 1, func(a *eventstore.Append) { a.Events[0].Type = typ })
	}
	var streams []eventstore.StreamID
	var below, wantOf, wantOthers []int64
	for v := int64(1); v <= 7; v++ {
		of, others := int64(0), int64(0)
		for i, typ := range types[:v-1] {
			if typ == "hb" {
				of = int64(i) + 1
			} else {
				others = int64(i) + 1
			}
		}
		streams, below, wantOf, wantOthers = append(streams, "one"), append(below, v), append(wantOf, of), append(wantOthers, others)
	}
	streams, below, wantOf, wantOthers = append(streams, "two"), append(below, 5), append(wantOf, 0), append(wantOthers, 0)
	of, others, err := s.PreviousVersions(t.Context(), streams, below, "hb")
	if diff := cmp.Diff([][]int64{wantOf, wantOthers}, [][]int64{of, others}); diff != "" || err != nil {
		t.Errorf("previous versions (-want +got), %v:\n%s", err, diff)
	}
}

func TestPlacesInTheFeed(t *testing.T) {
	t.Parallel()
	s, feed := fedStore(t, "a", "b", "a", "c")
	for _, e := range feed {
		if seq, ok, err := s.SeqOfEvent(t.Context(), e.Event.EventID); err != nil || !ok || seq != e.Cursor.Seq {
			t.Errorf("event %s is at %d (%t, %v), want %d", e.Event.EventID, seq, ok, err, e.Cursor.Seq)
		}
		if seq, ok, err := s.SeqOfPosition(t.Context(), e.Event.Position); err != nil || !ok || seq != e.Cursor.Seq {
			t.Errorf("position %d is at %d (%t, %v), want %d", e.Event.Position, seq, ok, err, e.Cursor.Seq)
		}
	}
	if _, ok, err := s.SeqOfEvent(t.Context(), uuid.New()); ok || err != nil {
		t.Errorf("an event that is not there: %t, %v", ok, err)
	}
	if _, ok, err := s.SeqOfPosition(t.Context(), 1000); ok || err != nil {
		t.Errorf("a position that is not there: %t, %v", ok, err)
	}
}

// plant fills the feed with events whose times are chosen, second by second.
func plant(t *testing.T, pool *pgxpool.Pool, start time.Time, seconds []int) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `
INSERT INTO events (position, version, time, event_id, command_id, cause, schema, stream, type, command_digest, actor_kind, actor_id, actor_role,
	actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
SELECT n, n, $1::timestamptz + make_interval(secs => s), gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'planted', 'x', sha256(''), '', '', '',
	'', '', '', '', sha256(''), sha256(''), '{}'
FROM unnest($2::int[]) WITH ORDINALITY AS u (s, n)`, start, seconds)
	if err == nil {
		_, err = pool.Exec(t.Context(), `INSERT INTO feed SELECT position, position FROM events`)
	}
	if err == nil {
		_, err = pool.Exec(t.Context(), `INSERT INTO sequencer_ticks SELECT tick + 1, $1, $1, at, lo FROM sequencer_ticks ORDER BY tick DESC LIMIT 1`, len(seconds))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The first event at or after a time is found though some were committed late, some
// had a clock that was ahead, and the clock was once set back.
func TestSeqOfTime(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := rand.New(rand.NewPCG(3, 4))
	for name, setBack := range map[string]int{"straight": 0, "set back": 4000} {
		t.Run(name, func(t *testing.T) {
			s, pool := openStore(t, postgres.Options{})
			if _, ok, err := s.SeqOfTime(t.Context(), start); ok || err != nil {
				t.Errorf("in an empty feed: %t, %v", ok, err)
			}
			seconds := make([]int, 20000)
			for i := range seconds {
				seconds[i] = i
				if i > 10000 {
					seconds[i] -= setBack
				}
				switch r.IntN(20) {
				case 0:
					seconds[i] -= r.IntN(600) // committed late
				case 1:
					seconds[i] += r.IntN(5)
				}
			}
			plant(t, pool, start, seconds)
			asked := []int{-5, 0, 1, 19999, 20010}
			for range 20 {
				asked = append(asked, r.IntN(9000), 12000+r.IntN(3000))
			}
			for _, at := range asked {
				want := int64(slices.IndexFunc(seconds, func(s int) bool { return s >= at })) + 1
				seq, ok, err := s.SeqOfTime(t.Context(), start.Add(time.Duration(at)*time.Second))
				if err != nil || ok != (want > 0) || seq != want {
					t.Errorf("second %d begins at %d (%t, %v), want %d", at, seq, ok, err, want)
				}
			}
		})
	}
}
