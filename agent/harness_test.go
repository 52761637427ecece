package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// TestMain lets the test binary be the shim, and an agent to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "secretagent":
			os.Exit(secretAgent(os.Args[2:]))
		case "leaker":
			os.Exit(serveLeaker())
		case "agent":
			os.Exit(agentProcess(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// world is one agent against a fake service, with fake executors, on the
// bubble's clock.
type world struct {
	t        *testing.T
	plane    *fakePlane
	launcher *fakeLauncher
	agent    *Agent
	config   Config
	log      *lockedBuffer

	stop  context.CancelFunc
	ended chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bubbleBoot is the boot-time clock on the bubble's time.
func bubbleBoot() isolation.BootTime { return isolation.BootTime(time.Now().UnixNano()) }

// inWorld runs test in a bubble with an agent that has not begun.
func inWorld(t *testing.T, a act, test func(t *testing.T, w *world)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, plane: newFakePlane(t), launcher: &fakeLauncher{act: a, now: bubbleBoot}, log: &lockedBuffer{}}
		w.config = Config{
			Connect: w.plane.connect, EnrolmentToken: w.plane.enrol, StateDir: dir, Name: "verification-runner", Version: "1.0.0",
			Slots: 2, Executors: map[string]Executor{"verification": {Argv: []string{"/bin/true"}, SHA256: "ab"}},
			Log: slog.New(slog.NewTextHandler(w.log, nil)), launch: w.launcher.launch, bootNow: bubbleBoot,
		}
		defer w.finish()
		test(t, w)
	})
}

// begin makes the agent and runs it.
func (w *world) begin() {
	w.t.Helper()
	a, err := New(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.agent, w.stop, w.ended = a, cancel, make(chan error, 1)
	go func(ended chan error) { ended <- a.Run(ctx) }(w.ended)
}

// end tells the agent to drain and returns what Run returned.
func (w *world) end() error {
	w.stop()
	err := <-w.ended
	w.agent = nil
	return err
}

func (w *world) finish() {
	if w.agent != nil {
		w.agent.Kill()
		if err := w.end(); err != nil {
			w.t.Errorf("Run after Kill: %v", err)
		}
	}
	if w.t.Failed() {
		w.t.Logf("the agent's log:\n%s", w.log.String())
	}
}

// after lets d pass and everything settle.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until waits, on the bubble's clock, until ok holds.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for range 6000 {
		synctest.Wait()
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("did not come to pass: %s\n%s", what, w.log.String())
}

// completed waits for a job's claim and for its folder to go, and returns the job.
func (w *world) completed(j *job) job {
	w.t.Helper()
	w.until("the job completes", func() bool { return w.plane.view(j).claim != nil })
	w.gone(j)
	return w.plane.view(j)
}

// gone waits until nothing of the attempt is left on disk.
func (w *world) gone(j *job) {
	w.t.Helper()
	dir := attemptDir(w.config.StateDir, j.offer.AttemptID, j.offer.Epoch)
	w.until("the attempt's folder goes", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
}

// checkLogs compares what the service has with what was claimed.
func checkLogs(t *testing.T, j job) {
	t.Helper()
	for _, l := range j.claim.Logs {
		got := j.logs[l.Stream]
		sum := sha256.Sum256(got)
		if int64(len(got)) != l.Bytes || hex.EncodeToString(sum[:]) != l.SHA256 {
			t.Errorf("log %s: the service has %d bytes, the claim is of %d; or their digests differ", l.Stream, len(got), l.Bytes)
		}
	}
	if len(j.claim.Logs) != len(j.logs) {
		t.Errorf("logs claimed %v, stored %d streams", j.claim.Logs, len(j.logs))
	}
}

func succeed(p *fakeProcess) executor.Exit {
	p.say(executor.Message{Outcome: &executor.Outcome{Result: executor.Succeeded, RecommendedCategory: "success"}})
	return executor.Exit{}
}

func stateFiles(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(attemptsDir(dir), func(path string, d os.DirEntry, err error) error {
		if err == nil && path != attemptsDir(dir) {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// processOf finds the process that was launched for a job.
func (w *world) processOf(j *job) *fakeProcess {
	w.t.Helper()
	for _, p := range w.launcher.launched() {
		if p.config.Task.AttemptID == j.offer.AttemptID.String() {
			return p
		}
	}
	w.t.Fatal("the job was not launched")
	return nil
}

// bubbleTime is a moment on the bubble's boot-time clock.
func bubbleTime(at time.Time) isolation.BootTime { return isolation.BootTime(at.UnixNano()) }
