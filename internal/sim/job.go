package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/broken"
)

var logStreams = []string{"stderr", "stdout"}

// job is a runner's part of one attempt at one epoch. What stands here outlives a
// crash of the agent: it is on disk.
type job struct {
	r       *runner
	attempt domain.AttemptID
	call    commands.LeaseCall
	clocks  domain.Clocks

	startID    domain.CommandID
	started    bool // acknowledged
	startAcked time.Time
	ackSent    time.Time // when the last acknowledged report was sent
	ackWall    time.Duration
	running    bool // an executor is there
	launched   bool
	ending     bool // the stop ladder is at work
	abandoned  bool // started by an agent that crashed before it launched
	acting     *act // its present interval of side effects
	result     string
	stopped    bool

	spool     map[string][]byte
	acked     map[string]int64
	chunks    map[string]*chunk // on their way
	failures  int               // uploads without an answer, one after the other
	refused   bool              // nothing more is taken
	pending   int               // evidence, artifacts and facts without an answer
	artifacts int
	leaving   int // artifacts without an answer

	claim      *domain.Claim
	completeID domain.CommandID
	sentClaim  bool
	completed  bool // acknowledged
}

// chunk is a piece of log on its way.
type chunk struct {
	id     domain.CommandID
	offset int64
	bytes  int64
}

// act is an interval in which an executor may have had side effects.
type act struct {
	runner   int
	epoch    int64
	from, to time.Time // to is zero while it lasts
}

func (j *job) meta(id domain.CommandID) commands.Meta {
	j.r.w.obs.caller(id, j)
	return j.r.meta(id)
}

// start says that the runner begins, and launches when that is acknowledged. The
// fence counts from the first time it was sent: that one may have been stored.
func (j *job) start(id domain.CommandID) {
	j.startID = id
	sent := time.Now()
	m := j.meta(id)
	if j.r.w.on(Duplicates) && j.r.rng.IntN(6) == 0 {
		j.startTwice()
	}
	j.r.insist("start", id, func(ctx context.Context, to *replica) (any, error) {
		return to.svc.Start(ctx, m, j.call, "process")
	}, func(_ any, err error) {
		if err != nil {
			j.drop()
			return
		}
		j.started, j.startAcked = true, time.Now()
		j.heard(sent)
		j.r.w.obs.startAcked(j)
		switch {
		case j.abandoned:
			j.result = string(domain.CodeStartAbandoned)
			j.finish()
		case j.fenced():
			j.result = string(domain.CodeStartAbandoned) // too late to begin
			j.finish()
		default:
			j.launch()
		}
	})
}

// startTwice is an agent that asks again under another id; only one may be taken.
func (j *job) startTwice() {
	j.r.w.count("fault", "second_start")
	id := j.r.command()
	m := j.meta(id)
	j.r.after(time.Duration(j.r.rng.IntN(3_000))*time.Millisecond, func() {
		j.r.send("start", id, j.r.timeout(), func(ctx context.Context, to *replica) (any, error) {
			return to.svc.Start(ctx, m, j.call, "process")
		}, func(any, error) {})
	})
}

func (j *job) fenceAt() time.Time {
	at := j.ackSent.Add(time.Duration(float64(j.r.w.profile().Fence) / (1 + j.r.drift)))
	if broken.On("wall_clock") {
		at = at.Add(j.ackWall - j.r.wall)
	}
	return at
}

// heard notes that the service acknowledged what was sent then.
func (j *job) heard(sent time.Time) {
	if sent.After(j.ackSent) {
		j.ackSent, j.ackWall = sent, j.r.wall
	}
}

// fenced reports whether, by the runner's own clock, nobody has heard the service
// for too long.
func (j *job) fenced() bool { return !time.Now().Before(j.fenceAt()) }

// launch starts the executor under its shim.
func (j *job) launch() {
	w, rng := j.r.w, j.r.rng
	j.running, j.launched = true, true
	j.act(true)
	j.watch()
	length := time.Duration(1000+rng.IntN(60_000)) * time.Millisecond
	if w.endless {
		length = 100 * time.Hour
	} else if w.Faults.has(SilentJobs) && rng.IntN(3) == 0 {
		w.count("fault", "endless_job")
		length = 100 * time.Hour
	}
	result := "succeeded"
	if rng.IntN(5) == 0 {
		result = string(domain.CodeTaskFailed)
	}
	j.r.shimAfter(length, func() {
		if j.running && !j.ending {
			j.exit(result)
		}
	})
	if w.Faults.has(SilentJobs) && rng.IntN(3) == 0 {
		w.count("fault", "silent_job")
		return
	}
	j.write()
	if rng.IntN(2) == 0 {
		j.r.after(time.Duration(rng.IntN(5_000))*time.Millisecond, j.observe)
	}
	if rng.IntN(2) == 0 {
		j.r.after(time.Duration(rng.IntN(5_000))*time.Millisecond, j.leave)
	}
}

// watch is the shim's clock.
func (j *job) watch() {
	j.r.shimAfter(max(0, time.Until(j.fenceAt())), func() {
		switch {
		case !j.running || j.ending:
		case j.fenced():
			j.r.w.count("runner", "fenced itself")
			if quiet := time.Since(j.ackSent); quiet < time.Duration(float64(j.r.w.profile().Fence)*0.99) {
				j.r.w.obs.violate("I5", j.attempt, "runner %d ended its job though the service had answered it %s before", j.r.n, quiet)
			}
			j.end("stopped")
		default:
			j.watch()
		}
	})
}

// write appends to the log, again and again while the executor runs.
func (j *job) write() {
	rng := j.r.rng
	if !j.running {
		return
	}
	stream := logStreams[rng.IntN(len(logStreams))]
	n := 1 + rng.IntN(2_000)
	for range n {
		j.spool[stream] = append(j.spool[stream], logByte(j.attempt, j.call.Epoch, stream, len(j.spool[stream])))
	}
	j.r.after(0, j.upload)
	j.r.shimAfter(time.Duration(500+rng.IntN(12_000))*time.Millisecond, j.write)
}

// logByte is the byte that belongs at a place of a log.
func logByte(a domain.AttemptID, epoch int64, stream string, at int) byte {
	u := a.UUID()
	return byte(mix(uint64(u[0])<<8|uint64(u[15]), uint64(epoch), name(stream), uint64(at)))
}

// observe records a piece of evidence.
func (j *job) observe() {
	if !j.running {
		return
	}
	id := j.r.command()
	m := j.meta(id)
	e := domain.EvidenceRecorded{Name: "open", Type: "api_check", Result: "passed", Source: "stdout", ObservedAt: j.r.wallNow()}
	j.pending++
	j.r.insist("evidence", id, func(ctx context.Context, to *replica) (any, error) {
		return to.svc.RecordEvidence(ctx, m, j.call, e, "it answered")
	}, func(_ any, err error) {
		j.pending--
		if err == nil {
			j.r.w.obs.acknowledged(j.attempt, "evidence", id)
		}
		j.finish()
	})
}

// leave leaves an artifact behind.
func (j *job) leave() {
	if !j.running {
		return
	}
	j.artifacts++
	j.leaving++
	id := j.r.command()
	m := j.meta(id)
	art := domain.ArtifactCreated{Name: fmt.Sprintf("report-%d", j.artifacts), Type: "report", Storage: "s3", URI: "s3://bucket/a",
		Key: "a", Sensitivity: "internal", Bytes: 5, SHA256: sha(fmt.Sprint(j.attempt, j.call.Epoch, j.artifacts))}
	j.r.insist("artifact", id, func(ctx context.Context, to *replica) (any, error) {
		return nil, to.svc.RegisterArtifact(ctx, m, j.call, art)
	}, func(_ any, err error) {
		j.leaving--
		defer j.over()
		if err == nil {
			j.r.w.obs.acknowledged(j.attempt, "artifact", id)
		}
	})
}

// act begins or ends an interval of side effects.
func (j *job) act(on bool) {
	switch {
	case on && j.acting == nil:
		j.acting = j.r.w.obs.acts(j)
	case !on && j.acting != nil:
		j.acting.to = time.Now()
		j.acting = nil
	}
}

// exit is the end of the executor.
func (j *job) exit(result string) {
	if j.r.rng.IntN(3) == 0 {
		j.leave() // what it made last
	}
	j.act(false)
	j.running = false
	j.result = result
	j.r.after(0, j.finish)
}

// end carries out the stop ladder: the executor is gone within the stop budget.
func (j *job) end(result string) {
	if !j.running || j.ending {
		return
	}
	j.ending = true
	budget := time.Duration(j.clocks.StopSeconds) * time.Second
	j.r.shimAfter(time.Duration(j.r.rng.Int64N(int64(budget)*9/10)), func() {
		if j.running {
			j.exit(result)
		}
	})
}

func (j *job) onStop(domain.StopReason) {
	j.stopped = true
	j.end("stopped")
}

// onLost is the word of the service that the lease is over.
func (j *job) onLost() {
	if j.completed {
		j.over()
		return
	}
	j.end("stopped")
	j.finish()
}

// report renews the lease. Without an answer it is sent again soon.
func (j *job) report(try int) {
	sent := time.Now()
	id := j.r.command()
	m := j.meta(id)
	j.r.w.obs.caller(domain.DeriveCommandID(id.UUID(), j.attempt.String()), j)
	part := commands.LeaseReport{LeaseCall: j.call}
	if j.r.rng.IntN(2) == 0 {
		part.Progress = &commands.Progress{Phase: "probing", Done: int64(try), Total: 10, Message: "on it"}
	}
	j.r.send("report", domain.DeriveCommandID(id.UUID(), j.attempt.String()), j.r.timeout(), func(ctx context.Context, to *replica) (any, error) {
		if err := (reads{j.r.w, j.r.w.rows}).SeenRunner(ctx, j.r.id); err != nil {
			j.r.w.count("seen", word(err)) // it costs nothing that was asked for
		}
		res := to.svc.Report(ctx, m, []commands.LeaseReport{part})[0]
		return res.Attempt, res.Err
	}, func(v any, err error) {
		switch {
		case err == nil:
			j.heard(sent)
			if a, ok := v.(domain.Attempt); ok && a.Stop != nil && a.Phase == domain.PhaseRunning {
				j.onStop(a.Stop.Reason)
			}
		case definite(err):
			j.onLost()
		case try < 3:
			j.r.after(2*time.Second, func() { j.report(try + 1) })
		}
	})
}

// finish says how it ended, once everything else was said.
func (j *job) finish() {
	if j.running || j.result == "" || j.pending > 0 || j.sentClaim || !j.started {
		return
	}
	j.sentClaim = true
	if j.claim == nil {
		j.makeClaim()
	}
	if j.claim.Result == domain.ClaimStopped && j.r.rng.IntN(5) > 0 {
		id := j.r.command()
		m := j.meta(id)
		j.r.insist("fact", id, func(ctx context.Context, to *replica) (any, error) {
			return nil, to.svc.RecordFact(ctx, m, j.call, domain.ProcessTreeReaped{Confirmed: true, Method: "subreaper"})
		}, func(any, error) { j.complete() })
		return
	}
	j.complete()
}

func (j *job) makeClaim() {
	c := &domain.Claim{Result: j.result, Launched: j.launched, FinishedAt: j.r.wallNow(), Artifacts: j.artifacts}
	if j.launched {
		code := 0
		if j.result != "succeeded" {
			code = 1
		}
		c.Code = &code
	}
	for _, s := range logStreams {
		if n := len(j.spool[s]); n > 0 {
			c.Logs = append(c.Logs, domain.ClaimedLog{Stream: s, Bytes: int64(n), SHA256: sha(string(j.spool[s]))})
		}
	}
	j.claim, j.completeID = c, j.r.command()
}

func (j *job) complete() {
	id, claim := j.completeID, *j.claim
	m := j.meta(id)
	if j.r.w.on(Duplicates) && j.r.rng.IntN(5) == 0 {
		j.completeTwice()
	}
	j.r.insist("complete", id, func(ctx context.Context, to *replica) (any, error) {
		return to.svc.Complete(ctx, m, j.call, claim, []byte(`{"agent":"1"}`))
	}, func(_ any, err error) {
		if err == nil {
			j.completed = true
			j.r.w.obs.acknowledged(j.attempt, "complete", id)
		} else {
			j.completed = true // nothing more can be said; leftovers may still be taken
		}
		j.r.freed()
		j.upload()
		j.over()
	})
}

// completeTwice is an agent that says something else besides, under another id:
// one of the two must be refused.
func (j *job) completeTwice() {
	j.r.w.count("fault", "second_completion")
	id, claim := j.r.command(), *j.claim
	claim.Result = string(domain.CodeExecutorCrashed)
	m := j.meta(id)
	j.r.after(time.Duration(j.r.rng.IntN(1_000))*time.Millisecond, func() {
		j.r.send("complete", id, j.r.timeout(), func(ctx context.Context, to *replica) (any, error) {
			return to.svc.Complete(ctx, m, j.call, claim, nil)
		}, func(any, error) {})
	})
}

// over forgets a job whose every byte is stored or refused.
func (j *job) over() {
	if !j.completed || j.running || j.leaving > 0 {
		return
	}
	for _, s := range logStreams {
		if !j.refused && j.acked[s] < int64(len(j.spool[s])) {
			return
		}
	}
	j.drop()
}

func (j *job) drop() {
	if !j.completed {
		defer j.r.freed()
	}
	j.refused = true
	j.r.jobs = slices.DeleteFunc(j.r.jobs, func(o *job) bool { return o == j })
}

// upload sends what is spooled and not acknowledged, one chunk of a stream at a time.
func (j *job) upload() {
	for _, stream := range logStreams {
		have := j.acked[stream]
		left := int64(len(j.spool[stream])) - have
		if j.refused || !j.started || left <= 0 || j.chunks[stream] != nil {
			continue
		}
		bytes := min(left, 4096)
		if j.r.rng.IntN(4) == 0 {
			bytes = 1 + j.r.rng.Int64N(bytes)
		}
		c := &chunk{id: j.r.command(), offset: have, bytes: bytes}
		j.chunks[stream] = c
		j.sendChunk(stream, c)
	}
}

func (j *job) sendChunk(stream string, c *chunk) {
	content := slices.Clone(j.spool[stream][c.offset : c.offset+c.bytes])
	m := j.meta(c.id)
	// The check before the upload knows no command ids, so a repetition may be
	// refused: the answer is held against the command where the chunk is recorded.
	j.r.send("log", domain.CommandID{}, j.r.timeout(), func(ctx context.Context, to *replica) (any, error) {
		return j.r.w.storeChunk(ctx, to, m, j.call, j.attempt, stream, c.offset, content)
	}, func(v any, err error) {
		have, _ := v.(int64)
		var e *domain.Error
		switch {
		case err == nil:
			j.failures = 0
			j.storedTo(stream, have)
		case errors.Is(err, domain.ErrLogOffset) && errors.As(err, &e):
			have, _ = e.Details["offset"].(int64)
			j.storedTo(stream, have)
		case definite(err):
			j.refused = true
		default:
			// Half an upload, or none: again, the same or another piece.
			again := time.Duration(300+j.r.rng.IntN(2_000)) * time.Millisecond << min(j.failures, 4)
			j.failures++
			if j.r.rng.IntN(2) == 0 {
				j.r.after(again, func() { j.sendChunk(stream, c) })
				return
			}
			j.r.after(again, func() { j.chunks[stream] = nil; j.upload() })
			return
		}
		j.chunks[stream] = nil
		j.upload()
		j.over()
	})
}

// storedTo is the service's word on how much of a stream it has.
func (j *job) storedTo(stream string, have int64) {
	if have < j.acked[stream] || have > int64(len(j.spool[stream])) {
		j.r.w.obs.violate("I12", j.attempt, "the service says it has %d bytes of %s; %d were acknowledged, %d were written", have, stream, j.acked[stream], len(j.spool[stream]))
		j.refused = true
		return
	}
	j.acked[stream] = have
	j.r.w.obs.ackLog(j, stream, have)
}

// restarted is what an agent does with a job that an earlier one left.
func (j *job) restarted() {
	j.chunks, j.pending, j.leaving = map[string]*chunk{}, 0, 0
	switch {
	case !j.started:
		j.abandoned = true
		if j.startID.IsZero() || j.r.rng.IntN(2) == 0 { // it had not begun, or lost its notes
			j.startID = j.r.command()
		}
		j.start(j.startID)
		return
	case j.running:
		j.ending = false
		j.end(string(domain.CodeAgentRestarted))
	case j.result == "":
		j.result = string(domain.CodeAgentRestarted)
	}
	if !j.running && j.r.rng.IntN(2) == 0 {
		// It lost its notes: it says so, under another id, whatever it said before.
		j.claim, j.completed, j.result = nil, false, string(domain.CodeAgentRestarted)
	}
	if !j.completed {
		j.sentClaim = false
		j.finish()
	}
	j.upload()
	j.over()
}
