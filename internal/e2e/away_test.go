package e2e_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/projections"
)

// The only replica stands still for longer than a lease. Nobody who lives is held
// to it: what was silent only because nobody listened gets a fresh term.
func TestServiceSleepsPastALease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{profile: domain.FastProfile()})
	s := startChild(t, verbService, "", childConfig{DatabaseURL: w.db, S3: w.s3, Listen: freeAddress(t), Fast: true})
	w.serves(s)
	url := "http://" + s.config.Listen
	c := w.client(url, w.controlToken)
	p := w.puppet(url, 1)
	id := w.submit(c, tcp(openPort(t)))
	lease, _ := p.take()
	if err := p.start(lease); err != nil {
		t.Fatal(err)
	}
	report := func() wire.LeaseVerdict {
		t.Helper()
		var got wire.ReportAnswer
		w.insist("the report is answered", func() (err error) {
			got, err = p.client.Report(w.ctx, newKey(), p.id, wire.ReportRequest{Leases: []wire.LeaseReport{{LeaseID: lease.ID, Epoch: lease.Epoch, Token: lease.Token}}})
			return err
		})
		if len(got.Leases) != 1 {
			t.Fatalf("a report of one lease is answered %+v", got)
		}
		return got.Leases[0]
	}
	report()
	// A service that never swept has nothing to have been away from.
	w.eventually("timers are looked at", func() bool {
		_, last, err := w.desk.Reads.SweepTimes(w.ctx, projections.TimerSweep)
		return err == nil && !last.IsZero()
	})

	if err := unix.Kill(s.cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until := w.state(id).Lease.Until
	time.Sleep(time.Until(until) + 2*time.Second) // the sleep itself
	if err := unix.Kill(s.cmd.Process.Pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.eventually("the service notes that it was away", func() bool { return w.tally()[domain.ServiceResumed{}.EventType()] == 1 })
	// As late as a runner may be whose agent just cannot get through.
	time.Sleep(domain.FastProfile().Fence / 2)
	if v := report(); v.Status != "ok" {
		t.Errorf("a living runner is told %+v", v)
	}
	if n := w.tally()[domain.LeaseExpired{}.EventType()]; n != 0 {
		t.Errorf("%d leases expired", n)
	}
	if w.countRunners(domain.RunnerActive) != 1 {
		t.Error("the runner counts as lost")
	}
	// One that is silent from now on is lost as ever.
	cancel(t, w, c, id)
	if _, err := p.client.Complete(w.ctx, newKey(), lease, wire.CompleteRequest{Result: domain.ClaimStopped, FinishedAt: time.Now().UTC()}); err != nil {
		t.Error(err)
	}
	w.result(c, id)
	w.checkEverything()
	w.checked = true
	s.stop()
}

// The database is away for a while, in the middle of several running jobs. All of
// them go on, and none is lost.
func TestDatabaseRestartsUnderRunningJobs(t *testing.T) {
	t.Parallel()
	pg := pgtest.StartServer(t)
	w := newWorld(t, setup{pg: pg, profile: roomy()})
	f := w.newFleet(1, 2, childConfig{}, childConfig{Slots: 2, Chatter: true})
	const lasts = 15 * time.Second
	ids := make([]domain.AttemptID, 4)
	for i := range ids {
		ids[i] = w.submit(f.control, chat(t, lasts))
	}
	for _, id := range ids {
		w.reaches(id, domain.PhaseRunning)
	}
	pg.Kill()
	time.Sleep(domain.FastProfile().Fence / 3) // it is away for so long, and comes back when the machine lets it
	pg.Restart()
	for _, id := range ids {
		wantConfirmed(t, w.result(f.control, id), "port_open")
		wantSaid(w, f.control, id, lasts)
	}
	w.wantNothingLost()
	f.end()
}
