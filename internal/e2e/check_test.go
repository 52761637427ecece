package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

// checkEverything is what must hold at the end of every test: all attempts have
// ended, the ledger verifies, each projection equals its rebuild, everything is in
// the feed, and each bundle is in object storage.
func (w *world) checkEverything() {
	w.t.Helper()
	w.checkEnded()
	w.checkLedger()
	w.checkRebuild()
	w.checkFeed()
	w.checkBundles()
}

func (w *world) checkEnded() {
	w.t.Helper()
	var open []string
	if err := w.desk.Pool.QueryRow(w.ctx, "SELECT coalesce(array_agg(attempt_id || ' is ' || phase), '{}') FROM attempt_status WHERE phase <> 'closed'").Scan(&open); err != nil {
		w.t.Fatal(err)
	}
	if len(open) > 0 {
		w.t.Errorf("attempts have not ended: %v", open)
	}
	// One terminal event for each attempt, and it is the last.
	rows, err := w.desk.Pool.Query(w.ctx, `
		SELECT a.attempt_id FROM attempts a WHERE (
			SELECT count(*) FILTER (WHERE e.type ~ '\.(succeeded|failed|cancelled|timed_out)$') <> 1
				OR max(e.version) FILTER (WHERE e.type ~ '\.(succeeded|failed|cancelled|timed_out)$') <> max(e.version)
			FROM events e WHERE e.stream = 'attempt/' || a.attempt_id)`)
	if err != nil {
		w.t.Fatal(err)
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(wrong) > 0 {
		w.t.Errorf("attempts without one last terminal event: %v, %v", wrong, err)
	}
}

func (w *world) checkLedger() {
	w.t.Helper()
	r, err := ledger.Verify(w.ctx, w.desk.Pool, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if !r.OK() {
		w.t.Errorf("the ledger does not verify: %v %v", r.Faults, r.Differences)
	}
	if r.Events == 0 || r.Rows == 0 {
		w.t.Errorf("the ledger is empty: %+v", r)
	}
}

func (w *world) checkRebuild() {
	w.t.Helper()
	for _, t := range projections.Tables() {
		w.checkRebuildOf(t.Name)
	}
	r, err := projections.Check(w.ctx, w.desk.Pool, nil)
	if err != nil || len(r.Differences) > 0 {
		w.t.Errorf("after the rebuild: %v, %v", r.Differences, err)
	}
}

// checkRebuildOf compares a table with its rebuild. A service that still runs may
// append meanwhile (a runner is drained, or lost): then it compares again.
func (w *world) checkRebuildOf(table string) {
	w.t.Helper()
	for {
		events, before := w.eventCount(), w.contents(table)
		if _, err := projections.Rebuild(w.ctx, w.desk.Pool, table); err != nil {
			w.t.Fatalf("rebuild %s: %v", table, err)
		}
		after := w.contents(table)
		if before == after {
			return
		}
		if w.eventCount() == events {
			w.t.Errorf("%s is not what its rebuild gives:\n%s\n%s", table, before, after)
			return
		}
	}
}

func (w *world) eventCount() int {
	w.t.Helper()
	var n int
	if err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) contents(table string) string {
	w.t.Helper()
	var s string
	err := w.desk.Pool.QueryRow(w.ctx, fmt.Sprintf(`SELECT coalesce(string_agg(r, E'\n'), '') FROM (SELECT to_jsonb(x)::text AS r FROM %s x ORDER BY 1) y`,
		pgx.Identifier{table}.Sanitize())).Scan(&s)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) checkFeed() {
	w.t.Helper()
	w.eventually("every event is in the feed", func() bool {
		var missing int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM feed f WHERE f.position = e.position)").Scan(&missing)
		return err == nil && missing == 0
	})
	var faults int
	if err := w.desk.Pool.QueryRow(w.ctx, `
		SELECT count(*) FROM (
			SELECT e.version - lag(e.version, 1, 0::bigint) OVER (PARTITION BY e.stream ORDER BY f.seq) AS step
			FROM feed f JOIN events e USING (position)) x WHERE step <> 1`).Scan(&faults); err != nil {
		w.t.Fatal(err)
	}
	if faults > 0 {
		w.t.Errorf("%d events are out of their stream's order in the feed", faults)
	}
}

func (w *world) checkBundles() {
	w.t.Helper()
	rows, err := w.desk.Pool.Query(w.ctx, "SELECT attempt_id FROM attempts")
	if err != nil {
		w.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		w.t.Fatal(err)
	}
	for _, u := range ids {
		w.checkBundle(domain.NewID[domain.AttemptID](u))
	}
}

func (w *world) checkBundle(id domain.AttemptID) bundle.Manifest {
	w.t.Helper()
	r, err := w.desk.Logs.Result(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	raw, err := w.desk.Logs.Manifest(w.ctx, id)
	if errors.Is(err, artifacts.ErrQuarantined) { // it is whole, and nobody may have it here
		raw, err = w.object(w.ctx, strings.TrimPrefix(r.RawOutputBundle.URI, "s3://"+w.s3.Bucket+"/"))
	}
	if err != nil {
		w.t.Fatalf("manifest of %s: %v", id, err)
	}
	m, err := bundle.DecodeManifest(raw)
	if err != nil {
		w.t.Fatalf("manifest of %s: %v", id, err)
	}
	if sum := bundle.Sum(raw).String(); r.RawOutputBundle.ManifestSHA256 != sum {
		w.t.Errorf("the result of %s names manifest %s, it is %s", id, r.RawOutputBundle.ManifestSHA256, sum)
	}
	// The canonical empty bundles are written after their attempts have ended.
	key := bundle.ManifestKey(m.Prefix(), bundle.Sum(raw))
	w.eventually("the manifest of "+id.String()+" is in object storage", func() bool {
		stored, err := w.object(w.ctx, key)
		return err == nil && bytes.Equal(stored, raw)
	})
	differences, err := bundle.Verify(m, func(key string) (io.ReadCloser, error) {
		r, err := w.desk.Bucket.Get(w.ctx, key, 0, -1)
		if errors.Is(err, objects.ErrNotFound) {
			err = errors.Join(bundle.ErrObjectMissing, err)
		}
		return r, err
	})
	if err != nil || len(differences) > 0 {
		w.t.Errorf("the bundle of %s: %v, %v", id, differences, err)
	}
	return m
}

func (w *world) object(ctx context.Context, key string) ([]byte, error) {
	r, err := w.desk.Bucket.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
