package agent

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker"
)

// ending is how the work of an attempt ended, before it is claimed.
type ending struct {
	result   string // succeeded, stopped or a failure code
	launched bool
	code     *int
	category domain.Category
	reaped   *shim.Reaped // nil where no shim ran
	finished time.Time
	text     string // for people, goes to the log
	own      bool   // it ended by itself, whatever was wanted of it
}

// execute runs the executor to its end. Nothing of it is alive afterwards, or
// ending.reaped says so.
func (at *attempt) execute() ending {
	defer at.unfence()
	defer at.removeSecretFiles()
	defer at.removeInputs()
	if err := at.prepareInputs(); err != nil {
		return at.notGiven(err)
	}
	files, err := at.prepareSecrets()
	if err != nil {
		return at.unresolved(err)
	}
	words := newDiagnostics(at)
	defer words.close()
	config, err := at.shimConfig(files, words)
	if err != nil {
		return at.notLaunched(err)
	}
	if err := at.update(func(j *journal) { j.Phase = phaseLaunched }); err != nil {
		at.failStorage(err)
	}
	if !at.wanted() {
		return at.notLaunched(errors.New("it was ended before the executor was started"))
	}
	p, err := at.agent.config.launch(at.launching, config)
	if err != nil {
		return at.notLaunched(err)
	}
	at.adopt(p)
	pumped := make(chan struct{})
	at.agent.tasks.Go(func() {
		defer close(pumped)
		at.pump(p)
	})
	// What the executor said may wait for the service, and its log for room on the
	// disk. An executor that is gone needs no fence meanwhile.
	r := p.wait()
	finished, fenced := time.Now(), at.overdue()
	at.unfence()
	if r.Reason == shim.ReasonDeadline || r.Reason == shim.ReasonAgentLost && fenced {
		// The shim was first to see that no report was acknowledged in time: this
		// agent hung or slept. A settled outcome is dropped with the rest, since
		// the lease may be over.
		at.lose(lossFenced)
	}
	<-pumped
	if err := p.close(); err != nil {
		at.log.Warn("the shim's pipes do not close", "error", err)
	}
	at.mu.Lock()
	at.proc, at.applied = nil, r.Applied
	at.mu.Unlock()
	at.clearWork()
	e := at.endingOf(r)
	e.finished = finished
	return e
}

// clearWork frees the disk of what the executor left; its artifacts were copied.
func (at *attempt) clearWork() {
	f := shim.Layout(at.dir)
	for _, dir := range []string{f.Work, f.Output, f.Tmp} {
		if err := removeTree(dir); err != nil {
			at.log.Warn("a folder of the executor does not go yet", "dir", dir, "error", err)
		}
	}
}

func (at *attempt) shimConfig(secretFiles map[string]string, words io.Writer) (shim.Config, error) {
	c := &at.agent.config
	task, err := taskOf(&at.spec, at.journal.Clocks, at.journal.PolicyDigest, at.policyPath())
	if err != nil {
		return shim.Config{}, err
	}
	task.Secrets, task.Inputs, task.Packages = secretFiles, at.given.inputs, at.given.packages
	task.Isolation = at.journal.Isolation
	private, messages := "", ""
	if d := at.secrets.dir; d != nil {
		task.SecretOutputDir, private, messages = d.Output(), d.Path(), d.Messages()
	}
	at.mu.Lock()
	deadline := at.fenceAt
	at.mu.Unlock()
	return shim.Config{
		Shim: c.Shim, Dir: at.dir, Argv: c.Executors[at.spec.JobType].Argv, Task: task,
		Limits: c.Limits, Credential: c.Credential, Cgroup: c.Cgroup, Isolation: at.box,
		Deadline: deadline, Ladder: fenceLadder(at.spec.JobType, at.stopBudget()),
		Diagnostics: words, Private: private, MessagesDir: messages,
	}, nil
}

// adopt makes the process known to the loops, and catches up with what they
// wanted of it meanwhile.
func (at *attempt) adopt(p process) {
	at.mu.Lock()
	at.proc = p
	stop, until := at.stop, at.fenceAt
	alive := at.loss == lossNone
	at.mu.Unlock()
	switch {
	case stop != nil:
		at.end(p, at.stopLadder(*stop), "stop: "+string(stop.Reason))
	case at.agent.leaving():
		at.end(p, shim.Ladder{}, "the agent ends")
	case !at.wanted():
		at.end(p, fenceLadder(at.spec.JobType, at.stopBudget()), "no longer wanted")
	case alive:
		at.extend(p, until)
	}
}

// pump reads the process's log and messages to their ends.
func (at *attempt) pump(p process) {
	left := new(atomic.Int64)
	left.Store(at.agent.config.SpoolQuota)
	stdout, stderr := p.logs()
	var readers sync.WaitGroup
	readers.Go(func() { at.copyLog(bundle.Stdout, stdout, left) })
	readers.Go(func() { at.copyLog(bundle.Stderr, stderr, left) })
	readers.Go(func() { at.takeMessages(p.messages()) })
	readers.Wait()
}

func (at *attempt) copyLog(name bundle.Stream, from io.Reader, left *atomic.Int64) {
	w := at.logWriter(name, left)
	counted := &countedReader{Reader: from, count: at.agent.meters.read}
	kept, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{counted}, make([]byte, bundle.MaxFrame))
	err = errors.Join(err, w.Close())
	if err == nil {
		return
	}
	at.failStorage(fmt.Errorf("keep the log %s: %w", name, err))
	// Read on, so that the executor is not held up on its way to its end.
	_, _ = io.Copy(io.Discard, counted)
	at.agent.meters.dropped.Add(float64(counted.bytes - kept))
}

// countedReader counts what it reads.
type countedReader struct {
	io.Reader
	count prometheus.Counter
	bytes int64
}

func (r *countedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.bytes += int64(n)
	r.count.Add(float64(n))
	return n, err
}

func (at *attempt) logWriter(name bundle.Stream, left *atomic.Int64) io.WriteCloser {
	q := &quotaWriter{dst: roomWriter{at, at.spool.streams[name]}, left: left, quota: at.agent.config.SpoolQuota,
		lost: func(n int64) { at.agent.meters.dropped.Add(float64(n)) }}
	q.reached = func() {
		at.log.Warn("the log quota is used up", "stream", string(name), "bytes", q.quota)
		at.note("log_quota_reached", map[string]any{"stream": name, "quota_bytes": q.quota})
	}
	return logWriter{Writer: masker.NewWriter(q, at.mask), quota: q}
}
