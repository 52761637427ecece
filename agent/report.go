package agent

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// reportAgain is the time between two sends while the service does not answer.
// There is no backoff: the fence is near.
const reportAgain = 2 * time.Second

// reportLoop sends one report at a time, by connections of its own: an upload
// that hangs must not hold up a heartbeat.
func (a *Agent) reportLoop() {
	a.mu.Lock()
	bearer := a.cred.bearer()
	a.mu.Unlock()
	p := a.config.Connect(bearer)
	defer func() { p.Close() }()
	silent := false // the last report was not acknowledged
	for {
		began := time.Now()
		next, err := a.reportOnce(p)
		switch {
		case err == nil && silent:
			silent = false
			a.config.Log.Info("reports are acknowledged again")
		case err == nil:
		case a.life.Err() != nil:
			return
		default:
			if !silent {
				a.config.Log.Warn("a report is not acknowledged; trying on every 2 s", "error", err)
			}
			silent = true
			if identityRefused(err) {
				a.reidentifyBeside(err)
			}
			p.Close()
			p = a.config.Connect(bearer)
			next = reportAgain
		}
		if sleep(a.life, next-time.Since(began)) != nil {
			return
		}
	}
}

// reportOnce sends a report and takes its answer. Each try has a key of its own,
// because it is a heartbeat of its own time.
func (a *Agent) reportOnce(p Plane) (next time.Duration, err error) {
	req := wire.ReportRequest{Leases: []wire.LeaseReport{}}
	reported := map[domain.LeaseID]*attempt{}
	progress := map[domain.LeaseID]*wire.ReportProgress{}
	for _, at := range a.list() {
		if l, ok := at.report(); ok {
			req.Leases = append(req.Leases, l)
			reported[l.LeaseID], progress[l.LeaseID] = at, l.Progress
		}
	}
	sent := a.config.bootNow()
	var answer wire.ReportAnswer
	err = once(a.life, a.reportTimeout(), func(ctx context.Context) (err error) {
		answer, err = p.Report(ctx, a.cred.RunnerID, uuid.New(), req)
		return err
	})
	if err != nil {
		return 0, err
	}
	a.acknowledged(answer, reported, progress, sent)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reported = max(a.reported, sent)
	next = time.Duration(answer.NextSeconds) * time.Second
	if next <= 0 {
		next = time.Duration(a.timing.ReportSeconds) * time.Second
	}
	if answer.FlushSeconds > 0 {
		a.flush = time.Duration(answer.FlushSeconds) * time.Second
	}
	return next, nil
}

func (a *Agent) acknowledged(answer wire.ReportAnswer, reported map[domain.LeaseID]*attempt, progress map[domain.LeaseID]*wire.ReportProgress, sent isolation.BootTime) {
	for _, v := range answer.Leases {
		if at := reported[v.LeaseID]; at != nil {
			at.reported(v, progress[v.LeaseID], sent)
		}
	}
}

// reportTimeout is 5 s, and 1 s in the fast profile.
func (a *Agent) reportTimeout() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timing.ReportSeconds < 5 {
		return time.Second
	}
	return 5 * time.Second
}
