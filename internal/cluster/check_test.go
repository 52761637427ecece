package cluster_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/projections"
)

// evidence is all that is known when a round has ended.
type evidence struct {
	w       *world
	load    *load
	streams map[string][]domain.Fact // by attempt
	ids     map[string]map[uuid.UUID]int
	effects map[string][]effect // by attempt
	acks    map[string][]ack    // by attempt
	runners map[string]int      // by id
	hits    []hit
	// wall brings a boot-time moment to the wall clock, which the database has too.
	wall func(isolation.BootTime) time.Time
	// outcomes counts how attempts ended, for the account.
	outcomes map[string]int
}

func (w *world) gather(l *load) *evidence {
	w.t.Helper()
	e := &evidence{w: w, load: l, streams: map[string][]domain.Fact{}, ids: map[string]map[uuid.UUID]int{}, effects: map[string][]effect{},
		acks: map[string][]ack{}, runners: map[string]int{}, hits: w.hits, outcomes: map[string]int{}}
	now, boot := time.Now(), isolation.BootNow()
	e.wall = func(t isolation.BootTime) time.Time { return now.Add(t.Sub(boot)) }
	for _, r := range w.runners {
		e.runners[r.id] = r.n
	}
	leases := map[string]string{}
	for _, s := range l.stories {
		id := s.job.attempt()
		if err := e.read(id); err != nil {
			w.wrong.add("the stream of %s: %v", id, err)
		}
		for epoch := range int64(20) {
			leases[domain.LeaseIDOf(id, epoch).String()] = id.String()
		}
	}
	effects, err := lines[effect](w.effectsPath())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, x := range effects {
		e.effects[x.Attempt] = append(e.effects[x.Attempt], x)
	}
	acks, err := lines[ack](w.acksPath())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range acks {
		e.acks[leases[a.Lease]] = append(e.acks[leases[a.Lease]], a)
	}
	return e
}

func (e *evidence) read(id domain.AttemptID) error {
	events, err := e.w.desk.Store.ReadStream(e.w.ctx, eventstore.StreamID("attempt/"+id.String()), 0, 100_000)
	if err != nil {
		return err
	}
	e.ids[id.String()] = map[uuid.UUID]int{}
	for _, x := range events {
		d, err := domain.DecodeEvent(x.Type, x.Schema, x.Payload)
		if err != nil {
			return err
		}
		e.streams[id.String()] = append(e.streams[id.String()], domain.Fact{Event: d, At: x.Time})
		e.ids[id.String()][x.CommandID]++
	}
	return nil
}

// checkAll is what must hold at the end of every round.
func (e *evidence) checkAll() {
	e.checkEnded()
	e.checkLedger()
	e.checkFeed()
	e.checkResultsFeed()
	for _, s := range e.load.stories {
		if len(e.streams[s.job.attempt().String()]) == 0 {
			e.w.wrong.add("attempt %s has no events", s.job.ID)
			continue
		}
		e.checkAttempt(s)
	}
	for a := range e.acks {
		if a == "" {
			e.w.wrong.add("the service acknowledged writes of leases that nobody knows: %+v", e.acks[a])
		}
	}
}

// checkEnded: each attempt has one terminal event, and it is the last.
func (e *evidence) checkEnded() {
	rows, err := e.w.desk.Pool.Query(e.w.ctx, `
		SELECT a.attempt_id::text || ' is ' || s.phase FROM attempts a LEFT JOIN attempt_status s USING (attempt_id)
		WHERE s.phase IS DISTINCT FROM 'closed' OR (
			SELECT count(*) FILTER (WHERE e.type ~ '\.(succeeded|failed|cancelled|timed_out)$') <> 1
				OR max(e.version) FILTER (WHERE e.type ~ '\.(succeeded|failed|cancelled|timed_out)$') <> max(e.version)
			FROM events e WHERE e.stream = 'attempt/' || a.attempt_id)`)
	var open []string
	if err == nil {
		open, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(open) > 0 {
		e.w.wrong.add("attempts that did not end exactly once: %v, %v", open, err)
	}
	var attempts int
	if err := e.w.desk.Pool.QueryRow(e.w.ctx, "SELECT count(*) FROM attempts").Scan(&attempts); err != nil || attempts != len(e.load.stories) {
		e.w.wrong.add("%d attempts for %d jobs, %v", attempts, len(e.load.stories), err)
	}
}

func (e *evidence) checkLedger() {
	r, err := ledger.Verify(e.w.ctx, e.w.desk.Pool, nil)
	if err != nil || !r.OK() || r.Events == 0 || r.Rows == 0 {
		e.w.wrong.add("the ledger does not verify: %d events, %d rows, %v %v, %v", r.Events, r.Rows, r.Faults, r.Differences, err)
	}
	c, err := projections.Check(e.w.ctx, e.w.desk.Pool, nil)
	if err != nil || len(c.Differences) > 0 {
		e.w.wrong.add("the projections are not what the events give: %v, %v", c.Differences, err)
	}
}

// checkFeed: the feed has all events, each stream's in order, and whoever followed
// it through everything saw exactly it.
func (e *evidence) checkFeed() {
	w := e.w
	var missing, disorder int
	w.eventually("every event is in the feed", func() bool {
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM feed f WHERE f.position = e.position)").Scan(&missing)
		return err == nil && missing == 0
	})
	if err := w.desk.Pool.QueryRow(w.ctx, `
		SELECT count(*) FROM (
			SELECT e.version - lag(e.version, 1, 0::bigint) OVER (PARTITION BY e.stream ORDER BY f.seq) AS step
			FROM feed f JOIN events e USING (position)) x WHERE step <> 1`).Scan(&disorder); err != nil || disorder > 0 {
		w.wrong.add("%d events stand in the feed out of their stream's order, %v", disorder, err)
	}
	rows, err := w.desk.Pool.Query(w.ctx, "SELECT e.event_id FROM feed f JOIN events e USING (position) ORDER BY f.seq")
	var all []uuid.UUID
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); e.load.feed.count() < len(all) && time.Now().Before(end); {
		w.sleep(20 * time.Millisecond)
	}
	e.load.feed.stop()
	seen := e.load.feed.events
	for i, id := range all {
		if i >= len(seen) || seen[i].EventID != id.String() {
			w.wrong.add("event %d of the feed is %s; whoever followed it saw %d events and there something else", i, id, len(seen))
			return
		}
	}
}

// checkResultsFeed: each result stands there once, with the same bytes.
func (e *evidence) checkResultsFeed() {
	w := e.w
	seen := map[string]json.RawMessage{}
	for after := ""; ; {
		page, err := e.load.clients[0].Results(w.ctx, after, 100, 0)
		if err != nil {
			w.wrong.add("results after %q: %v", after, err)
			return
		}
		for _, item := range page.Items {
			if seen[item.AttemptID.String()] != nil {
				w.wrong.add("the result of %s comes twice", item.AttemptID)
			}
			seen[item.AttemptID.String()] = item.Result
			after = item.Cursor
		}
		if len(page.Items) == 0 {
			break
		}
	}
	for _, s := range e.load.stories {
		for _, raw := range s.results {
			if !bytes.Equal(raw, seen[s.job.attempt().String()]) {
				w.wrong.add("the result of %s is told in two ways:\n%s\n%s", s.job.ID, raw, seen[s.job.attempt().String()])
			}
		}
	}
}

// life is an attempt's stream, read for what the checks ask.
type life struct {
	id                             string
	epochs                         []domain.Leased
	started                        *domain.Started
	startedAt, leasedAt, expiredAt time.Time
	expired                        *domain.LeaseExpired
	claim                          *domain.Claim
	late                           *domain.Claim
	reaped                         *domain.ProcessTreeReaped
	stop                           *domain.StopRequested
	stopAt                         time.Time
	sealed                         *domain.Sealed
	stored                         map[string]int64
	artifacts                      []domain.ArtifactCreated
	evidence                       int
	decidedAt                      time.Time // when the outcome was fixed, or the end
	endedAt                        time.Time
	result                         domain.ExecutionResult
	holder                         int // runner of the started epoch; -1
}

func (e *evidence) life(id string) (life, error) {
	x := life{id: id, stored: map[string]int64{}, holder: -1}
	ended := map[int64]bool{}
	for _, f := range e.streams[id] {
		switch v := f.Event.(type) {
		case domain.Leased:
			if n := len(x.epochs); v.Epoch != int64(n+1) || n > 0 && !ended[v.Epoch-1] {
				return x, fmt.Errorf("epoch %d was given to %s while epoch %d was not over", v.Epoch, v.RunnerID, n)
			}
			x.epochs, x.leasedAt = append(x.epochs, v), f.At
		case domain.LeaseReleased:
			ended[v.Epoch] = true
		case domain.LeaseExpired:
			ended[v.Epoch] = true
			x.expired, x.expiredAt = &v, f.At
			if x.claim == nil {
				x.decidedAt = f.At
			}
		case domain.Started:
			if x.started != nil {
				return x, errors.New("it was started twice")
			}
			x.started, x.startedAt = &v, f.At
			x.holder = e.runners[x.epochs[len(x.epochs)-1].RunnerID.String()]
		case domain.Completed:
			if x.claim != nil {
				return x, errors.New("it was completed twice")
			}
			x.claim, x.decidedAt = &v.Claim, f.At
		case domain.LateOutcomeReported:
			x.late = &v.Claim
		case domain.ProcessTreeReaped:
			x.reaped = &v
		case domain.StopRequested:
			x.stop, x.stopAt = &v, f.At
		case domain.Sealed:
			x.sealed = &v
		case domain.ArtifactCreated:
			x.artifacts = append(x.artifacts, v)
		case domain.EvidenceRecorded:
			x.evidence++
		case domain.LogStored:
			if v.Offset != x.stored[v.Stream] {
				return x, fmt.Errorf("a chunk of %s begins at %d and %d bytes were stored before", v.Stream, v.Offset, x.stored[v.Stream])
			}
			x.stored[v.Stream] += v.Bytes
		}
		x.endedAt = f.At
		if x.decidedAt.IsZero() || x.claim == nil && x.expired == nil {
			x.decidedAt = f.At
		}
	}
	var err error
	x.result, err = domain.ResultOf(e.streams[id])
	return x, err
}

func (e *evidence) checkAttempt(s *story) {
	w := e.w
	id := s.job.attempt().String()
	x, err := e.life(id)
	if err != nil {
		w.wrong.add("attempt %s: %v", id, err)
		return
	}
	outcome := string(x.result.Status)
	if x.result.FailureCode != "" {
		outcome = string(x.result.FailureCode)
	}
	e.outcomes[outcome]++
	raw, err := json.Marshal(x.result)
	for _, got := range s.results {
		if err != nil || !bytes.Equal(got, raw) {
			w.wrong.add("attempt %s: its result is served as\n%s\nand its stream gives\n%s, %v", id, got, raw, err)
		}
	}
	e.checkLegal(s, &x)
	e.checkCommands(s)
	e.checkReads(s)
	e.checkEffects(s, &x)
	logs := e.checkLogs(s, &x)
	e.checkAcks(s, &x, logs)
	e.checkBundle(s, &x)
}

// checkBundle: what the manifest names is there, and what is not there is named.
func (e *evidence) checkBundle(s *story, x *life) {
	w := e.w
	raw, err := w.desk.Logs.Manifest(w.ctx, s.job.attempt())
	if err != nil {
		w.wrong.add("attempt %s: its manifest: %v", x.id, err)
		return
	}
	m, err := bundle.DecodeManifest(raw)
	if err != nil || x.result.RawOutputBundle.ManifestSHA256 != bundle.Sum(raw).String() {
		w.wrong.add("attempt %s: its manifest has digest %s and the result says %s, %v", x.id, bundle.Sum(raw), x.result.RawOutputBundle.ManifestSHA256, err)
		return
	}
	differences, err := bundle.Verify(m, func(key string) (io.ReadCloser, error) {
		r, err := w.desk.Bucket.Get(w.ctx, key, 0, -1)
		if errors.Is(err, objects.ErrNotFound) {
			err = errors.Join(bundle.ErrObjectMissing, err)
		}
		return r, err
	})
	if err != nil || len(differences) > 0 {
		w.wrong.add("attempt %s: its bundle: %v, %v", x.id, differences, err)
	}
	gaps := map[string]bool{}
	for _, g := range m.Gaps {
		gaps[string(g.Kind)+" "+g.Name] = true
	}
	if x.started != nil && x.claim == nil && len(gaps) == 0 {
		w.wrong.add("attempt %s was lost and its bundle names no gap", x.id)
	}
	// Outages of the service are shorter than the time that uploads have.
	if x.claim != nil && m.State != bundle.Complete && len(e.sufferedUntil(x, x.endedAt)) == 0 {
		w.wrong.add("attempt %s: its runner suffered nothing, and the bundle is %s with the gaps %+v%s", x.id, m.State, m.Gaps, e.tellLife(x))
	}
	if x.claim != nil {
		for _, c := range x.claim.Logs {
			if x.stored[c.Stream] != c.Bytes && !gaps["log "+c.Stream] {
				w.wrong.add("attempt %s: %d of %d bytes of %s are stored and no gap is named", x.id, x.stored[c.Stream], c.Bytes, c.Stream)
			}
		}
	}
	if s.job.Work.Artifact && x.result.Status == domain.StatusSucceeded {
		sum := fmt.Sprintf("%x", sha256.Sum256(artifactBytes(x.id)))
		found := false
		for _, a := range x.artifacts {
			found = found || a.Name == "report" && a.SHA256 == sum
		}
		if !found && m.State != bundle.Incomplete {
			w.wrong.add("attempt %s succeeded and its artifact is not there: %+v", x.id, x.artifacts)
		}
	}
}
