package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// realConfig is an agent with real shims, against a service behind HTTP.
func realConfig(url, dir string, argv []string) (Config, error) {
	connect, err := Dial(url, "agent-test")
	return Config{
		Connect: connect, EnrolmentToken: "ee_enrol", StateDir: dir, Name: "verification-runner", Version: "1.0.0", Slots: 2,
		Executors: map[string]Executor{"verification": {Argv: argv}}, Shim: []string{"/proc/self/exe", "shim"},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}, err
}

// runReal runs an agent until the test ends, and checks that nothing is left.
func runReal(t *testing.T, plane *fakePlane, argv []string) Config {
	t.Helper()
	proctest.Check(t)
	server := plane.serve(t)
	c, err := realConfig(server.URL, filepath.Join(t.TempDir(), "state"), argv)
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c
}

// comesTrue polls: what is waited for happens in other processes.
func comesTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(45 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not come to pass: %s", what)
		}
	}
}

func finishes(t *testing.T, c Config, plane *fakePlane, j *job) job {
	t.Helper()
	comesTrue(t, "the job completes", func() bool { return plane.view(j).claim != nil })
	dir := attemptDir(c.StateDir, j.offer.AttemptID, 1)
	comesTrue(t, "its folder goes", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
	v := plane.view(j)
	checkLogs(t, v)
	return v
}

func TestRealExecutorInShell(t *testing.T) {
	script, err := filepath.Abs("../examples/executor-shell/executor.sh")
	if err != nil {
		t.Fatal(err)
	}
	plane := newFakePlane(t)
	c := runReal(t, plane, []string{"/bin/sh", script})
	j := finishes(t, c, plane, plane.submit(nil))
	if j.claim.Result != "succeeded" || len(j.evidence) != 1 || !strings.Contains(string(j.logs["stdout"]), "Filesystem") {
		t.Errorf("claim %+v, stdout %q, stderr %q", j.claim, j.logs["stdout"], j.logs["stderr"])
	}
	report, ok := j.artifacts["disk_report"]
	if !ok || string(j.objects[report.SHA256]) != string(j.logs["stdout"]) {
		t.Errorf("artifacts %v", j.artifacts)
	}
	if len(j.facts) != 1 || !j.facts[0].ProcessTreeReaped.Confirmed || j.facts[0].ProcessTreeReaped.Survivors != 0 {
		t.Errorf("facts %+v", j.facts)
	}
}

func TestRealEndings(t *testing.T) {
	for _, tc := range []struct {
		name, script, want string
		code               int
	}{
		{"nonzero", "echo out; echo err >&2; exit 7", "task_failed", 7},
		{"signal", "kill -SEGV $$", "executor_crashed", 139},
		{"burst", "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", "succeeded", 0},
		{"orphan", "setsid sh -c 'trap \"\" TERM; sleep 600' & exit 0", "succeeded", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plane := newFakePlane(t)
			halves := 0
			plane.logLimit = func(_ string, n int64) int64 {
				if halves++; halves < 6 {
					return n / 2 // and the answer is a proxy's error; the next one is 416
				}
				return n
			}
			c := runReal(t, plane, []string{"/bin/sh", "-c", tc.script})
			j := finishes(t, c, plane, plane.submit(nil))
			if j.claim.Result != tc.want || *j.claim.Code != tc.code {
				t.Errorf("claim %+v code %d", j.claim, *j.claim.Code)
			}
			if tc.name == "burst" && strings.Count(string(j.logs["stdout"]), "\n") != 20000 {
				t.Errorf("%d lines of 20000", strings.Count(string(j.logs["stdout"]), "\n"))
			}
		})
	}
}

func TestRealExecFailureIsStartAbandoned(t *testing.T) {
	plane := newFakePlane(t)
	broken := filepath.Join(t.TempDir(), "executor")
	if err := os.WriteFile(broken, []byte("not a program"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := runReal(t, plane, []string{broken})
	j := finishes(t, c, plane, plane.submit(nil))
	if j.claim.Result != "start_abandoned" || j.claim.Launched || j.claim.Code != nil {
		t.Errorf("claim %+v", j.claim)
	}
}

func TestRealStopEndsTheWholeTree(t *testing.T) {
	plane := newFakePlane(t)
	c := runReal(t, plane, []string{"/bin/sh", "-c", "setsid sleep 600 & sleep 600 & echo ready; wait"})
	j := plane.submit(func(_ *domain.JobSpec, o *wire.Offer) { o.Clocks.StopSeconds = 1 })
	comesTrue(t, "it runs", func() bool { return strings.Contains(string(plane.view(j).logs["stdout"]), "ready") })
	plane.stopJob(j, domain.StopCancel)
	v := finishes(t, c, plane, j)
	if v.claim.Result != domain.ClaimStopped || !v.facts[0].ProcessTreeReaped.Confirmed {
		t.Errorf("claim %+v, facts %+v", v.claim, v.facts)
	}
}

// An artifact never leads out of the output folder, and a pipe does not block.
func TestRealArtifactsStayInTheirFolder(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `task=$(cat); out=$(printf %s "$task" | grep -o '"output_dir":"[^"]*' | cut -d'"' -f4)
ln -s ` + secret + ` $out/link; mkfifo $out/pipe; ln -s /dev/zero $out/zero; ln -s .. $out/up; echo good > $out/good
for n in link pipe zero up/work absent good; do
  printf '{"type":"artifact","name":"%s","artifact_type":"x","path":"%s"}\n' $n $n >&3
done
printf '{"type":"artifact","name":"s","artifact_type":"x","path":"good","sensitivity":"secret"}\n' >&3`
	plane := newFakePlane(t)
	c := runReal(t, plane, []string{"/bin/sh", "-c", script})
	j := finishes(t, c, plane, plane.submit(nil))
	if len(j.artifacts) != 1 || j.claim.Artifacts != 1 || string(j.objects[j.artifacts["good"].SHA256]) != "good\n" {
		t.Errorf("artifacts %v, claimed %d", j.artifacts, j.claim.Artifacts)
	}
	if n := strings.Count(string(j.logs["events"]), "artifact_refused"); n != 6 {
		t.Errorf("%d refusals are told: %s", n, j.logs["events"])
	}
}

// The executor runs as another user where the tests run as root: it can read
// what its task names, and cannot read what is the agent's.
func TestRealExecutorAsAnotherUser(t *testing.T) {
	script := `task=$(cat); policy=$(printf %s "$task" | grep -o '"path":"[^"]*' | cut -d'"' -f4)
[ "$(head -c 4 "$policy" | wc -c)" = 4 ] || exit 3
echo uid $(id -u)
[ "$(id -u)" = 0 ] && exit 0
cat ../journal.json && exit 4
ls .. && exit 5
exit 0`
	proctest.Check(t)
	plane := newFakePlane(t)
	server := plane.serve(t)
	base, err := os.MkdirTemp("", "agent-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := realConfig(server.URL, filepath.Join(base, "state"), []string{"/bin/sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	want := os.Getuid()
	if want == 0 {
		want = 65534
		c.Credential = &shim.Credential{UID: 65534, GID: 65534}
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	j := plane.submit(nil)
	v := finishes(t, c, plane, j)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c.Credential == nil {
		return // the same user may read the agent's files: that is what another user is for
	}
	if v.claim.Result != "succeeded" || string(v.logs["stdout"]) != fmt.Sprintf("uid %d\n", want) {
		t.Errorf("claim %+v, stdout %q, stderr %q", v.claim, v.logs["stdout"], v.logs["stderr"])
	}
}

// agentProcess is an agent in a process of its own, to be killed: its arguments
// are the service's address, the state folder and the executor's command.
func agentProcess(args []string) int {
	c, err := realConfig(args[0], args[1], args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	a, err := New(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := a.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestKilledAgentIsFollowedByAnother(t *testing.T) {
	proctest.Check(t)
	plane := newFakePlane(t)
	server := plane.serve(t)
	dir := filepath.Join(t.TempDir(), "state")
	argv := []string{"/bin/sh", "-c", "setsid sleep 600 & echo before the crash; sleep 600"}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(exe, append([]string{"agent", server.URL, dir}, argv...)...)
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	first := start()
	j := plane.submit(func(_ *domain.JobSpec, o *wire.Offer) { o.Clocks.StopSeconds = 1 })
	comesTrue(t, "the job runs and is heard", func() bool { return strings.Contains(string(plane.view(j).logs["stdout"]), "crash") })
	attempt := attemptDir(dir, j.offer.AttemptID, 1)
	if len(ofAttempt(attempt)) == 0 {
		t.Fatal("no process of the attempt is seen; the check below would prove nothing")
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	second := start()
	comesTrue(t, "the next agent completes it", func() bool { return plane.view(j).claim != nil })
	comesTrue(t, "its folder goes", func() bool { _, err := os.Stat(attempt); return os.IsNotExist(err) })
	if left := ofAttempt(attempt); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	v := plane.view(j)
	checkLogs(t, v)
	if v.claim.Result != "agent_restarted" || !v.claim.Launched || string(v.logs["stdout"]) != "before the crash\n" {
		t.Errorf("claim %+v, stdout %q", v.claim, v.logs["stdout"])
	}
	if len(v.facts) != 1 || v.facts[0].ProcessTreeReaped.Survivors != 0 || v.facts[0].ProcessTreeReaped.Confirmed {
		raw, _ := json.Marshal(v.facts)
		t.Errorf("facts %s: nobody saw the tree end", raw)
	}
	_ = second.Process.Signal(syscall.SIGKILL)
	_ = second.Wait()
}

// ofAttempt lists the living processes whose environment names the folder.
func ofAttempt(dir string) []string {
	var out []string
	for _, p := range isolation.AllProcesses() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Pid))
		if err == nil && !p.Dead() && strings.Contains(string(env), "="+dir+"/") {
			out = append(out, fmt.Sprint(p.Pid))
		}
	}
	return out
}
