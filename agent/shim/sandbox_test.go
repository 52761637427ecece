package shim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// sandboxed is base in a sandbox.
func sandboxed(t testing.TB, dir string, argv ...string) shim.Config {
	t.Helper()
	c := base(dir, argv...)
	c.Isolation = shim.Isolation{Level: isolation.LevelSandbox, Engine: isolationtest.Engine(t, isolation.Bubblewrap)}
	return c
}

func TestWhatTheExecutorSeesInASandbox(t *testing.T) {
	t.Setenv("EXECUTION_PLANE_TOKEN", "must not be inherited")
	dir := attemptDir(t)
	c := sandboxed(t, dir, self(t, "act", "report")...)
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
	if in.Cwd != f.Work || in.Task.WorkDir != f.Work || in.Task.OutputDir != f.Output || in.Task.Isolation != isolation.LevelSandbox {
		t.Errorf("folders: %q %q %q %q", in.Cwd, in.Task.WorkDir, in.Task.OutputDir, in.Task.Isolation)
	}
	for k, v := range map[string]string{"NoNewPrivs": "1", "Umask": "0077", "SigIgn": "0000000000000000", "SigBlk": "0000000000000000",
		"CapBnd": "0000000000000000", "CapEff": "0000000000000000", "Seccomp": "2"} {
		if in.Status[k] != v {
			t.Errorf("%s is %q, want %q", k, in.Status[k], v)
		}
	}
	if in.OOM != "500" || !strings.Contains(in.Limits, "300                  300") || r.Applied.Limits["nofile"] != 300 {
		t.Errorf("limits: oom %s, %s, %v", in.OOM, in.Limits, r.Applied.Limits)
	}
	if in.UID != os.Getuid() || in.Pid > 20 {
		t.Errorf("user %d, process %d", in.UID, in.Pid)
	}
}

// A user that the machine does not know has an entry inside, with its work folder as
// home: ssh and ansible do not run without one.
func TestToolsFindTheirUserInASandbox(t *testing.T) {
	dir := attemptDir(t)
	c := sandboxed(t, dir, sh(`cat /etc/passwd | grep "^executor:x:$(id -u):$(id -g):"; id -un; ssh -G -o BatchMode=yes somewhere | grep -c "^hostname somewhere"; touch "$HOME/a" "$TMPDIR/b" /tmp/c /dev/shm/d && echo written; ls /etc/ssl/private /etc/shadow /root /home 2>&1 | grep -c "No such"`)...)
	if os.Geteuid() == 0 {
		c.Credential, c.Shim[0] = &shim.Credential{UID: 64321, GID: 64321}, publicCopy(t)
	}
	w := start(t, c)
	r := w.end()
	want := "executor\n1\nwritten\n4\n"
	if got := w.stdout.String(); !strings.HasSuffix(got, want) || !strings.Contains(got, ":"+shim.Layout(dir).Work+":") {
		t.Errorf("%q, %q %+v", got, w.stderr.String(), r)
	}
}

// What the task names is seen at its own place and cannot be changed; what lies beside
// it is not seen.
func TestWhatATaskNamesIsSeenAndStaysAsItIs(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in()
		base := filepath.Dir(c.Dir)
		put := func(path string) string {
			t.Helper()
			path = filepath.Join(base, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("of "+filepath.Base(path)+"\n"), 0o644); err != nil { //nolint:gosec // for whoever runs
				t.Fatal(err)
			}
			return path
		}
		input, beside := put("inputs/one"), put("inputs/two")
		pkg, bundle := put("packages/abc/playbook.yml"), put("policy.tar")
		private, err := os.MkdirTemp("/dev/shm", "shim-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(private) })
		output, secret := filepath.Join(private, "output"), filepath.Join(private, "secrets", "s")
		if err := errors.Join(os.Mkdir(output, 0o700), os.Mkdir(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("of s\n"), 0o400)); err != nil {
			t.Fatal(err)
		}
		c.Argv = sh(fmt.Sprintf(`cat %[1]s %[2]s %[3]s %[4]s
			for f in %[1]s %[2]s %[3]s %[4]s %[7]s/new; do (echo x > $f) 2>/dev/null && echo "changed $f"; done
			cat %[5]s 2>/dev/null && echo seen; echo kept > %[6]s/file && cat %[6]s/file`, input, secret, pkg, bundle, beside, output, filepath.Dir(pkg)))
		c.Task.Inputs, c.Task.Secrets = map[string]string{"one": input}, map[string]string{"s": secret}
		c.Task.Packages, c.Task.Policy.Path = map[string]string{"abc": filepath.Dir(pkg)}, bundle
		c.Task.SecretOutputDir = output
		w := start(t, c)
		r := w.end()
		if got, want := w.stdout.String(), "of one\nof s\nof playbook.yml\nof policy.tar\nkept\n"; got != want {
			t.Errorf("%q, want %q; %s %+v", got, want, w.stderr.String(), r)
		}
		if b, err := os.ReadFile(filepath.Join(output, "file")); err != nil || string(b) != "kept\n" {
			t.Errorf("outside it is %q, %v", b, err)
		}
	})
}

// Images are run by their digest, from the store of the machine; nothing is fetched.
func TestPodmanRunsAnImageByItsDigest(t *testing.T) {
	if os.Geteuid() != 0 {
		return // an ordinary user needs subordinate users for it, which few have
	}
	engine := isolationtest.Engine(t, isolation.Podman)
	podman := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), engine.Path, args...).Output()
		if err != nil {
			t.Fatalf("podman %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	archive := filepath.Join(t.TempDir(), "rootfs.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", isolationtest.RootFS(t, self(t)[0]), "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	const name = "localhost/execution-plane-shim-test"
	podman("import", archive, name)
	t.Cleanup(func() { _ = exec.Command(engine.Path, "rmi", "--force", name).Run() })
	image := isolation.Image{Name: "n", Reference: name, Digest: podman("image", "inspect", "--format", "{{.Digest}}", name)}
	if err := shim.HasImage(t.Context(), engine, image); err != nil {
		t.Error(err)
	}
	other := image
	other.Digest = "sha256:" + strings.Repeat("0", 64)
	if err := shim.HasImage(t.Context(), engine, other); err == nil || !strings.Contains(err.Error(), "podman pull") {
		t.Errorf("of one that is not there: %v", err)
	}
	for _, i := range []isolation.Image{image, other} {
		dir := attemptDir(t)
		c := base(dir, sh("cat /etc/os-release; exit 3")...)
		c.Isolation = shim.Isolation{Level: isolation.LevelContainer, Engine: engine, Image: i, Network: isolation.NetworkNone}
		w := start(t, c)
		r := w.end()
		provedGone(t, dir, r)
		leavingsOf(t, dir).gone(t)
		switch {
		case i == image && (r.Code == nil || *r.Code != 3 || w.stdout.String() != "NAME=made-for-a-test\n" || r.Applied.ImageDigest != i.Digest || r.Applied.RootFS != ""):
			t.Errorf("%q %q %+v", w.stdout.String(), w.stderr.String(), r)
		case i == other && (r.Launched || r.Error == ""):
			t.Errorf("another image was run: %+v", r)
		}
	}
}
