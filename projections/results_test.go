package projections_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

// withResults makes n attempts that ended, and others that did not, and lets the
// reader of results come to the end of the feed.
func withResults(t *testing.T, n int) (*bench, []domain.AttemptID) {
	t.Helper()
	b := newBench(t)
	b.populate(4)
	ids := make([]domain.AttemptID, n)
	for i := range ids {
		var err error
		if ids[i], err = b.life(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.s.Stop(t.Context(), meta("stop"), ids[i], domain.StopCancel, "enough"); err != nil {
			t.Fatal(err)
		}
	}
	b.follow()
	return b, ids
}

// follow feeds what happened and lets the reader of results catch up, then ends both.
func (b *bench) follow() {
	b.t.Helper()
	store := postgres.Open(b.pool, projections.Tables(), postgres.Options{})
	defer store.Close()
	events := b.text(`SELECT count(*)::text FROM events`)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 2)
	runner := catchup.New(b.pool, catchup.Results(), catchup.Options{})
	go func() {
		done <- postgres.NewSequencer(store, uuid.NewString(), postgres.SequencerOptions{}).Run(ctx)
	}()
	go func() { done <- runner.Run(ctx) }()
	wait, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for {
		s, err := runner.Status(wait)
		if err != nil {
			b.t.Fatal(err)
		}
		if s.LagEvents == 0 && strconv.FormatInt(s.Checkpoint.Seq, 10) == events {
			break
		}
	}
	cancel()
	<-done
	<-done
}

func (b *bench) rebuildResults() projections.ResultsRebuilt {
	b.t.Helper()
	r, err := projections.RebuildResults(b.t.Context(), b.pool)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// Every way in which the table may differ from the ledger is named, and a rebuild
// makes it what the ledger says. What it did to rows that were there is told.
func TestResultsAreCheckedAndRebuilt(t *testing.T) {
	b, ids := withResults(t, 8)
	if r := b.check(); len(r.Differences) != 0 {
		t.Fatalf("before: %v", r.Differences)
	}
	before := b.contents("results")
	if r := b.rebuildResults(); r.Filled+r.Mended+r.Removed != 0 || r.Rows != 8 {
		t.Errorf("a rebuild of what is right: %+v", r)
	}
	stranger := uuid.New()
	for i, change := range []string{
		"DELETE FROM results WHERE attempt_id = $1",
		"UPDATE results SET body = body || ' ' WHERE attempt_id = $1",
		"UPDATE results SET body = body || ' ', sha256 = encode(sha256(body || ' '), 'hex') WHERE attempt_id = $1",
		"UPDATE results SET sha256 = repeat('0', 64) WHERE attempt_id = $1",
		"UPDATE results SET seq = seq + 1000000 WHERE attempt_id = $1",
		"UPDATE results SET callback_ref = 'elsewhere' WHERE attempt_id = $1",
		"UPDATE results SET ended_at = ended_at + interval '1 microsecond', job_type = 'x', environment = 'y' WHERE attempt_id = $1",
	} {
		b.exec(change, ids[i].UUID())
	}
	b.exec("INSERT INTO results SELECT seq + 2000000, generation, $1, job_type, environment, callback_ref, sha256, body, ended_at FROM results LIMIT 1", stranger)
	got := map[string]string{}
	for _, d := range b.check().Differences {
		kind := "differs"
		switch {
		case d.Got == nil:
			kind = "missing"
		case d.Want == nil:
			kind = "extra"
		}
		got[d.Table+" "+strings.TrimPrefix(d.Stream, "attempt/")] += kind
	}
	want := map[string]string{"results " + ids[0].String(): "missing", "results " + stranger.String(): "extra"}
	for i := 1; i < 7; i++ {
		want["results "+ids[i].String()] = "differs"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r := b.rebuildResults()
	if r.Filled != 1 || r.Mended != 6 || r.Removed != 1 || r.Rows != 8 || len(r.Changed) != 7 {
		t.Errorf("the rebuild says %+v", r)
	}
	for _, d := range r.Changed {
		if d.Got == nil || !strings.Contains(d.String(), "sha256") {
			t.Errorf("a changed row is told as %q", d)
		}
	}
	if d := cmp.Diff(before, b.contents("results")); d != "" {
		t.Errorf("after the rebuild: %s", d)
	}
	if r := b.check(); len(r.Differences) != 0 {
		t.Errorf("after the rebuild: %v", r.Differences)
	}
}

// The table may be behind the ledger by what its reader has not come to: that is
// no difference. A row beyond the checkpoint is one.
func TestResultsAreCheckedUpToTheCheckpoint(t *testing.T) {
	b, ids := withResults(t, 3)
	seq := b.text(`SELECT (max(seq) - 1)::text FROM results`)
	b.exec(`UPDATE checkpoints SET seq = $1::bigint WHERE name = 'results'`, seq)
	ds := b.check().Differences
	if len(ds) != 1 || ds[0].Stream != string(commands.AttemptStream(ids[2])) || ds[0].Got == nil || ds[0].Want != nil {
		t.Errorf("a row beyond the checkpoint: %v", ds)
	}
	b.exec(`DELETE FROM results WHERE seq > $1::bigint`, seq)
	if ds := b.check().Differences; len(ds) != 0 {
		t.Errorf("a row that is not due yet: %v", ds)
	}
	if r := b.rebuildResults(); r.Rows != 2 || r.Filled != 0 {
		t.Errorf("a rebuild went beyond the checkpoint: %+v", r)
	}
	b.exec(`DELETE FROM results`)
	b.exec(`DELETE FROM checkpoints`)
	if ds := b.check().Differences; len(ds) != 0 {
		t.Errorf("without a reader: %v", ds)
	}
	b.follow()
	if ds := b.check().Differences; len(ds) != 0 || b.text(`SELECT count(*)::text FROM results`) != "3" {
		t.Errorf("after the reader began anew: %v", ds)
	}
}

// A stream that gives no result keeps its row, and is an error in the end.
func TestResultOfADamagedStream(t *testing.T) {
	b, ids := withResults(t, 2)
	b.exec(`ALTER TABLE events DISABLE TRIGGER events_no_change`)
	b.exec(`DELETE FROM events WHERE stream = $1 AND type = $2`, "attempt/"+ids[0].String(), domain.Sealed{}.EventType())
	b.exec(`DELETE FROM results WHERE attempt_id = $1`, ids[1].UUID())
	r, err := projections.RebuildResults(t.Context(), b.pool)
	if err == nil || !strings.Contains(err.Error(), ids[0].String()) || r.Filled != 1 || r.Rows != 2 {
		t.Errorf("the rebuild says %+v, %v", r, err)
	}
}
