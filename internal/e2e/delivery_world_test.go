package e2e_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/ledger"
)

// delivered is a deployment that publishes to a broker and calls receivers.
type delivered struct {
	*world
	broker    deliverytest.Broker // where the check reads
	kafka     *forwarder.Kafka    // where the service publishes; nil: nowhere
	topics    forwarder.Topics
	endpoints []deliverytest.Endpoint
	alone     childConfig    // a replica in a process of its own
	control   *client.Client // the check's; a replica that lives
	// mayWait: callbacks may be pending at the check, as the test's fault has it.
	mayWait bool
}

// newDelivered makes one on a broker; nil: without. Its endpoints have no receiver
// yet; without any there is one, called all, that wants everything.
func newDelivered(t *testing.T, s setup, broker *kafkatest.Process, endpoints ...deliverytest.Endpoint) *delivered {
	t.Helper()
	d := &delivered{topics: deliverytest.Topics(), endpoints: endpoints}
	if broker != nil {
		d.broker = deliverytest.Broker{Addresses: broker.Addresses()}
		d.kafka = &forwarder.Kafka{Brokers: broker.Addresses(), Partitions: 2}
	}
	d.assemble(t, s)
	return d
}

// assemble starts the receivers, and makes the world of what d says.
func (d *delivered) assemble(t *testing.T, s setup) {
	t.Helper()
	if d.endpoints == nil {
		d.endpoints = []deliverytest.Endpoint{{Name: "all"}}
	}
	for i := range d.endpoints {
		peer, err := deliverytest.StartPeer(filepath.Join(t.TempDir(), "received"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := peer.Close(); err != nil {
				t.Errorf("close a receiver: %v", err)
			}
		})
		d.endpoints[i].Peer = peer
	}
	file, err := deliverytest.WriteEndpoints(t.TempDir(), d.endpoints...)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := callbacks.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s.delivery.Kafka, s.delivery.Topics, s.delivery.Endpoints = d.kafka, d.topics, loaded
	if s.profile.Name == "" {
		s.profile = roomy() // these tests break other things than leases
	}
	d.world = newWorld(t, s)
	d.alone = childConfig{Kafka: d.kafka, Topics: d.topics, Callbacks: file}
}

// serve starts a replica in this process, which answers the check.
func (d *delivered) serve() *replica {
	d.t.Helper()
	r := d.startService()
	d.control = r.control
	return r
}

// spawn starts a replica in a process of its own, which answers the check.
func (d *delivered) spawn(address string) *child {
	d.t.Helper()
	c := d.alone
	c.DatabaseURL, c.S3, c.Listen = d.db, d.s3, address
	k := startChild(d.t, verbService, "", c)
	d.control = d.client("http://"+address, d.controlToken)
	return k
}

// peer is the receiver of an endpoint.
func (d *delivered) peer(name string) *deliverytest.Peer {
	d.t.Helper()
	for _, e := range d.endpoints {
		if e.Name == name {
			return e.Peer
		}
	}
	d.t.Fatalf("there is no endpoint %s", name)
	return nil
}

// quickly submits n jobs that succeed at once.
func (d *delivered) quickly(c *client.Client, n int) []domain.AttemptID {
	d.t.Helper()
	var out []domain.AttemptID
	for range n {
		s := tcp(openPort(d.t))
		d.insist("a submit is taken", func() error {
			_, _, err := c.SubmitSpec(d.ctx, s)
			return err
		})
		out = append(out, s.AttemptID)
	}
	return out
}

// wantSucceeded waits for the results.
func (d *delivered) wantSucceeded(c *client.Client, ids ...domain.AttemptID) {
	d.t.Helper()
	for _, id := range ids {
		wantConfirmed(d.t, d.result(c, id), "port_open")
	}
}

// arrived is the check at the end of every test of delivery: every event that was
// committed is in its topic at least once and in order, or its key is parked with a
// reason; every result is delivered to whom it belongs, with the bytes that are
// pulled; and the ledger verifies.
func (d *delivered) arrived() deliverytest.Report {
	d.t.Helper()
	results := d.settled()
	var report deliverytest.Report
	if d.kafka != nil {
		report = d.published()
	}
	pushed := deliverytest.ComparePush(deliverytest.Pushed{
		Endpoints: d.endpoints, Results: results, Callbacks: d.callbacks(),
		About: func(id domain.AttemptID) (environment, callbackRef string) { return d.about(id) },
	})
	faults := append(report.Faults, pushed.Faults...)
	for i, f := range faults {
		if i == 20 {
			d.t.Errorf("and %d more", len(faults)-i)
			break
		}
		d.t.Error(f)
	}
	if pushed.Pending+pushed.Exhausted > 0 && !d.mayWait {
		d.t.Errorf("%d callbacks are pending and %d exhausted", pushed.Pending, pushed.Exhausted)
	}
	d.t.Logf("%s; %d results, %d pushed, %d pending", report, len(results), pushed.Delivered, pushed.Pending)
	r, err := ledger.Verify(d.ctx, d.desk.Pool, nil)
	if err != nil || !r.OK() {
		d.t.Errorf("the ledger does not verify: %v %v, %v", r.Faults, r.Differences, err)
	}
	return report
}

// settled waits until all attempts have ended, each has its result, and each result
// its callbacks, none of which is still to be tried unless that is expected. It
// returns all results as they are pulled.
func (d *delivered) settled() []wire.ResultItem {
	d.t.Helper()
	d.eventually("all attempts have ended and have their results", func() bool {
		var open, lacking int
		err := d.desk.Pool.QueryRow(d.ctx, `SELECT count(*) FILTER (WHERE phase <> 'closed'),
			count(*) FILTER (WHERE NOT EXISTS (SELECT 1 FROM results r WHERE r.attempt_id = s.attempt_id)) FROM attempt_status s`).Scan(&open, &lacking)
		return err == nil && open+lacking == 0
	})
	var out []wire.ResultItem
	d.insist("results are pulled", func() error {
		out = nil
		for after := ""; ; {
			page, err := d.control.Results(d.ctx, after, 7, 0)
			if err != nil || len(page.Items) == 0 {
				return err
			}
			out, after = append(out, page.Items...), page.Next
		}
	})
	want := 0
	for _, item := range out {
		environment, ref := d.about(item.AttemptID)
		for _, e := range d.endpoints {
			if e.Wants(environment, ref) {
				want++
			}
		}
	}
	d.eventually("every result has its callbacks, and they are done", func() bool {
		var all, pending int
		err := d.desk.Pool.QueryRow(d.ctx, "SELECT count(*), count(*) FILTER (WHERE state = 'pending') FROM callbacks").Scan(&all, &pending)
		return err == nil && all >= want && (pending == 0 || d.mayWait)
	})
	return out
}

// about tells what an attempt's JobSpec says of its result's way.
func (d *delivered) about(id domain.AttemptID) (environment, callbackRef string) {
	d.t.Helper()
	err := d.desk.Pool.QueryRow(d.ctx, `SELECT p->>'environment', coalesce(p->>'callback_ref', '')
		FROM (SELECT convert_from(payload, 'UTF8')::jsonb AS p FROM events WHERE stream = 'attempt/' || $1::text AND version = 1) x`, id.String()).Scan(&environment, &callbackRef)
	if err != nil || environment == "" {
		d.t.Fatalf("the environment of %s: %q, %v", id, environment, err)
	}
	return environment, callbackRef
}

// callbacks lists them all as the API tells it.
func (d *delivered) callbacks() []wire.Callback {
	d.t.Helper()
	var out []wire.Callback
	d.insist("callbacks are listed", func() error {
		out = nil
		for after := ""; ; {
			page, err := d.control.Callbacks(d.ctx, client.CallbackQuery{After: after, Limit: 11})
			if err != nil {
				return err
			}
			if out, after = append(out, page.Items...), page.Next; after == "" {
				return nil
			}
		}
	})
	return out
}

// published waits until the forwarder says that it has published all there is now,
// and compares what Kafka holds with it.
func (d *delivered) published() deliverytest.Report {
	d.t.Helper()
	d.checkFeed()
	end, err := d.desk.Store.FeedEnd(d.ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	d.reachesKafka(end)
	return d.compare(end)
}

func (d *delivered) reachesKafka(end eventstore.Cursor) {
	d.t.Helper()
	d.eventually("everything up to "+end.String()+" is published", func() bool {
		at, err := d.desk.Reads.Checkpoint(d.ctx, forwarder.Lease)
		return err == nil && at.Seq >= end.Seq
	})
}

// compare holds Kafka against the feed up to a place, whatever the checkpoint says.
func (d *delivered) compare(end eventstore.Cursor) deliverytest.Report {
	d.t.Helper()
	truth := deliverytest.Truth{Topics: d.topics}
	for at := (eventstore.Cursor{}); at.Seq < end.Seq; {
		page, err := d.desk.Store.ReadFeed(d.ctx, at, 1000)
		if err != nil || len(page) == 0 {
			d.t.Fatalf("read the feed after %s: %d events, %v", at, len(page), err)
		}
		for _, e := range page {
			if e.Cursor.Seq <= end.Seq {
				truth.Events = append(truth.Events, e)
			}
			at = e.Cursor
		}
	}
	var err error
	if truth.Parked, err = d.desk.Reads.ParkedKeys(d.ctx); err != nil {
		d.t.Fatal(err)
	}
	records, err := d.broker.Read(d.ctx, d.topics.All()...)
	if err != nil {
		d.t.Fatal(err)
	}
	return deliverytest.Compare(truth, records)
}

// pushedWithin waits until an endpoint has the results of all attempts.
func (d *delivered) pushedWithin(limit time.Duration, name string, ids ...domain.AttemptID) {
	d.t.Helper()
	began, peer := time.Now(), d.peer(name)
	for _, id := range ids {
		d.eventually(name+" has the result of "+id.String(), func() bool {
			_, ok := peer.Receiver.Delivery(id.String())
			return ok
		})
	}
	if took := time.Since(began); took > limit {
		d.t.Errorf("%s waited %s for %d results", name, took, len(ids))
	}
}
