package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker"
)

// attempt is one lease of this runner, from the offer until the last byte is
// stored and its folder is gone. run is its one sequence; the loops of the agent
// reach it through the methods that take the lock.
type attempt struct {
	agent   *Agent
	log     *slog.Logger
	dir     string
	journal *journal
	lease   Lease
	secrets secrets
	given   given
	box     shim.Isolation // what its executor runs in
	mask    *masker.Set
	clock   func() isolation.BootTime

	// working ends when the lease is lost in any way: nothing of the running
	// phase is written any more. sending ends when nothing at all is taken.
	working, sending       context.Context
	stopWorking, stopSends context.CancelCauseFunc
	// launching ends when the job is no longer wanted, so that a launch under
	// way comes to nothing.
	launching    context.Context
	cancelLaunch context.CancelFunc
	// storing ends a while after that: what is still to be stored in Vault must not
	// hold up an outcome that the service waits for.
	storing     context.Context
	stopStoring context.CancelCauseFunc

	spool     *spool
	cadence   cadence
	uploaded  chan error // closed after the uploader ended; nil until it began
	records   *records
	artifacts *artifactQueue

	// Fixed before the launch.
	offer wire.Offer
	spec  domain.JobSpec
	// specErr says why the JobSpec of the offer cannot be read.
	specErr error

	// writing guards the journal's change and its file.
	writing sync.Mutex
	removed bool

	mu       sync.Mutex
	held     bool // start was acknowledged: reports carry it
	fenceAt  isolation.BootTime
	fenceOff bool // no process is left, or none was launched: no fence needed
	loss     loss
	lostAt   time.Time
	stop     *wire.Stop
	drained  bool  // ended because the agent leaves
	broken   error // the disk failed: ended for it
	progress *wire.ReportProgress
	told     time.Time // when progress was last acknowledged
	proc     process
	applied  isolation.Applied
	notices  *notices
	slotFree bool

	// keep leaves the folder to the next agent, whatever came of this one.
	keep bool
}

// Causes of the contexts' ends.
var (
	errLeaseLost = errors.New("the lease is lost")
	errClosed    = errors.New("the service takes nothing more for this lease")
)

func (a *Agent) newAttempt(dir string, j *journal) *attempt {
	at := &attempt{
		agent: a, dir: dir, journal: j, lease: j.lease(), mask: masker.New(), clock: a.config.bootNow,
		log: a.config.Log.With("attempt_id", j.AttemptID.String(), "epoch", j.Epoch),
	}
	at.sending, at.stopSends = context.WithCancelCause(a.life)
	at.working, at.stopWorking = context.WithCancelCause(at.sending)
	at.launching, at.cancelLaunch = context.WithCancel(at.working)
	at.storing, at.stopStoring = context.WithCancelCause(at.working)
	context.AfterFunc(at.launching, func() {
		_ = sleep(at.storing, at.stopBudget()+storeAfterStop) // a lost lease ends it sooner
		at.stopStoring(errNoTime)
	})
	at.secrets = secrets{at: at, prints: prints{at: at}}
	return at
}

// run takes the attempt from the offer to its end.
func (at *attempt) run() {
	defer at.remove()
	if !at.accept() {
		return
	}
	at.conclude(at.execute())
	at.sendRest()
}

// startSending begins what goes on beside the executor.
func (at *attempt) startSending() error {
	s, err := openSpool(at.dir, &at.agent.spooled, at.agent.config.writeSpool)
	if err != nil {
		return err
	}
	at.spool = s
	at.mu.Lock()
	at.notices = newNotices(masker.NewWriter(&eventsWriter{st: s.streams[bundle.Events]}, at.mask), at.mask)
	at.mu.Unlock()
	at.records = newRecords(at)
	if at.artifacts, err = openArtifacts(at); err != nil {
		return err
	}
	at.startUpload()
	return nil
}

func (at *attempt) startUpload() {
	up := &uploader{
		spool: at.spool,
		send: func(ctx context.Context, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error) {
			answer, err := at.agent.plane().Log(ctx, at.lease, key, stream, offset, frames)
			at.sentLog(answer, int64(len(frames)), err)
			return answer, err
		},
		flush:   at.flushEvery,
		refused: at.refusedUpload,
	}
	at.uploaded = make(chan error, 1)
	at.agent.tasks.Go(func() {
		defer close(at.uploaded)
		err := up.run(at.sending)
		if errors.Is(err, errSpool) {
			at.failStorage(err)
		}
		at.uploaded <- err
	})
}

// sentLog takes what an answer to a log upload says beside its offset.
func (at *attempt) sentLog(answer wire.LogAnswer, taken int64, err error) {
	if err != nil {
		at.agent.meters.failed.WithLabelValues("log").Inc()
		return
	}
	at.agent.meters.sent.Add(float64(taken))
	at.follow(byLog, answer.FlushSeconds)
}

// refusedUpload says whether to try again what was definitely refused: after a
// lost lease the service may need a moment to see that it is lost, and takes
// leftovers until the salvage window ends.
func (at *attempt) refusedUpload(err error) bool {
	l := lossOf(err)
	if l == lossNone {
		at.log.Error("the service refused part of the log; it stays incomplete", "error", err)
		return false
	}
	at.lose(l)
	at.mu.Lock()
	defer at.mu.Unlock()
	window := time.Duration(at.journal.Clocks.SalvageSeconds+at.journal.Clocks.StopSeconds)*time.Second + time.Minute
	return at.loss == lossLapsed && time.Since(at.lostAt) < window
}

// lose notes that the lease is lost and ends what depends on it. A worse loss
// replaces a lesser one.
func (at *attempt) lose(l loss) {
	at.mu.Lock()
	if l <= at.loss {
		at.mu.Unlock()
		return
	}
	if at.loss == lossNone {
		at.lostAt = time.Now()
	}
	at.loss = l
	p, over := at.proc, at.fenceOff
	at.mu.Unlock()
	if over {
		at.log.Info("the lease is over", "how", l.String())
	} else {
		at.log.Warn("the lease is lost while the job is not ended", "how", l.String())
	}
	at.stopWorking(errLeaseLost)
	if l == lossClosed {
		at.stopSends(errClosed)
	}
	at.end(p, fenceLadder(at.journal.JobType, at.stopBudget()), "lease "+l.String())
}

func (at *attempt) stopBudget() time.Duration {
	return time.Duration(at.journal.Clocks.StopSeconds) * time.Second
}

// requestStop passes on a stop of the service. The first one counts.
func (at *attempt) requestStop(s wire.Stop) {
	at.mu.Lock()
	if at.stop != nil {
		at.mu.Unlock()
		return
	}
	at.stop = &s
	p := at.proc
	at.mu.Unlock()
	at.log.Info("a stop was asked for", "reason", string(s.Reason))
	at.note("stop_requested", map[string]any{"reason": s.Reason})
	at.end(p, at.stopLadder(s), "stop: "+string(s.Reason))
}

// stopLadder gives the executor the whole budget that the service counts on.
func (at *attempt) stopLadder(s wire.Stop) shim.Ladder {
	budget := time.Duration(s.LadderSeconds) * time.Second
	if budget <= 0 {
		budget = at.stopBudget()
	}
	return ladderOf(at.journal.JobType, budget)
}

// leave ends the job because the agent ends: the drain's limit has passed.
func (at *attempt) leave() {
	at.mu.Lock()
	at.drained = true
	p := at.proc
	at.mu.Unlock()
	at.end(p, ladderOf(at.journal.JobType, at.stopBudget()), "the agent leaves")
}

// failStorage ends the job because its log or files cannot be kept.
func (at *attempt) failStorage(err error) {
	at.mu.Lock()
	first := at.broken == nil
	if first {
		at.broken = err
	}
	p := at.proc
	at.mu.Unlock()
	if first {
		at.log.Error("the attempt's data cannot be kept; the job is ended", "error", err)
		at.note("storage_failed", map[string]any{"error": err.Error()})
		at.end(p, ladderOf(at.journal.JobType, at.stopBudget()), "storage")
	}
}

func (at *attempt) storageFailed() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.broken != nil
}

// end stops a process; where there is none, its launch. It does not wait: a
// shim that hangs takes its time to refuse.
func (at *attempt) end(p process, l shim.Ladder, note string) {
	at.cancelLaunch()
	if p == nil {
		return
	}
	at.agent.tasks.Go(func() {
		if err := p.stop(l, note); err != nil && !errors.Is(err, shim.ErrEnded) {
			at.log.Error("the shim takes no stop; its own deadline ends the job", "error", err)
		}
	})
}

// extend moves the shim's deadline, without waiting either.
func (at *attempt) extend(p process, until isolation.BootTime) {
	at.agent.tasks.Go(func() {
		if err := p.extend(until); err != nil && !errors.Is(err, shim.ErrEnded) {
			at.log.Error("the shim's deadline cannot be moved", "error", err)
		}
	})
}

// kill ends the job at once, because the agent ends.
func (at *attempt) kill() {
	at.mu.Lock()
	at.drained = true
	p := at.proc
	at.mu.Unlock()
	at.cancelLaunch()
	if p == nil {
		return
	}
	if err := p.stop(shim.Ladder{}, "the agent ends"); err != nil && !errors.Is(err, shim.ErrEnded) {
		at.log.Error("the shim takes no stop; it ends the job when the agent is gone", "error", err)
	}
}

// gone takes the service's word that the lease is over. What is left to send is
// tried: its answers say whether it is taken.
func (at *attempt) gone() { at.lose(lossLapsed) }

// wanted says whether the job is still to be started or to go on.
func (at *attempt) wanted() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.stop == nil && at.loss == lossNone && at.broken == nil && !at.drained
}

// remove ends the attempt's goroutines and takes its folder away.
func (at *attempt) remove() {
	at.freeSlot()
	at.stopSends(errClosed)
	if at.uploaded != nil {
		<-at.uploaded //nolint:errcheck // what it says was acted on already
	}
	if at.artifacts != nil {
		at.artifacts.wait()
	}
	if at.records != nil {
		at.records.close()
	}
	if at.spool != nil {
		if err := at.spool.remove(); err != nil {
			at.log.Warn("the log spool does not close", "error", err)
		}
	}
	if revoked := at.revoke(); len(revoked) > 0 {
		// No conclusion did it, and no fact is taken any more.
		at.agent.tasks.Go(func() { at.tellLate(revoked) })
	}
	defer at.forgetSecrets()
	if at.keep || at.agent.leaving() {
		// What is left belongs to the next agent.
		at.agent.forget(at)
		return
	}
	at.writing.Lock()
	at.removed = true
	at.writing.Unlock()
	if err := removeTree(at.dir); err != nil {
		at.log.Error("the attempt's folder does not go; remove it by hand", "dir", at.dir, "error", err)
	}
	at.agent.forget(at)
	if at.agent.askedLess.Load() {
		poke(at.agent.slotFreed) // there may be room now
	}
}

// freeSlot lets another attempt in.
func (at *attempt) freeSlot() {
	at.mu.Lock()
	first := !at.slotFree
	at.slotFree = true
	at.mu.Unlock()
	if first {
		poke(at.agent.slotFreed)
		poke(at.agent.changed)
	}
}

// progressEvery is how often the service takes progress. What comes sooner it does not
// record; it says so, since whether the one before arrived is not always known here.
const progressEvery = 2 * time.Second

// report gives the lease's part of a report; false if it has none.
func (at *attempt) report() (wire.LeaseReport, bool) {
	at.mu.Lock()
	defer at.mu.Unlock()
	if !at.held || at.loss != lossNone {
		return wire.LeaseReport{}, false
	}
	l := wire.LeaseReport{LeaseID: at.lease.ID, Epoch: at.lease.Epoch, Token: at.lease.Token}
	if time.Since(at.told) >= progressEvery {
		l.Progress = at.progress
	}
	return l, true
}

// reported takes the answer to a report that was sent at sent.
func (at *attempt) reported(v wire.LeaseVerdict, sentProgress *wire.ReportProgress, sent isolation.BootTime) {
	if l := lossOfVerdict(v); l != lossNone {
		at.lose(l)
		return
	}
	if v.Status != "ok" {
		return
	}
	at.follow(byReport, v.FlushSeconds)
	at.mu.Lock()
	if sentProgress != nil {
		at.told = time.Now()
	}
	if at.progress == sentProgress && !v.ProgressTooSoon {
		at.progress = nil
	}
	until := sent.Add(at.agent.fence())
	if at.loss == lossNone && until > at.fenceAt {
		at.fenceAt = until
	}
	p := at.proc
	alive := at.loss == lossNone && !at.fenceOff
	at.mu.Unlock()
	if p != nil && alive {
		at.extend(p, until)
	}
	if v.Stop != nil {
		at.requestStop(*v.Stop)
	}
}

// checkFence loses the lease by the agent's own clock.
func (at *attempt) checkFence(now isolation.BootTime) {
	at.mu.Lock()
	due := at.fenceAt != 0 && !at.fenceOff && at.loss == lossNone && now >= at.fenceAt
	at.mu.Unlock()
	if due {
		at.lose(lossFenced)
	}
}

// overdue says that no report was acknowledged for as long as the lease is safe.
func (at *attempt) overdue() bool {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.clock() >= at.fenceAt
}

// unfence says that nothing of the job runs any more.
func (at *attempt) unfence() {
	at.mu.Lock()
	at.fenceOff = true
	at.mu.Unlock()
}

// note writes one of the agent's own lines; none before the spool is open.
func (at *attempt) note(event string, fields map[string]any) {
	at.mu.Lock()
	n := at.notices
	at.mu.Unlock()
	n.add(event, fields)
}

func (at *attempt) lossNow() loss {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.loss
}

// logWriter is the way of one stream: masker, quota, spool.
type logWriter struct {
	*masker.Writer
	quota *quotaWriter
}

func (w logWriter) Close() error { return errors.Join(w.Writer.Close(), w.quota.Close()) }

var _ io.WriteCloser = logWriter{}
