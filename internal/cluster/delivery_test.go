package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

// delivery is where facts and results go: a Kafka broker and receivers.
type delivery struct {
	w         *world
	broker    *kafkatest.Process
	fault     string // what the broker suffers now
	kafka     *forwarder.Kafka
	topics    forwarder.Topics
	endpoints []deliverytest.Endpoint
	failing   map[int]bool // receivers that fail now
	file      string       // with the endpoints
}

func (w *world) startDelivery() *delivery {
	w.t.Helper()
	d := &delivery{w: w, broker: kafkatest.Server(w.t), topics: deliverytest.Topics(), failing: map[int]bool{}}
	d.kafka = &forwarder.Kafka{Brokers: d.broker.Addresses(), Partitions: 3}
	for n := range receiverCount {
		peer, err := deliverytest.StartPeer(filepath.Join(w.root, fmt.Sprintf("receiver-%d", n)))
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := peer.Close(); err != nil {
				w.t.Errorf("close a receiver: %v", err)
			}
		})
		d.endpoints = append(d.endpoints, deliverytest.Endpoint{Name: fmt.Sprintf("receiver-%d", n), Peer: peer})
	}
	var err error
	if d.file, err = deliverytest.WriteEndpoints(w.root, d.endpoints...); err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (d *delivery) beginBroker(f fault, what string) func() time.Duration {
	if d.fault != "" {
		return nil
	}
	d.fault = f.Kind
	before, _ := d.w.desk.Reads.Checkpoint(d.w.ctx, forwarder.Lease) // of a database that is away nothing is known
	whole := func() time.Duration {
		d.fault = ""
		return 0
	}
	d.w.count(f.Kind).effective++
	switch what {
	case "pause":
		d.broker.Pause()
		return func() time.Duration {
			d.broker.Resume()
			d.note(f, before)
			return whole()
		}
	case "restart":
		d.broker.Stop()
	default:
		d.broker.Kill()
	}
	return func() time.Duration {
		d.note(f, before)
		d.broker.Restart()
		return whole()
	}
}

// note counts how often events waited for the broker.
func (d *delivery) note(f fault, before eventstore.Cursor) {
	end, err := d.w.desk.Store.FeedEnd(d.w.ctx)
	if err == nil && end.Seq > before.Seq {
		d.w.count(f.Kind).detail["events came meanwhile"]++
	}
}

func (d *delivery) beginReceiver(f fault, what string) func() time.Duration {
	if d.failing[f.Target] {
		return nil
	}
	d.failing[f.Target] = true
	peer, how := d.endpoints[f.Target].Peer, deliverytest.Fault(what)
	before := peer.Met(how)
	peer.Set(how)
	return func() time.Duration {
		peer.Set(deliverytest.None)
		d.failing[f.Target] = false
		if n := peer.Met(how) - before; n > 0 {
			d.w.count(f.Kind).effective++
			d.w.count(f.Kind).detail["requests"] += n
		}
		return 0
	}
}

// check: every event that was committed is in Kafka at least once and in order, and
// every result is with both receivers, with the bytes that are pulled.
func (d *delivery) check(l *load) {
	w := d.w
	w.t.Helper()
	w.eventually("every attempt has its result, and each its callbacks", func() bool {
		var results, callbacks int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM callbacks)").Scan(&results, &callbacks)
		return err == nil && results >= len(l.stories) && callbacks >= receiverCount*results
	})
	replays := d.finish(l)
	pushed := deliverytest.ComparePush(deliverytest.Pushed{
		Endpoints: d.endpoints, Results: d.results(l), Callbacks: d.callbacks(l),
		About: func(domain.AttemptID) (environment, callbackRef string) { return "test", "" },
	})
	if pushed.Pending+pushed.Exhausted > 0 {
		w.wrong.add("%d callbacks are pending and %d exhausted though everything is whole", pushed.Pending, pushed.Exhausted)
	}
	report := d.published()
	for _, f := range append(pushed.Faults, report.Faults...) {
		w.wrong.add("delivery: %s", f)
	}
	requests, repeats := 0, 0
	for _, e := range d.endpoints {
		all, again := e.Peer.Receiver.Counts()
		requests, repeats = requests+all, repeats+again
	}
	w.t.Logf("Kafka: %s. Receivers: %d results delivered; %d requests kept or known, %d of them known; %d callbacks were replayed to end their backoff",
		report, pushed.Delivered, requests, repeats, replays)
}

// finish waits for the callbacks. Some are put off for minutes when all is whole: an
// operator has those tried at once.
func (d *delivery) finish(l *load) (replays int) {
	operator := l.clients[0].WithToken(d.w.operator)
	defer operator.CloseIdle()
	asked := map[domain.CallbackID]bool{}
	soon := time.Now().Add(15 * time.Second)
	d.w.eventually("no callback is pending", func() bool {
		var pending int
		err := d.w.desk.Pool.QueryRow(d.w.ctx, "SELECT count(*) FROM callbacks WHERE state = 'pending'").Scan(&pending)
		if err != nil || pending == 0 || time.Now().Before(soon) {
			return err == nil && pending == 0
		}
		for _, c := range d.callbacks(l) {
			if c.State != domain.CallbackPending || asked[c.CallbackID] {
				continue
			}
			asked[c.CallbackID] = true
			if err := l.insist("replay", func(ctx context.Context, _ *client.Client) error {
				_, err := operator.ReplayCallback(ctx, domain.NewID[domain.CommandID](uuid.New()), c.CallbackID, "everything is whole")
				return err
			}); err != nil {
				d.w.wrong.add("replay of %s: %v", c.CallbackID, err)
			}
		}
		return false
	})
	return len(asked)
}

func (d *delivery) results(l *load) (out []wire.ResultItem) {
	for after := ""; ; {
		var page wire.Page[wire.ResultItem]
		if err := l.insist("results", func(ctx context.Context, c *client.Client) (err error) {
			page, err = c.Results(ctx, after, 100, 0)
			return err
		}); err != nil {
			d.w.wrong.add("results after %q: %v", after, err)
			return out
		}
		if len(page.Items) == 0 {
			return out
		}
		out, after = append(out, page.Items...), page.Next
	}
}

func (d *delivery) callbacks(l *load) (out []wire.Callback) {
	for after := ""; ; {
		var page wire.Page[wire.Callback]
		if err := l.insist("callbacks", func(ctx context.Context, c *client.Client) (err error) {
			page, err = c.Callbacks(ctx, client.CallbackQuery{After: after, Limit: 200})
			return err
		}); err != nil {
			d.w.wrong.add("callbacks after %q: %v", after, err)
			return out
		}
		if out, after = append(out, page.Items...), page.Next; after == "" {
			return out
		}
	}
}

// published waits until all that is in the feed now counts as published, and holds
// Kafka against it.
func (d *delivery) published() deliverytest.Report {
	w := d.w
	w.t.Helper()
	end, err := w.desk.Store.FeedEnd(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("everything up to "+end.String()+" is published", func() bool {
		at, err := w.desk.Reads.Checkpoint(w.ctx, forwarder.Lease)
		return err == nil && at.Seq >= end.Seq
	})
	truth := deliverytest.Truth{Topics: d.topics}
	for at := (eventstore.Cursor{}); at.Seq < end.Seq; {
		page, err := w.desk.Store.ReadFeed(w.ctx, at, 2000)
		if err != nil || len(page) == 0 {
			w.t.Fatalf("read the feed after %s: %d events, %v", at, len(page), err)
		}
		for _, e := range page {
			if at = e.Cursor; at.Seq <= end.Seq {
				truth.Events = append(truth.Events, e)
			}
		}
	}
	if truth.Parked, err = w.desk.Reads.ParkedKeys(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	for _, p := range truth.Parked {
		w.wrong.add("%s of %s is parked, and the broker refuses nothing: %s", p.Key, p.Topic, p.Reason)
	}
	records, err := deliverytest.Broker{Addresses: d.broker.Addresses()}.Read(w.ctx, d.topics.All()...)
	if err != nil {
		w.t.Fatal(err)
	}
	return deliverytest.Compare(truth, records)
}
