package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

// binary is the product as it is installed.
type binary struct {
	path   string
	policy string // folder of a bundle that allows targets on this machine
}

// present builds the binary of this checkout.
func present(t *testing.T) binary {
	t.Helper()
	path := filepath.Join(t.TempDir(), "execution-plane")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "../../cmd/execution-plane").CombinedOutput(); err != nil {
		t.Fatalf("build the binary: %v\n%s", err, out)
	}
	return binary{path, devPolicy(t)}
}

// devPolicy writes down the bundle that policy.BuiltinDev has built in.
func devPolicy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"builtin", "dev"} {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "policy", from))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start runs a verb of the binary until the test ends or it is stopped.
func (b binary) start(t *testing.T, config childConfig, env []string, args ...string) *child {
	t.Helper()
	k := &child{t: t, config: config, cmd: exec.Command(b.path, args...), log: &lockedBuffer{}, done: make(chan struct{})}
	k.cmd.Env = append(os.Environ(), env...)
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	// It ends with this process, however that comes.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := k.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	k.stdin = stdin
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(args, " "), strings.TrimSpace(k.log.String()))
		}
	})
	return k
}

// serve starts a replica with the fast profile.
func (b binary) serve(w *world) *child {
	w.t.Helper()
	c := childConfig{Listen: freeAddress(w.t), DatabaseURL: w.db, S3: w.s3}
	return b.start(w.t, c, []string{"EXECUTION_PLANE_LISTEN=" + c.Listen, "EXECUTION_PLANE_DATABASE_URL=" + w.db, "EXECUTION_PLANE_S3_ENDPOINT=" + w.s3.Endpoint, "EXECUTION_PLANE_S3_BUCKET=" + w.s3.Bucket,
		"EXECUTION_PLANE_S3_ACCESS_KEY=" + w.s3.AccessKey, "EXECUTION_PLANE_S3_SECRET_KEY=" + w.s3.SecretKey, "EXECUTION_PLANE_S3_TLS=false",
		"EXECUTION_PLANE_POLICY=" + b.policy, "EXECUTION_PLANE_PROFILE=fast", "EXECUTION_PLANE_DATABASE_CONNS=12"}, "serve")
}

// runner starts a runner on a folder of its own, or on one that was used before.
func (b binary) runner(w *world, url, enrolment, dir string, more ...string) *child {
	w.t.Helper()
	return b.start(w.t, childConfig{URL: url, StateDir: dir}, []string{
		"EXECUTION_PLANE_URL=" + url, "EXECUTION_PLANE_ENROLMENT=" + enrolment, "EXECUTION_PLANE_RUNNER_DIR=" + dir,
	}, append([]string{"runner", "run", "--slots", "2"}, more...)...)
}

// run runs a verb to its end and returns what it printed.
func (b binary) run(ctx context.Context, t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	var out, errOut strings.Builder
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return strings.TrimSpace(out.String()), err
}

// steady is a probe that must succeed for the given seconds.
func steady(t *testing.T, seconds int) *domain.JobSpec {
	t.Helper()
	return probe("verify.tcp.connect", openPort(t), fmt.Sprintf(`"interval_seconds":0.2,"stable_successes":1,"stable_seconds":%d,"expect":[{"name":"port_open","connect":true}]`, seconds))
}

// The binary itself, told to end: a runner finishes what it has, within its limit;
// a second signal ends everything at once; a replica answers those who wait.
func TestBinaryIsToldToEnd(t *testing.T) {
	t.Parallel()
	b := present(t)
	w := newWorld(t, setup{profile: domain.FastProfile()})
	s := b.serve(w)
	w.serves(s)
	url := "http://" + s.config.Listen
	c := w.client(url, w.controlToken)
	dir := filepath.Join(t.TempDir(), "runner")

	r := b.runner(w, url, w.enrolment(), dir)
	running := w.submit(c, steady(t, 3))
	w.reaches(running, domain.PhaseRunning)
	r.signal(syscall.SIGTERM)
	w.eventually("the runner is draining", func() bool { return w.countRunners(domain.RunnerInDrain) == 1 })
	waiting := w.submit(c, tcp(openPort(t)))
	wantConfirmed(t, w.result(c, running), "port_open")
	r.exits(0)
	w.eventually("the runner is drained", func() bool { return w.countRunners(domain.RunnerIsDrained) == 1 })
	if a := w.state(waiting); a.Phase != domain.PhaseQueued {
		t.Errorf("a draining runner took work: %s", a.Phase)
	}

	// It comes back under its own name. Its limit passes, or a second signal comes.
	for _, second := range []bool{false, true} {
		r = b.runner(w, url, "", dir, "--drain", map[bool]string{false: "1s", true: "10m"}[second])
		wantConfirmed(t, w.result(c, waiting), "port_open")
		running = w.submit(c, long(t))
		// Started on the ledger is not launched yet; what speaks is.
		w.eventually("the job's log is stored", func() bool { return w.state(running).LogBytes["stdout"] > 0 })
		r.signal(syscall.SIGTERM)
		w.eventually("the runner is draining", func() bool { return w.countRunners(domain.RunnerInDrain) == 1 })
		if second {
			r.signal(syscall.SIGTERM)
		}
		r.exits(0)
		noProcessOf(t, dir)
		if second {
			r = b.runner(w, url, "", dir) // it says what became of the job
		}
		if res := w.result(c, running); res.FailureCode != domain.CodeAgentRestarted || res.RawOutputBundle.State != "complete" {
			t.Errorf("second signal %t: result %+v", second, res)
		}
	}
	r.stop()
	w.eventually("the runner is drained", func() bool { return w.countRunners(domain.RunnerIsDrained) == 1 })

	queued := w.submit(c, tcp(openPort(t)))
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.Result(w.ctx, queued, 30*time.Second)
		answered <- err
	}()
	w.eventually("the request is held", func() bool {
		m, err := get(w.ctx, url+"/metrics")
		return err == nil && strings.Contains(m, "\neps_http_held_requests 1\n")
	})
	s.signal(syscall.SIGTERM)
	began := time.Now()
	// "Not yet", or 503 stopping where it was just looking: either way at once.
	if err := <-answered; err != nil && !client.IsUnavailable(err) || time.Since(began) > 20*time.Second {
		t.Errorf("a held request of a replica that ends: %v after %s", err, time.Since(began))
	}
	s.exits(0)

	s = b.serve(w)
	w.serves(s)
	cancel(t, w, w.client("http://"+s.config.Listen, w.controlToken), queued)
	w.checkEverything()
	w.checked = true
	s.stop()
}

// signal sends a signal to a child that lives.
func (k *child) signal(s syscall.Signal) {
	k.t.Helper()
	if err := k.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		k.t.Fatal(err)
	}
}

// exits waits for its end, which must have this code.
func (k *child) exits(code int) {
	k.t.Helper()
	k.ends(45 * time.Second)
	if got := k.cmd.ProcessState.ExitCode(); got != code {
		k.t.Errorf("exit code %d, want %d:\n%s", got, code, k.log.String())
	}
}

// get reads a page that asks for no token.
func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
