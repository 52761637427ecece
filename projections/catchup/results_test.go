package catchup_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
	"github.com/platform-core/execution-plane-service/runners"
)

func (b *bench) commands() *commands.Service {
	return commands.New(commands.Config{
		Store: b.store, Index: commands.NewIndex(projections.NewReader(b.pool)), Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/", Endpoint: func(string) bool { return true },
	})
}

func meta(request string) commands.Meta {
	return commands.Meta{CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(request)),
		Actor: eventstore.Actor{Kind: "operator", ID: "bench", Role: domain.RoleOperator, Auth: "test"}}
}

// ended submits an attempt and cancels it, which ends it.
func ended(ctx context.Context, s *commands.Service, callback string) (domain.AttemptID, error) {
	spec := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: domain.Controls{TimeoutSeconds: 600, CallbackRef: callback},
	}
	raw, err := json.Marshal(spec)
	if err == nil {
		_, err = s.Submit(ctx, meta("submit"), spec, raw)
	}
	if err == nil {
		_, err = s.Stop(ctx, meta("stop"), spec.AttemptID, domain.StopCancel, "enough")
	}
	return spec.AttemptID, err
}

// wholeResult folds every event of an attempt's stream, as the API does.
func (b *bench) wholeResult(stream eventstore.StreamID) (body []byte, endedAt time.Time) {
	b.t.Helper()
	var facts []domain.Fact
	for {
		events, err := b.store.ReadStream(b.t.Context(), stream, int64(len(facts)), 5000)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
			if err != nil {
				b.t.Fatal(err)
			}
			facts = append(facts, domain.Fact{Event: d, At: e.Time})
		}
	}
	r, err := domain.ResultOf(facts)
	if err != nil {
		b.t.Fatal(err)
	}
	if body, err = json.Marshal(r); err != nil {
		b.t.Fatal(err)
	}
	return body, facts[len(facts)-1].At
}

func sum(b []byte) string {
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// While many attempts end at once and several replicas follow, a reader that goes
// on from the last seq it saw gets every result once, in the order of the feed,
// with the bytes that a fold of the whole stream gives.
func TestResultsInFeedOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		r := b.runner(catchup.Results(), func(o *catchup.Options) { o.Page = 20 })
		b.start(r.Run)
	}
	reader := projections.NewReader(b.pool)
	const writers, each = 6, 12
	var seen []projections.StoredResult
	var followed sync.WaitGroup
	followed.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		after := int64(0)
		for len(seen) < writers*each {
			page, err := reader.ResultsAfter(ctx, after, 5)
			if err != nil {
				t.Error(err)
				return
			}
			for _, x := range page {
				seen, after = append(seen, x), x.Seq
			}
		}
	})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := b.commands()
			for i := range each {
				callback := ""
				if i%2 == 0 {
					callback = fmt.Sprintf("endpoint-%d", w)
				}
				if _, err := ended(t.Context(), s, callback); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	followed.Wait()
	want := value[[]int64](b, `SELECT array_agg(f.seq ORDER BY f.seq) FROM feed f JOIN events e USING (position) WHERE e.type = ANY($1)`, projections.ResultEnds())
	got := make([]int64, len(seen))
	for i, x := range seen {
		got[i] = x.Seq
		stream := commands.AttemptStream(x.AttemptID)
		body, at := b.wholeResult(stream)
		if string(x.Body) != string(body) || x.SHA256 != sum(body) || !x.EndedAt.Equal(at) || x.JobType != "verification" || x.Environment != "test" || x.Generation != 1 {
			t.Errorf("the row of %s is %+v, its stream gives %s", x.AttemptID, x, body)
		}
		if one, ok, err := reader.StoredResult(t.Context(), x.AttemptID); err != nil || !ok || string(one.Body) != string(body) || one.Seq != x.Seq || one.CallbackRef != x.CallbackRef {
			t.Errorf("by its id: %+v, %v, %v", one, ok, err)
		}
	}
	if len(got) != writers*each || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("a reader saw\n%v, the feed has\n%v", got, want)
	}
	if n := value[int64](b, `SELECT count(*) FROM results WHERE callback_ref LIKE 'endpoint-%'`); n != writers*each/2 {
		t.Errorf("%d rows name an endpoint, want half of %d; the others have null", n, writers*each)
	}
	queries(t, b, reader, seen)
}

// queries: a range of places, a moment, an attempt without a result.
func queries(t *testing.T, b *bench, reader *projections.Reader, seen []projections.StoredResult) {
	t.Helper()
	page, err := reader.ResultsBetween(t.Context(), seen[3].Seq, seen[9].Seq, 100)
	if err != nil || len(page) != 6 || page[0].Seq != seen[4].Seq || page[5].Seq != seen[9].Seq {
		t.Errorf("between two places: %v, %v", page, err)
	}
	if page, err := reader.ResultsAfter(t.Context(), seen[4].Seq-1, 1); err != nil || len(page) != 1 || page[0].Seq != seen[4].Seq {
		t.Errorf("from a place between two results: %v, %v", page, err)
	}
	if _, ok, err := reader.StoredResult(t.Context(), domain.NewID[domain.AttemptID](uuid.New())); ok || err != nil {
		t.Errorf("an unknown attempt has a result (%v)", err)
	}
	oldest := value[time.Time](b, `SELECT min(ended_at) FROM results`)
	if seq, ok, err := reader.SeqAt(t.Context(), oldest.Add(-time.Hour)); err != nil || !ok || seq != seen[0].Seq {
		t.Errorf("from an hour before: seq %d, %v, %v, want the first, %d", seq, ok, err, seen[0].Seq)
	}
	middle := seen[len(seen)/2].EndedAt
	lowest := value[int64](b, `SELECT min(seq) FROM results WHERE ended_at >= $1`, middle)
	if seq, ok, err := reader.SeqAt(t.Context(), middle); err != nil || !ok || seq != lowest {
		t.Errorf("from the middle: seq %d, %v, %v, want %d", seq, ok, err, lowest)
	}
	if seq, ok, err := reader.SeqAt(t.Context(), time.Now().Add(time.Hour)); err != nil || ok {
		t.Errorf("from an hour on: seq %d, %v, %v, want none", seq, ok, err)
	}
	b.exec(`UPDATE sequencer SET generation = 7`)
	if page, err := reader.ResultsAfter(t.Context(), 0, 1); err != nil || page[0].Cursor().String() != fmt.Sprintf("7.%d", seen[0].Seq) {
		t.Errorf("in another generation: %v, %v, want the cursor that the feed gives now", page[0].Cursor(), err)
	}
	b.exec(`UPDATE results SET body = convert_to(repeat('x', 5000000), 'UTF8') WHERE seq <= $1`, seen[3].Seq)
	var sizes []int
	for after := int64(0); after < seen[3].Seq; {
		page, err := reader.ResultsAfter(t.Context(), after, 100)
		if err != nil || len(page) == 0 {
			t.Fatalf("a page of large results: %d, %v", len(page), err)
		}
		sizes, after = append(sizes, len(page)), page[len(page)-1].Seq
	}
	if sizes[0] != 2 {
		t.Errorf("pages of results of 5 MB held %v, want two in the first", sizes)
	}
}

// An attempt at its limits: 1,000 artifacts, 1,000 evidence, 100,000 heartbeats.
func TestResultAtItsLimits(t *testing.T) {
	t.Parallel()
	b := newStillBench(t)
	id := domain.NewID[domain.AttemptID](uuid.New())
	stream := commands.AttemptStream(id)
	version := int64(0)
	insert := func(events ...domain.Event) {
		var names, payloads []string
		for _, e := range events {
			name, _, payload, err := domain.EncodeEvent(e)
			if err != nil {
				t.Fatal(err)
			}
			names, payloads = append(names, name), append(payloads, string(payload))
		}
		b.exec(insertSQL, string(stream), version, names, payloads)
		version += int64(len(events))
	}
	insert(domain.Created{AttemptID: id, OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "n", JobType: "opentofu", Environment: "prod", Callback: "ops", StorageBase: "s3://b/"})
	b.exec(`ALTER TABLE events DROP CONSTRAINT events_event_id_key; DROP INDEX events_tx_id_position`) // only to insert faster
	const beats = 100_000
	name, _, payload, err := domain.EncodeEvent(domain.Heartbeat{})
	if err != nil {
		t.Fatal(err)
	}
	b.exec(strings.Replace(insertSQL, "unnest($3::text[], $4::text[]) WITH ORDINALITY AS e (type, payload, n)",
		"generate_series(1, $5::int) AS n, (SELECT $3::text AS type, $4::text AS payload) e", 1), string(stream), version, name, string(payload), beats)
	version += beats
	var records []domain.Event
	for i := range 1000 {
		name := fmt.Sprintf("artifact-%d-%s", i, strings.Repeat("n", 80))
		records = append(records, domain.ArtifactCreated{ID: domain.ArtifactIDOf(id, name), Name: name, Type: "report", Storage: "s3", URI: "s3://b/" + name, Key: name, Sensitivity: "internal", Bytes: 5, SHA256: sum([]byte(name))},
			domain.EvidenceRecorded{ID: domain.NewID[domain.EvidenceID](uuid.New()), Name: name, Type: "api_check", Result: "passed", Source: name, ObservedAt: time.Now().UTC().Truncate(time.Microsecond)})
	}
	insert(records...)
	insert(domain.Sealed{BundleID: "b", State: "complete"}, domain.Succeeded{Ended: domain.Ended{Category: domain.CategorySuccess, FinishedAt: time.Now().UTC().Truncate(time.Microsecond)}})
	b.exec(`INSERT INTO feed SELECT row_number() OVER (ORDER BY position), position FROM events`)
	b.exec(`INSERT INTO sequencer_ticks SELECT tick + 1, $1, (SELECT max(position) FROM events), at, lo FROM sequencer_ticks ORDER BY tick DESC LIMIT 1`, version)
	r := b.runner(catchup.Results())
	b.start(r.Run)
	began := time.Now()
	b.caughtUp(r)
	took := time.Since(began)
	row, ok, err := projections.NewReader(b.pool).StoredResult(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("the result: %v, %v", ok, err)
	}
	body, _ := b.wholeResult(stream)
	if string(row.Body) != string(body) || row.SHA256 != sum(body) || row.Seq != version || row.CallbackRef != "ops" || row.JobType != "opentofu" || row.Environment != "prod" {
		t.Errorf("the row differs from what the whole stream gives: %d and %d bytes", len(row.Body), len(body))
	}
	t.Logf("%d events passed and the result of %d bytes fixed in %s", version, len(body), took)
}

const insertSQL = `
	INSERT INTO events (version, time, event_id, command_id, cause, schema, stream, type, command_digest, actor_kind, actor_id,
		actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
	SELECT $2 + n, clock_timestamp(), gen_random_uuid(), z, z, 1, $1, e.type, d, '', '', '', '', '', '', '', d, d, convert_to(e.payload, 'UTF8')
	FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS e (type, payload, n),
		(SELECT decode(repeat('00', 32), 'hex') AS d, '00000000-0000-0000-0000-000000000000'::uuid AS z) x`

// A stream that gives no result stops the projection before its end, and says so.
func TestResultThatCannotBeFolded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := domain.NewID[domain.AttemptID](uuid.New())
	b.happen(commands.AttemptStream(id), domain.Succeeded{Ended: domain.Ended{Category: domain.CategorySuccess}}, 1)
	if _, err := ended(t.Context(), b.commands(), ""); err != nil {
		t.Fatal(err)
	}
	b.fed(3)
	r := b.runner(catchup.Results())
	b.start(r.Run)
	b.until("it to stop", func() bool { return b.status(r).Stopped() })
	if s := b.status(r); s.FailedAt.Seq != 1 || !strings.Contains(s.LastError, "execution-plane verify") || !strings.Contains(s.LastError, id.String()) {
		t.Errorf("it says %+v", s)
	}
	if n := value[int64](b, `SELECT count(*) FROM results`); n != 0 {
		t.Errorf("%d results were written out of order", n)
	}
}

// A row is fixed once: what the stream gives later, or again, changes nothing.
func TestRowIsNeverChanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, err := ended(t.Context(), b.commands(), "")
	if err != nil {
		t.Fatal(err)
	}
	r := b.runner(catchup.Results())
	stop := b.start(r.Run)
	b.until("the result", func() bool {
		_, ok, err := projections.NewReader(b.pool).StoredResult(t.Context(), id)
		return ok && err == nil
	})
	stop()
	b.exec(`UPDATE results SET body = 'as it was'`)
	b.exec(`UPDATE checkpoints SET seq = 0`)
	r = b.runner(catchup.Results())
	b.start(r.Run)
	b.caughtUp(r)
	if row, _, err := projections.NewReader(b.pool).StoredResult(t.Context(), id); err != nil || string(row.Body) != "as it was" {
		t.Errorf("the row reads %q (%v)", row.Body, err)
	}
}
