package shim_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

func TestKitExecutorRunsToItsOutcome(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, self(t, "act", "kit")...))
	r := w.end()
	provedGone(t, dir, r)
	c, ok := r.Conclude()
	if !ok || c.Result != executor.Succeeded || c.Code != 0 || r.Reason != shim.ReasonOwn {
		t.Errorf("conclusion %+v, %v; result %+v; stderr %s", c, ok, r, w.stderr.String())
	}
	want := []string{"progress", "evidence", "artifact", "output", "fact", "outcome"}
	if diff := cmp.Diff(want, w.kinds()); diff != "" {
		t.Errorf("messages: %s", diff)
	}
	if pid, a, ok := w.Running(); !ok || pid == 0 || a.Level != isolation.LevelProcess {
		t.Errorf("running: %d %+v %v", pid, a, ok)
	}
	f, err := executor.OpenOutput(shim.Layout(dir).Output, "r.txt")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestExitWithoutOutcome(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		want         executor.OutcomeResult
		code         int
	}{
		{"zero", "exit 0", executor.Succeeded, 0},
		{"seven", "exit 7", executor.TaskFailed, 7},
		{"signal", "kill -SEGV $$", executor.ExecutorCrashed, 139},
		{"broken message", `echo '{"type":"outcome"' >&3; exit 0`, executor.ExecutorCrashed, 0},
		{"broken message, valid outcome", `echo nonsense >&3; echo '{"type":"outcome","result":"policy_denied"}' >&3; exit 1`, executor.PolicyDenied, 1},
		{"success claimed, then failed", `echo '{"type":"outcome","result":"succeeded"}' >&3; exit 1`, executor.ExecutorCrashed, 1},
		{"tool's code", `echo '{"type":"outcome","result":"task_failed","code":42}' >&3; exit 1`, executor.TaskFailed, 42},
		{"look-alike on stdout", `echo '{"type":"outcome","result":"succeeded"}'; exit 1`, executor.TaskFailed, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := attemptDir(t)
			r := start(t, base(dir, sh(tc.script)...)).end()
			provedGone(t, dir, r)
			c, ok := r.Conclude()
			if !ok || c.Result != tc.want || c.Code != tc.code {
				t.Errorf("got %+v, %v, want %s %d (%+v)", c, ok, tc.want, tc.code, r)
			}
		})
	}
}

func TestPanicIsACrash(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, self(t, "act", "panic")...))
	r := w.end()
	if c, ok := r.Conclude(); !ok || c.Result != executor.ExecutorCrashed || c.Code != 134 {
		t.Errorf("conclusion %+v, %v", c, ok)
	}
	if !strings.Contains(w.stderr.String(), "broken on purpose") {
		t.Error("the panic is not in the log")
	}
}

func TestWhatTheExecutorSees(t *testing.T) {
	t.Setenv("EXECUTION_PLANE_TOKEN", "must not be inherited")
	leak, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	dir := attemptDir(t)
	c := base(dir, self(t, "act", "report")...)
	c.Task.Parameters = json.RawMessage(`{"big":"` + strings.Repeat("y", 2<<20) + `"}`)
	c.Limits = isolation.Limits{OpenFiles: 300, FileSize: 1 << 30, OOMScoreAdj: 500}
	w := start(t, c)
	r := w.end()
	provedGone(t, dir, r)
	var in inside
	if err := json.Unmarshal([]byte(w.stdout.String()), &in); err != nil {
		t.Fatalf("%v: %s %+v", err, w.stderr.String(), r)
	}
	f := shim.Layout(dir)
	wantEnv := []string{"PATH=" + shim.DefaultPath, "HOME=" + f.Work, "TMPDIR=" + f.Tmp,
		"LANG=" + shim.DefaultLang, "EXECUTOR_PROTOCOL=1", "EXECUTOR_CONTROL_FD=3"}
	if diff := cmp.Diff(wantEnv, in.Env); diff != "" {
		t.Errorf("environment: %s", diff)
	}
	if diff := cmp.Diff([]string{"0", "1", "2", "3"}, in.FDs); diff != "" {
		t.Errorf("descriptors: %s", diff)
	}
	if in.Cwd != f.Work || in.Task.WorkDir != f.Work || in.Task.OutputDir != f.Output {
		t.Errorf("folders: %q %q %q", in.Cwd, in.Task.WorkDir, in.Task.OutputDir)
	}
	for k, v := range map[string]string{"NoNewPrivs": "1", "Umask": "0077", "SigIgn": "0000000000000000", "SigBlk": "0000000000000000"} {
		if in.Status[k] != v {
			t.Errorf("%s is %q, want %q", k, in.Status[k], v)
		}
	}
	if in.OOM != "500" || !strings.Contains(in.Limits, "300                  300") || r.Applied.Limits["nofile"] != 300 {
		t.Errorf("limits: oom %s, %s, %v", in.OOM, in.Limits, r.Applied.Limits)
	}
	if in.Stdin < 2<<20 {
		t.Errorf("the task has %d bytes", in.Stdin)
	}
	if s, err := os.Stat(f.Work); err != nil || s.Mode().Perm() != 0o700 {
		t.Errorf("work folder: %v %v", s, err)
	}
}

func TestExecFailureIsNotALaunch(t *testing.T) {
	dir := attemptDir(t)
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := start(t, base(dir, broken)).end()
	provedGone(t, dir, r)
	if r.Launched || !strings.Contains(r.Error, "no such file") || r.Code != nil {
		t.Errorf("result %+v", r)
	}
}

func TestStartRefusesWhatCannotWork(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		change func(*shim.Config)
	}{
		"relative executor": {context.Background(), func(c *shim.Config) { c.Argv = []string{"sh"} }},
		"relative folder":   {context.Background(), func(c *shim.Config) { c.Dir = "x" }},
		"past deadline":     {context.Background(), func(c *shim.Config) { c.Deadline = 1 }},
		"unknown signal":    {context.Background(), func(c *shim.Config) { c.Ladder[0].Signal = "TERM" }},
		"cancelled":         {cancelled, func(*shim.Config) {}},
		"no shim":           {context.Background(), func(c *shim.Config) { c.Shim = []string{"/no/such/shim"} }},
		"not a shim":        {context.Background(), func(c *shim.Config) { c.Shim = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			c := base(attemptDir(t), "/bin/true")
			tc.change(&c)
			if p, err := shim.Start(tc.ctx, c); err == nil {
				p.Close()
				t.Error("started")
			}
		})
	}
}

func TestAFolderIsUsedOnce(t *testing.T) {
	dir := attemptDir(t)
	start(t, base(dir, "/bin/true")).end()
	if p, err := shim.Start(context.Background(), base(dir, "/bin/true")); err == nil {
		p.Close()
		t.Error("the folder of an earlier run was taken again")
	}
}

func TestLongLineAndSilence(t *testing.T) {
	dir := attemptDir(t)
	w := start(t, base(dir, self(t, "act", "longline")...))
	r := w.end()
	if c, _ := r.Conclude(); c.Result != executor.Succeeded || len(w.stdout.String()) != 64<<20 {
		t.Errorf("%+v, %d bytes", c, len(w.stdout.String()))
	}
	silent := start(t, base(attemptDir(t), "/bin/true"))
	if r := silent.end(); !r.Launched || silent.stdout.String() != "" {
		t.Errorf("%+v %q", r, silent.stdout.String())
	}
}

func TestProgressIsRateLimitedAndTheLatestWins(t *testing.T) {
	began := time.Now()
	dir := attemptDir(t)
	w := start(t, base(dir, self(t, "act", "chatter")...))
	r := w.end()
	if c, _ := r.Conclude(); c.Result != executor.Succeeded {
		t.Fatalf("%+v %+v", c, r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, last := 0, int64(-1)
	for _, m := range w.messages {
		if m.Progress != nil {
			n, last = n+1, m.Progress.Done
		}
	}
	if limit := 2 + int(time.Since(began).Seconds()/2); n > limit || last != 19_999 {
		t.Errorf("%d progress messages in %v, the last at %d", n, time.Since(began), last)
	}
}

func TestToolsMayEndWithoutReader(t *testing.T) {
	// Nobody reads the logs or the messages; Wait returns all the same.
	c := base(attemptDir(t), self(t, "act", "kit")...)
	p, err := shim.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	r := p.Wait()
	provedGone(t, c.Dir, r)
	if r.Outcome == nil || r.Outcome.Result != executor.Succeeded {
		t.Errorf("%+v", r)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
