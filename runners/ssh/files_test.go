package ssh

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

func exists(h *sshtest.Host, name string) bool {
	_, err := os.Lstat(h.Path(name))
	return err == nil
}

func writeFile(t testing.TB, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// entries lists a folder of the host.
func entries(t *testing.T, h *sshtest.Host, dir string) string {
	t.Helper()
	list, err := os.ReadDir(h.Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func link(t *testing.T, h *sshtest.Host, to, name string) {
	t.Helper()
	if err := os.Symlink(to, h.Path(name)); err != nil {
		t.Fatal(err)
	}
}

func TestUpload(t *testing.T) {
	for _, user := range sshtest.Users() {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, sshtest.Options{User: user, Files: map[string]string{"/srv/app/conf.d/old": "old"}})
			content := strings.Repeat("0123456789", 100_000)
			s.inputs = map[string]string{"in": content}
			put := func(path string, overwrite bool) *ran {
				return s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": path, "input": "in", "overwrite": overwrite})
			}
			r := put("conf.d/new", false)
			if r.ends() != "succeeded success" || r.evidence() != "upload passed" || s.host.Read("/srv/app/conf.d/new") != content {
				t.Errorf("%+v, %s", r.Outcome, r.evidence())
			}
			if info, err := os.Stat(s.host.Path("/srv/app/conf.d/new")); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			up := r.report(t).Upload
			if up == nil || up.Before.Exists || up.After.SHA256 != digestOf([]byte(content)).SHA256 || up.After.Mode != "0640" || !up.Changed || up.Size != 1_000_000 {
				t.Errorf("result %+v", up)
			}
			if r = put("conf.d/new", false); r.Result != executor.Succeeded || r.report(t).Upload.Changed {
				t.Errorf("the same again: %+v, %+v", r.Outcome, r.report(t).Upload)
			}
			if r = put("conf.d/old", false); r.ends() != "task_failed unknown" || r.evidence() != "upload failed" || s.host.Read("/srv/app/conf.d/old") != "old" {
				t.Errorf("without overwrite: %+v, %s", r.Outcome, r.evidence())
			}
			r = put("conf.d/old", true)
			if r.Result != executor.Succeeded || s.host.Read("/srv/app/conf.d/old") != content || r.report(t).Upload.Before.SHA256 != digestOf([]byte("old")).SHA256 {
				t.Errorf("with overwrite: %+v", r.Outcome)
			}
			if got := entries(t, s.host, "/srv/app/conf.d"); got != "new old" {
				t.Errorf("the folder holds %s", got)
			}
		})
	}
}

// Links on the host lead where they like; the root is left by none of them.
func TestRootConfinement(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Files: map[string]string{"/srv/app/real/x": "inside", "/srv/other/secret": "outside", "/srv/apple/x": "outside"}})
	h := s.host
	link(t, h, "/srv/other", "/srv/app/out")
	link(t, h, "../other", "/srv/app/relative")
	link(t, h, "real", "/srv/app/in")
	link(t, h, "/srv/other/secret", "/srv/app/file")
	link(t, h, "/srv/other/new", "/srv/app/dangling")
	link(t, h, "../apple", "/srv/app/sibling")
	link(t, h, "real/x", "/srv/app/good")
	s.inputs = map[string]string{"in": "new"}
	for path, want := range map[string]string{
		"out/secret": "policy_denied policy_error", "relative/new": "policy_denied policy_error", "sibling/x": "policy_denied policy_error",
		"file": "policy_denied policy_error", "dangling": "policy_denied policy_error", "good": "policy_denied policy_error",
		"in/new": "succeeded success", "none/new": "task_failed unknown", "real": "task_failed unknown", "real/x/y": "task_failed unknown",
		"-rf": "succeeded success", "..%2fbin": "succeeded success",
	} {
		r := s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": path, "input": "in", "overwrite": true})
		if r.ends() != want {
			t.Errorf("upload to %s: %+v", path, r.Outcome)
		}
	}
	for path, want := range map[string]string{
		"out/secret": "policy_denied policy_error", "file": "policy_denied policy_error", "sibling/x": "policy_denied policy_error",
		"good": "succeeded success", "in/x": "succeeded success", "none": "task_failed unknown", "real": "task_failed unknown",
	} {
		r := s.run(runners.SSHFileDownload, map[string]any{"file": "config", "path": path, "artifact": "got"})
		if r.ends() != want {
			t.Errorf("download of %s: %+v", path, r.Outcome)
		}
		if r.Result != executor.Succeeded {
			if _, err := os.Stat(filepath.Join(r.task.OutputDir, "got")); err == nil {
				t.Errorf("download of %s: something was got", path)
			}
		}
	}
	if h.Read("/srv/other/secret") != "outside" || entries(t, h, "/srv/other") != "secret" || h.Read("/srv/apple/x") != "outside" {
		t.Error("something outside of the root was changed")
	}
}

func TestUploadsThatFail(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{User: sshtest.Tester, SmallBytes: 256 << 10, Files: map[string]string{"/srv/app/x": ""}})
	s.inputs = map[string]string{"in": strings.Repeat("x", 1_000_000), "big": strings.Repeat("x", 2_000_001)}
	for name, tc := range map[string]struct {
		file, path, input, want, message string
	}{
		"disk full":         {"small", "new", "in", "task_failed infrastructure_error", "full"},
		"bigger than grant": {"config", "new", "big", "policy_denied policy_error", "2000000"},
		"no such input":     {"config", "new", "none", "inputs_rejected validation_error", "none"},
		"no root":           {"missing", "new", "in", "policy_denied policy_error", ""},
		"root not on host":  {"missing", "new", "in", "policy_denied policy_error", ""},
	} {
		r := s.run(runners.SSHFileUpload, map[string]any{"file": tc.file, "path": tc.path, "input": tc.input})
		if r.ends() != tc.want || !strings.Contains(r.Message, tc.message) {
			t.Errorf("%s: %+v", name, r.Outcome)
		}
	}
	s.inputs["in"] = "tiny"
	if r := s.run(runners.SSHFileUpload, map[string]any{"file": "missing", "path": "new", "input": "in"}); r.ends() != "task_failed unknown" || r.evidence() != "upload failed" {
		t.Errorf("a root that is not there: %+v", r.Outcome)
	}
	// The partial file is gone: there is room again.
	if r := s.run(runners.SSHFileUpload, map[string]any{"file": "small", "path": "new", "input": "in"}); r.Result != executor.Succeeded {
		t.Errorf("after a full disk: %+v", r.Outcome)
	}
	if os.Geteuid() == 0 { // a folder of another user
		if err := os.Chown(s.host.Path("/srv/app"), 0, 0); err != nil {
			t.Fatal(err)
		}
	} else {
		if err := os.Chmod(s.host.Path("/srv/app"), 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(s.host.Path("/srv/app"), 0o700) })
	}
	if r := s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": "new", "input": "in"}); r.ends() != "task_failed policy_error" {
		t.Errorf("a folder that may not be written: %+v", r.Outcome)
	}
}

// Told to stop, or cut off, in the middle of a file.
func TestUploadThatIsStopped(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("x", 2_000_000)
	for name, tc := range map[string]struct {
		stop func(*sshtest.Link, context.CancelFunc)
		want string
	}{
		"told to stop": {func(_ *sshtest.Link, cancel context.CancelFunc) { cancel() }, "task_failed unknown"},
		"cut off":      {func(l *sshtest.Link, _ context.CancelFunc) { l.Cut() }, "target_unreachable infrastructure_error"},
	} {
		h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/app/keep": ""}})
		// Slow enough that a part is seen on the host.
		l := sshtest.NewLink(t, h, sshtest.Faults{})
		ctx, cancel := context.WithCancel(t.Context())
		s := &scene{t: t, host: h, bundle: bundle(t, l.KnownHosts...), ctx: ctx, inputs: map[string]string{"in": content}}
		s.change = func(k *executor.Task) { k.Resources[0].Binding.Port = l.Port }
		done := make(chan struct{})
		go func() {
			defer close(done)
			eventually(t, "a part on the host", func() bool { return strings.Contains(entries(t, h, "/srv/app"), ".part") })
			tc.stop(l, cancel)
		}()
		l.Pace(20 * time.Millisecond)
		r := s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": "new", "input": "in"})
		<-done
		cancel()
		if r.ends() != tc.want || r.evidence() != "upload inconclusive" || exists(h, "/srv/app/new") {
			t.Errorf("%s: %+v, %s", name, r.Outcome, r.evidence())
		}
		if got := entries(t, h, "/srv/app"); name == "told to stop" && got != "keep" {
			t.Errorf("%s: left on the host: %s", name, got)
		}
		if name == "cut off" && !strings.Contains(r.Message, ".part") {
			t.Errorf("%s: it is not said what may be left: %s", name, r.Message)
		}
	}
}

// A host whose file service does not start.
func TestNoFileService(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Config: []string{"Subsystem sftp /bin/false"}, Files: map[string]string{"/srv/app/log": "x"}})
	s.inputs = map[string]string{"in": "x"}
	if r := s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": "new", "input": "in"}); r.ends() != "task_failed infrastructure_error" || !strings.Contains(r.Message, "sftp") {
		t.Errorf("%+v", r.Outcome)
	}
	if r := s.run(runners.SSHFileDownload, map[string]any{"file": "config", "path": "log", "artifact": "x"}); r.ends() != "task_failed infrastructure_error" {
		t.Errorf("%+v", r.Outcome)
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Files: map[string]string{"/srv/app/log": "some lines\n", "/srv/app/big": strings.Repeat("x", 11)}})
	got := func(file, path, sensitivity string) *ran {
		return s.run(runners.SSHFileDownload, map[string]any{"file": file, "path": path, "artifact": "app.log", "sensitivity": sensitivity})
	}
	r := got("config", "log", "public")
	a := r.messages["artifact"][0].Artifact
	if r.Result != executor.Succeeded || r.evidence() != "download passed" || r.read(t, "app.log") != "some lines\n" || a.Name != "app.log" || a.Sensitivity != executor.Public {
		t.Errorf("%+v, %+v", r.Outcome, a)
	}
	if rep := r.report(t).Got; rep.SHA256 != digestOf([]byte("some lines\n")).SHA256 || rep.Size != 11 {
		t.Errorf("result %+v", rep)
	}
	r = got("config", "log", "secret")
	if data, err := os.ReadFile(filepath.Join(r.task.SecretOutputDir, "app.log")); r.Result != executor.Succeeded || err != nil || string(data) != "some lines\n" {
		t.Errorf("secret: %+v, %v", r.Outcome, err)
	}
	if _, err := os.Stat(filepath.Join(r.task.OutputDir, "app.log")); err == nil {
		t.Error("a secret file stands in the plain output folder")
	}
	if r = got("tiny", "big", "internal"); r.ends() != "policy_denied policy_error" {
		t.Errorf("too big: %+v", r.Outcome)
	}
	if err := syscall.Mkfifo(s.host.Path("/srv/app/pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	if r = got("config", "pipe", "internal"); r.ends() != "task_failed unknown" || r.evidence() != "download failed" {
		t.Errorf("a pipe: %+v", r.Outcome)
	}
	s.change = func(k *executor.Task) { k.SecretOutputDir = "" }
	if r = got("config", "log", "secret"); r.ends() != "inputs_rejected validation_error" {
		t.Errorf("no place for secrets: %+v", r.Outcome)
	}
}

// A file that comes to be meanwhile stays, and the report says what is there, not what
// would have been.
func TestUploadThatLosesARace(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Files: map[string]string{"/srv/app/keep": ""}})
	l := sshtest.NewLink(t, h, sshtest.Faults{})
	s := &scene{t: t, host: h, bundle: bundle(t, l.KnownHosts...), ctx: t.Context(), inputs: map[string]string{"in": strings.Repeat("x", 1_000_000)}}
	s.change = func(k *executor.Task) { k.Resources[0].Binding.Port = l.Port }
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, "a part on the host", func() bool { return strings.Contains(entries(t, h, "/srv/app"), ".part") })
		h.Write("/srv/app/new", "theirs", 0o600)
	}()
	l.Pace(10 * time.Millisecond)
	r := s.run(runners.SSHFileUpload, map[string]any{"file": "config", "path": "new", "input": "in"})
	<-done
	if r.ends() != "task_failed unknown" || r.evidence() != "upload failed" || h.Read("/srv/app/new") != "theirs" || entries(t, h, "/srv/app") != "keep new" {
		t.Errorf("%+v, %s, %s", r.Outcome, r.evidence(), entries(t, h, "/srv/app"))
	}
	if up := r.report(t).Upload; up.Changed || up.After.SHA256 != digestOf([]byte("theirs")).SHA256 {
		t.Errorf("%+v", up)
	}
}
