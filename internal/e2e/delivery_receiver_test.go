package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

// Nine receivers fail in nine ways, one is slow, one is well. Neither the slow nor
// the well one waits for the others, and once those are well they get everything.
//
// How long that may take is little beside the time that a failing one costs, and much
// for a machine that is busy.
func receiversFail(t *testing.T, broker *kafkatest.Process) {
	faults := append(deliverytest.Faults(), deliverytest.Slow)
	endpoints := []deliverytest.Endpoint{{Name: "well"}}
	for _, f := range faults {
		endpoints = append(endpoints, deliverytest.Endpoint{Name: "is-" + string(f), Timeout: time.Second})
	}
	d := newDelivered(t, setup{}, broker, endpoints...)
	for _, f := range faults {
		d.peer("is-" + string(f)).Set(f)
	}
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	ids := d.quickly(s.control, 2)
	d.wantSucceeded(s.control, ids...)
	d.pushedWithin(20*time.Second, "well", ids...)
	d.pushedWithin(20*time.Second, "is-"+string(deliverytest.Slow), ids...)
	for _, f := range deliverytest.Faults() {
		peer := d.peer("is-" + string(f))
		d.eventually("the fault "+string(f)+" is met", func() bool { return peer.Met(f) >= len(ids) })
	}
	d.eventually("every failure is recorded", func() bool {
		for _, cb := range d.callbacks() {
			if cb.Endpoint != "well" && cb.Endpoint != "is-"+string(deliverytest.Slow) && (cb.State != domain.CallbackPending || cb.Tries == 0 || cb.LastError == "") {
				return false
			}
		}
		return true
	})
	for _, cb := range d.callbacks() {
		if cb.Endpoint == "well" && (cb.State != domain.CallbackDone || cb.Tries != 1) {
			t.Errorf("to the one that is well: %+v", cb)
		}
	}
	for _, f := range deliverytest.Faults() {
		d.peer("is-" + string(f)).Set(deliverytest.None)
	}
	d.arrived()
	// What was kept though the sender heard nothing came again, and was known.
	for _, f := range []deliverytest.Fault{deliverytest.Late, deliverytest.MidBody} {
		if _, repeats := d.peer("is-" + string(f)).Receiver.Counts(); repeats < len(ids) {
			t.Errorf("%s: %d repeats of %d results", f, repeats, len(ids))
		}
	}
	d.wantNoEcho()
}

// wantNoEcho: what a receiver answered stands nowhere in the ledger.
func (d *delivered) wantNoEcho() {
	d.t.Helper()
	var echoes int
	if err := d.desk.Pool.QueryRow(d.ctx, `SELECT count(*) FROM events WHERE strpos(convert_from(payload, 'UTF8'), 'no no no') > 0
		OR strpos(convert_from(payload, 'UTF8'), 'too many') > 0`).Scan(&echoes); err != nil || echoes > 0 {
		d.t.Errorf("%d events hold what a receiver answered (%v)", echoes, err)
	}
}

// moved is how far the clock is set: past the five minutes that a receiver allows
// between the time of a signature and its own.
const moved = 20 * time.Minute

// The clock of the database, by which everything of the service goes, is set ahead
// while jobs run, and back again. The receiver refuses what is signed for another
// time; those callbacks wait, on the record, until the moment that was written for
// them, and what ends later is delivered at once. That a machine's own clock moves
// takes privileges that a test must not have; the service reads the database's.
func clockMoves(t *testing.T, broker *kafkatest.Process) {
	d := newDelivered(t, setup{pg: pgtest.StartServer(t)}, broker)
	d.movableClock()
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	d.wantSucceeded(s.control, d.quickly(s.control, 2)...)
	d.settled()

	d.moveClock(moved)
	ids := d.quickly(s.control, 3)
	for _, id := range ids {
		d.result(s.control, id) // whatever it is: leases may have run out
	}
	d.eventually("the receiver refuses what is signed for another time", func() bool {
		return slices.ContainsFunc(d.callbacks(), func(c wire.Callback) bool { return c.State == domain.CallbackPending && c.LastStatus == 401 })
	})
	d.moveClock(0)
	later := d.quickly(s.control, 2)
	for _, id := range later {
		d.result(s.control, id)
	}
	d.pushedWithin(20*time.Second, "all", later...)
	d.mayWait = true
	d.arrived()
	for _, c := range d.callbacks() {
		if strange := slices.Contains(ids, c.AttemptID); c.State != domain.CallbackDone && (!strange || c.NextAt == nil || time.Until(*c.NextAt) <= 0) {
			t.Errorf("it is not delivered, and nothing says why: %+v", c)
		}
	}
}

// movableClock puts a clock of the test before PostgreSQL's own.
func (d *delivered) movableClock() {
	d.t.Helper()
	for _, sql := range []string{
		`CREATE SCHEMA moved`,
		`CREATE TABLE moved.ahead (by interval NOT NULL)`,
		`INSERT INTO moved.ahead VALUES ('0')`,
		`CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT pg_catalog.clock_timestamp() + by FROM moved.ahead'`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, moved, pg_catalog', current_database()); END $$`,
	} {
		if _, err := d.desk.Pool.Exec(d.ctx, sql); err != nil {
			d.t.Fatal(err)
		}
	}
	d.desk.Pool.Reset() // for connections that go by it
}

func (d *delivered) moveClock(ahead time.Duration) {
	d.t.Helper()
	if _, err := d.desk.Pool.Exec(d.ctx, "UPDATE moved.ahead SET by = make_interval(secs => $1)", ahead.Seconds()); err != nil {
		d.t.Fatal(err)
	}
	var now time.Time
	if err := d.desk.Pool.QueryRow(d.ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		d.t.Fatal(err)
	}
	if off := time.Until(now) - ahead; off.Abs() > 10*time.Second {
		d.t.Fatalf("the clock cannot be moved: it is off by %s", off)
	}
}
