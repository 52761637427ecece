package cluster_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/ledger"
)

// stalled is the machine itself not getting on: it is nobody's fault, and is told
// apart from what the product does wrong.
const stalled = "machine.stalled"

const (
	// A watcher that did not run for so long, or a report that was not answered for
	// so long while the machine has far more to do than it can, means a stall.
	maxPause  = 1500 * time.Millisecond
	maxSilent = 2500 * time.Millisecond
	crowded   = 3 // runnable for each core
)

// watch looks at the machine and at the ledger while a round goes on.
func (w *world) watch() (stop func()) {
	w.t.Helper()
	id, c, err := w.canary(w.ctx)
	if err != nil {
		w.t.Fatalf("a runner that only reports: %v", err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var work sync.WaitGroup
	work.Go(func() { w.watchPauses(ctx) })
	work.Go(func() { w.watchReports(ctx, id, c) })
	work.Go(func() { w.verifyMeanwhile(ctx) })
	return func() {
		cancel()
		work.Wait()
	}
}

// watchPauses notes when this process did not get to run.
func (w *world) watchPauses(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := time.Now(); now.Sub(last) > maxPause {
			w.hit(hit{Kind: stalled, Runner: -1, From: last, To: now})
		}
	}
}

// watchReports is a runner without work that reports like the others. Where not
// even it is heard on a crowded machine, the others cannot be.
func (w *world) watchReports(ctx context.Context, id domain.RunnerID, c *client.Client) {
	defer c.CloseIdle()
	for heard := time.Now(); ctx.Err() == nil; w.sleep(400 * time.Millisecond) {
		once, cancel := context.WithTimeout(ctx, time.Second) // as the agents
		_, err := c.Report(once, key(), id, wire.ReportRequest{Leases: []wire.LeaseReport{}})
		cancel()
		if err == nil {
			heard = time.Now()
			continue
		}
		if now := time.Now(); now.Sub(heard) > maxSilent && runnable() > crowded*runtime.NumCPU() {
			w.hit(hit{Kind: stalled, Runner: -1, From: heard, To: now})
		}
	}
}

func (w *world) canary(ctx context.Context) (domain.RunnerID, *client.Client, error) {
	id, secret := domain.NewID[domain.RunnerID](uuid.New()), uuid.NewString()
	enrolment, err := plane.IssueEnrolment(ctx, w.desk.Commands, "default", time.Hour)
	if err != nil {
		return id, nil, err
	}
	base := client.Config{BaseURL: "http://" + w.front.address(), Token: enrolment}
	c, err := client.New(base)
	if err != nil {
		return id, nil, err
	}
	got, err := c.Register(ctx, key(), wire.Registration{
		RunnerID: id, Name: "verification-runner", Version: "1.0.0", JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"},
		Isolation: []string{"process"}, Slots: 1, TokenSHA256: sha(secret), BinarySHA256: sha("canary"),
	})
	if err != nil {
		return id, nil, err
	}
	return id, c.WithToken("ep_" + got.TokenID.String() + "_" + secret), nil
}

// runnable is how many processes want to run on the whole machine, over the last
// minute.
func runnable() int {
	var load float64
	b, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(b), &load)
	}
	if err != nil {
		return 0
	}
	return int(load)
}

// verifyMeanwhile: the ledger verifies at any time, if the database can be read.
func (w *world) verifyMeanwhile(ctx context.Context) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, err := ledger.Verify(ctx, w.desk.Pool, nil)
		if err == nil && !r.OK() {
			w.wrong.add("meanwhile the ledger does not verify: %v %v", r.Faults, r.Differences)
		}
	}
}
