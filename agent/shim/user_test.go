package shim_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// nobody is the uid and gid that every Linux has for this.
const nobody = 65534

// publicCopy copies the test binary to where every user can execute it.
func publicCopy(t *testing.T) string {
	t.Helper()
	src, err := os.Open(self(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(filepath.Dir(attemptDir(t)), "shim.test")
	dst, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// As root, the suite runs once more as an ordinary user; an ordinary user has
// run it already.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	binary := publicCopy(t)
	home := filepath.Join(filepath.Dir(binary), "tmp")
	if err := os.Mkdir(home, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run",
		"Kit|Sees|ExecFailure|StopEnds|OwnExit|Deadline|LostAgent|CleanUp|LostShim|StopBefore|StopRight|DoesNotGo|StoppedShim|ToTheShim|MeetsTheLimit|BoxesRun|AgentAndShim|TaskNames|NothingRuns",
		"-test.skip", "StopEndsTheTreeInBoxes|RunningInBoxes|LostShimEndsBoxes|LostAgentEndsBoxes")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + shim.DefaultPath, "HOME=" + home, "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Root can give the executor another user; nobody else can, and that is said
// before anything ran.
func TestExecutorAsAnotherUser(t *testing.T) {
	dir := attemptDir(t)
	c := base(dir, publicCopy(t), "act", "report")
	c.Credential = &shim.Credential{UID: nobody, GID: nobody}
	if os.Geteuid() != 0 {
		c.Credential.UID = 1
		if p, err := shim.Start(t.Context(), c); err == nil {
			r := p.Wait()
			p.Close()
			t.Errorf("an ordinary user became another one: %+v", r)
		}
		return
	}
	c.Limits = isolation.Limits{Processes: 500, AddressSpace: 8 << 30, OOMScoreAdj: 300}
	w := start(t, c)
	r := w.end()
	provedGone(t, dir, r)
	var in inside
	if err := json.Unmarshal([]byte(w.stdout.String()), &in); err != nil {
		t.Fatalf("%v: %s %+v", err, w.stderr.String(), r)
	}
	if in.UID != nobody || in.Status["Groups"] != "" || in.Status["CapEff"] != "0000000000000000" || in.OOM != "300" {
		t.Errorf("uid %d, groups %q, capabilities %s, oom %s", in.UID, in.Status["Groups"], in.Status["CapEff"], in.OOM)
	}
	if r.Applied.UID != nobody || r.Applied.Limits["nproc"] != 500 || r.Applied.Limits["as"] != 8<<30 {
		t.Errorf("applied %+v", r.Applied)
	}
	if s, err := os.Stat(dir); err != nil || s.Mode().Perm() != 0o711 || s.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("the attempt's folder: %v %v", s.Mode(), err)
	}
}

// The executor's user cannot end the shim, and a stop still reaches it all.
func TestHostileTreesOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			dir := attemptDir(t)
			c := base(dir, sh("kill -KILL $PPID 2>/dev/null && echo shot; "+script)...)
			c.Credential = &shim.Credential{UID: nobody, GID: nobody}
			w := start(t, c)
			w.says("ready")
			if strings.Contains(w.stdout.String(), "shot") {
				t.Error("the executor could send a signal to the shim")
			}
			if err := w.Stop(nil, "test"); err != nil {
				t.Fatal(err)
			}
			provedGone(t, dir, w.end())
		})
	}
}
