package e2e_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/plane"
)

// History is published again by the binary's own verb, and a consumer knows all of
// it; callbacks are made again by id and by range, with the same ids and bytes.
func replayed(t *testing.T, broker *kafkatest.Process) {
	b := present(t)
	d := newDelivered(t, setup{}, broker)
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	ids := d.quickly(s.control, 4)
	d.wantSucceeded(s.control, ids...)
	first := d.arrived()

	env := []string{
		"EXECUTION_PLANE_DATABASE_URL=" + d.db, "EXECUTION_PLANE_KAFKA_BROKERS=" + strings.Join(d.kafka.Brokers, ","), "EXECUTION_PLANE_KAFKA_PARTITIONS=2",
		"EXECUTION_PLANE_KAFKA_TOPIC_ATTEMPTS=" + d.topics.Attempts, "EXECUTION_PLANE_KAFKA_TOPIC_HEARTBEATS=" + d.topics.Heartbeats,
		"EXECUTION_PLANE_KAFKA_TOPIC_RUNNERS=" + d.topics.Runners, "EXECUTION_PLANE_KAFKA_TOPIC_CALLBACKS=" + d.topics.Callbacks,
		"EXECUTION_PLANE_KAFKA_TOPIC_AUDIT=" + d.topics.Audit,
	}
	for _, args := range [][]string{
		{"--from", "1.0"},
		{"--from", "1.0", "--type", domain.Created{}.EventType(), "--topic", d.topics.Attempts},
	} {
		if out, err := b.run(d.ctx, t, env, append([]string{"forwarder", "replay", "--reason", "a consumer asks"}, args...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	second := d.arrived()
	if again := second.Replayed - first.Replayed; first.Replayed != 0 || again < first.Events+len(ids) || second.Again < again {
		t.Errorf("before %s; after %s", first, second)
	}
	var noted int
	if err := d.desk.Pool.QueryRow(d.ctx, "SELECT count(*) FROM events WHERE type = $1", domain.ForwarderReplayed{}.EventType()).Scan(&noted); err != nil || noted != 2 {
		t.Errorf("%d replays stand in the ledger (%v)", noted, err)
	}

	requests, _ := d.peer("all").Receiver.Counts()
	one := d.callbacks()[0]
	if _, err := s.operator.ReplayCallback(d.ctx, newKey(), one.CallbackID, "it asks"); err != nil {
		t.Fatal(err)
	}
	d.came(requests + 1)
	results := d.settled()
	for after, done := results[0].Cursor, 0; ; { // behind the first
		a, err := s.operator.ReplayResults(d.ctx, newKey(), wire.ReplayRequest{Endpoint: "all", After: after, Reason: "it asks", Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if done += a.Replayed; a.Next == nil {
			if done != len(ids)-1 {
				t.Errorf("%d of %d results are replayed", done, len(ids)-1)
			}
			break
		}
		after = *a.Next
	}
	d.came(requests + len(ids))
	d.arrived()
	if total, repeats := d.peer("all").Receiver.Counts(); total != requests+len(ids) || repeats != len(ids) {
		t.Errorf("%d requests after %d, %d of them known; %d were asked for", total, requests, repeats, len(ids))
	}
}

// What was not published yet cannot be published again: a replay of some types would
// bring them before what precedes them.
func replayedEarly(t *testing.T, broker *kafkatest.Process) {
	d := newDelivered(t, setup{}, broker)
	quiet := d.startService(plane.ModuleAPI, plane.ModuleDispatcher, plane.ModuleArtifactWorker)
	r := d.startRunner(quiet.plane.URL(), 2)
	d.wantSucceeded(quiet.control, d.quickly(quiet.control, 1)...)
	r.stop()
	d.checkFeed()
	quiet.stop()
	if _, err := plane.PublishAgain(d.ctx, d.desk.Pool, d.desk.Commands, plane.Replay{
		Delivery: d.delivery, From: "1.0", Types: []string{domain.Sealed{}.EventType()}, Reason: "too early",
	}, nil); err != nil {
		t.Fatal(err)
	}
	next := d.serve()
	d.startRunner(next.plane.URL(), 2)
	d.wantSucceeded(next.control, d.quickly(next.control, 1)...)
	if report := d.arrived(); report.Replayed > 0 {
		t.Errorf("published again before it was published: %s", report)
	}
}

// came waits until the receiver has so many requests.
func (d *delivered) came(n int) {
	d.t.Helper()
	d.eventually("the callbacks are made again", func() bool {
		got, _ := d.peer("all").Receiver.Counts()
		return got >= n
	})
}

// A job may name a configured endpoint, which then alone gets its result, and no
// other; filters pick the rest.
func namedEndpoints(t *testing.T, broker *kafkatest.Process) {
	d := newDelivered(t, setup{}, broker, deliverytest.Endpoint{Name: "all"}, deliverytest.Endpoint{Name: "test", Environments: []string{"test"}},
		deliverytest.Endpoint{Name: "elsewhere", Environments: []string{"elsewhere"}}, deliverytest.Endpoint{Name: "named", OnlyNamed: true})
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	naming := func(name string) *domain.JobSpec {
		return tcp(openPort(t), func(j *domain.JobSpec) { j.Controls.CallbackRef = name })
	}
	_, _, err := s.control.SubmitSpec(d.ctx, naming("nobody"))
	var p *client.ProblemError
	if !errors.As(err, &p) || p.Problem.Status != http.StatusUnprocessableEntity || len(p.Problem.Violations) != 1 || p.Problem.Violations[0].Pointer != "/controls/callback_ref" {
		t.Errorf("a job that names an endpoint that is not configured: %v", err)
	}
	plain := d.quickly(s.control, 1)[0]
	named, filtered := d.submit(s.control, naming("named")), d.submit(s.control, naming("elsewhere"))
	d.wantSucceeded(s.control, plain, named, filtered)
	d.arrived()
	got := map[string]string{}
	for _, c := range d.callbacks() {
		got[c.Endpoint] += map[domain.AttemptID]string{plain: "plain", named: "named", filtered: "filtered"}[c.AttemptID]
	}
	want := map[string]string{"all": "plain", "test": "plain", "named": "named", "elsewhere": "filtered"}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s gets %q, want %q", name, got[name], want[name])
		}
	}
}

// Without brokers and receivers nothing is missing and nothing fails: the feed and
// its tail serve the very facts.
func TestNothingToDeliverTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	w.startRunner(s.plane.URL(), 2)
	tail := s.operator.TailEvents(w.ctx, "")
	defer tail.Close()
	id := w.submit(s.control, tcp(openPort(t)))
	wantConfirmed(t, w.result(s.control, id), "port_open")
	w.checkFeed()
	feed, err := w.desk.Store.ReadFeed(w.ctx, eventstore.Cursor{}, 10_000)
	if err != nil || len(feed) < 10 {
		t.Fatalf("%d events, %v", len(feed), err)
	}
	same := func(how string, got wire.Event, want eventstore.FeedEvent) {
		if got.EventID != want.Event.EventID.String() || got.Cursor != want.Cursor.String() || !bytes.Equal(got.PayloadBase64, want.Event.Payload) {
			t.Fatalf("%s: %+v, want %+v", how, got, want)
		}
	}
	n := 0
	if _, err := s.operator.Events(w.ctx, "", len(feed), func(e wire.Event) error {
		same("the feed", e, feed[n])
		n++
		return nil
	}); err != nil || n != len(feed) {
		t.Errorf("the feed gives %d of %d events, %v", n, len(feed), err)
	}
	for _, want := range feed {
		e, err := tail.Next()
		if err != nil {
			t.Fatal(err)
		}
		same("the tail", e, want)
	}
	if f, err := s.operator.Forwarder(w.ctx); err != nil || f.Enabled || f.Leader != nil || len(f.Parked) > 0 {
		t.Errorf("the forwarder that is not there: %+v, %v", f, err)
	}
	readiness(t, w, s, "ready")
	for _, word := range []string{"Kafka", "publish", "callback"} {
		if strings.Contains(w.log.String(), word) {
			t.Errorf("the log speaks of %s", word)
		}
	}
}
