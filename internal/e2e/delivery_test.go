package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// What the service and its database may suffer loses no event on its way to Kafka
// and no result on its way to receivers. One broker serves all these worlds, each
// with topics of its own.
func TestDelivery(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Server(t)
	for name, test := range map[string]func(*testing.T, *kafkatest.Process){
		"open transaction": openTransaction,
		"database dies":    databaseDies,
		"two replicas":     twoReplicasDeliver,
		"clock moves":      clockMoves,
		"restored":         restoredElsewhere,
		"receivers":        receiversFail,
		"replay":           replayed,
		"early replay":     replayedEarly,
		"refused names":    namedEndpoints,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, broker)
		})
	}
	for _, point := range deliveryPoints() {
		t.Run("dies at "+point, func(t *testing.T) {
			t.Parallel()
			diesDelivering(t, broker, point)
		})
	}
}

// heldOpen is how long a transaction stays open while others commit.
func heldOpen() time.Duration {
	if *longRun {
		return time.Minute
	}
	return 20 * time.Second
}

// A transaction with an event in it stays open while others commit: what they
// committed waits, because the order of the feed is not known before, and nothing is
// passed over. Then all comes, the held event among it.
func openTransaction(t *testing.T, broker *kafkatest.Process) {
	d := newDelivered(t, setup{}, broker)
	s := d.serve()
	d.startRunner(s.plane.URL(), 2)
	d.wantSucceeded(s.control, d.quickly(s.control, 1)...)
	d.published()

	// The next token's append does not come to its end for a while.
	if _, err := d.desk.Pool.Exec(d.ctx, fmt.Sprintf(`
		CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(%g); RETURN NEW; END $$;
		CREATE TRIGGER hold BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.type = '%s') EXECUTE FUNCTION hold()`,
		heldOpen().Seconds(), domain.TokenCreated{}.EventType())); err != nil {
		t.Fatal(err)
	}
	patient := postgres.Open(d.desk.Pool, projections.WrittenTables(), postgres.Options{Timeout: 2 * heldOpen()})
	t.Cleanup(patient.Close)
	svc := commands.New(commands.Config{Store: patient, Index: commands.NewIndex(d.desk.Reads), Policy: policy.Builtin, Actions: runners.Catalogue(), Profile: d.profile})
	before, err := d.desk.Store.FeedEnd(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := plane.IssueToken(d.ctx, svc, "held", domain.RoleViewer)
		held <- err
	}()
	d.eventually("the transaction is open", func() bool {
		var open int
		err := d.desk.Pool.QueryRow(d.ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep' AND backend_xid IS NOT NULL").Scan(&open)
		return err == nil && open == 1
	})
	ids := d.quickly(s.control, 3)
	for _, id := range ids {
		d.reaches(id, domain.PhaseFinalizing) // the sealer follows the feed
	}
	if at, err := d.desk.Reads.Checkpoint(d.ctx, forwarder.Lease); err != nil {
		t.Error(err)
	} else if report := d.compare(at); len(report.Faults) > 0 {
		t.Errorf("meanwhile, up to the checkpoint %s (the feed ended at %s): %v", at, before, report.Faults)
	}
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	d.wantSucceeded(s.control, ids...)
	d.arrived()
	var later int
	err = d.desk.Pool.QueryRow(d.ctx, `SELECT count(*) FROM events e, events h WHERE h.type = $1 AND e.position > h.position
		AND e.time < h.time + make_interval(secs => $2)`, domain.TokenCreated{}.EventType(), heldOpen().Seconds()).Scan(&later)
	if err != nil || later == 0 {
		t.Errorf("%d events were inserted while the transaction was open, so nothing was tried (%v)", later, err)
	}
}

// The database is killed while jobs run and comes back, and later is restarted in
// order: what was committed arrives all the same.
func databaseDies(t *testing.T, broker *kafkatest.Process) {
	pg := pgtest.StartServer(t)
	d := newDelivered(t, setup{pg: pg}, broker)
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	for _, fail := range []func(){pg.Kill, pg.Restart} {
		running := d.submit(s.control, steady(t, 2))
		ids := append(d.quickly(s.control, 3), running)
		d.reaches(running, domain.PhaseRunning)
		fail()
		pg.Restart()
		d.wantSucceeded(s.control, append(d.quickly(s.control, 1), ids...)...)
	}
	d.arrived()
}

// Two replicas are started at once on one database: one of them publishes, one
// calls, and when the one that publishes is killed the other goes on with both.
func twoReplicasDeliver(t *testing.T, broker *kafkatest.Process) {
	d := newDelivered(t, setup{}, broker)
	one, two := d.spawn(freeAddress(t)), d.spawn(freeAddress(t))
	d.serves(one)
	d.serves(two)
	balancer := newBalancer(t, one.config.Listen, two.config.Listen)
	c := d.client(balancer.url, d.controlToken)
	d.startRunner(balancer.url, 3)
	d.wantSucceeded(c, d.quickly(c, 3)...)
	d.published()

	operator := func(k *child) *client.Client { return d.client("http://"+k.config.Listen, d.operatorToken) }
	leads := func(k *child) bool {
		f, err := operator(k).Forwarder(d.ctx)
		return err == nil && f.Leader != nil && f.Leader.Here
	}
	leader, other := one, two
	d.eventually("one replica publishes", func() bool {
		if leads(two) {
			leader, other = two, one
		}
		return leads(leader)
	})
	if leads(other) {
		t.Error("both replicas say that they publish")
	}
	running := d.submit(c, steady(t, 2))
	ids := append(d.quickly(c, 4), running)
	leader.kill()
	d.control = d.client("http://"+other.config.Listen, d.controlToken)
	d.wantSucceeded(c, append(d.quickly(c, 2), ids...)...)
	d.eventually("the other replica publishes", func() bool { return leads(other) })
	d.arrived()

	// A leader that was asleep past its lease wakes beside the next one.
	third := d.spawn(leader.config.Listen)
	d.serves(third)
	other.signal(syscall.SIGSTOP)
	ids = d.quickly(d.control, 3)
	d.eventually("the third replica publishes", func() bool { return leads(third) })
	other.signal(syscall.SIGCONT)
	d.wantSucceeded(d.control, ids...)
	d.arrived()
	d.checkedWith(third, other)
}

// checkedWith checks everything while the replicas live, and ends them.
func (d *delivered) checkedWith(replicas ...*child) {
	d.t.Helper()
	for _, r := range d.runners {
		r.stop()
	}
	d.checkEverything()
	d.checked = true
	for _, k := range replicas {
		k.stop()
	}
}

// deliveryPoints are the places between two durable steps of delivery: all of them
// in a long run, else one for each step.
func deliveryPoints() []string {
	scheduled, done, failed := domain.CallbackScheduled{}.EventType(), domain.CallbackDelivered{}.EventType(), domain.CallbackFailed{}.EventType()
	points := []string{"forwarder.checkpoint.before:2", "callback.scheduled", "callback.answered", "append.after/" + failed}
	if *longRun {
		points = append(points, "forwarder.checkpoint.before", "forwarder.checkpoint.after", "forwarder.checkpoint.after:3", "callback.call", "callback.answered:3",
			"append.before/"+scheduled, "append.after/"+scheduled, "append.before/"+done, "append.after/"+done, "append.before/"+failed)
	}
	return points
}

// diesDelivering kills the service between two steps of delivery: what it had not
// written down it does again, and nothing is left out.
func diesDelivering(t *testing.T, broker *kafkatest.Process, point string) {
	d := newDelivered(t, setup{}, broker, deliverytest.Endpoint{Name: "good"}, deliverytest.Endpoint{Name: "bad"})
	d.peer("bad").Set(deliverytest.Throttle)
	s := d.superviseAs(point, d.alone)
	d.control = d.client(s.url, d.controlToken)
	d.startRunner(s.url, 3)
	d.wantSucceeded(d.control, d.quickly(d.control, 2)...)
	select {
	case <-s.died:
	case <-time.After(patience):
		t.Fatalf("the service never came to %s", point)
	}
	d.peer("bad").Set(deliverytest.None)
	d.wantSucceeded(d.control, d.quickly(d.control, 1)...)
	d.arrived()
	d.checkedWith()
	s.stop()
}
