package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/packages"
)

// webPackage is a package's bytes and its reference.
func webPackage(t *testing.T, files ...string) ([]byte, packages.Reference) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("package.yaml", "name: web-base\nversion: 1.0.0\nplaybooks: [site.yml]\nroles: [nginx]\n")
	write("site.yml", "- hosts: all\n")
	write("roles/nginx/tasks/main.yml", "- debug: {msg: hello}\n")
	for _, name := range files {
		write("files/"+name, name)
	}
	var out bytes.Buffer
	b, err := packages.Build(dir, &out, packages.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), b.Reference
}

// stockPackage makes a package that jobs may be given.
func (w *world) stockPackage(files ...string) packages.Reference {
	w.t.Helper()
	data, ref := webPackage(w.t, files...)
	w.plane.put("package:"+ref.SHA256, data)
	return ref
}

// runs makes a job of a package.
func (w *world) runs(ref packages.Reference, inputs ...domain.ArtifactInput) *job {
	w.t.Helper()
	return w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
		s.JobType, s.Action = "ansible", "ansible.playbook.run"
		s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q,"playbook":"site.yml"}`, ref))
		s.Inputs.Artifacts = inputs
	})
}

// cacheOf lists what lies in the cache of packages, records left out.
func cacheOf(t *testing.T, stateDir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(stateDir, "packages"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			out = append(out, e.Name())
		}
	}
	return out
}

// Two at once share one download. Where the first is stopped, the second goes on by
// itself.
func TestPackageIsFetchedOnce(t *testing.T) {
	inFetchWorld(t, reads, func(t *testing.T, w *world) {
		ref := w.stockPackage()
		free := make(chan struct{})
		w.plane.stock["package:"+ref.SHA256].flow = heldUntil(free)
		w.begin()
		one, two := w.runs(ref), w.runs(ref)
		w.until("both have started", func() bool { return w.plane.view(one).started && w.plane.view(two).started })
		w.after(3 * time.Second)
		close(free)
		a, b := w.completed(one), w.completed(two)
		if a.claim.Result != "succeeded" || b.claim.Result != "succeeded" || len(w.plane.callsOf("get")) != 1 {
			t.Errorf("claims %+v and %+v, %d downloads", a.claim, b.claim, len(w.plane.callsOf("get")))
		}
	})
	inFetchWorld(t, reads, func(t *testing.T, w *world) {
		ref := w.stockPackage()
		free := make(chan struct{})
		w.plane.stock["package:"+ref.SHA256].flow = heldUntil(free)
		w.begin()
		one := w.runs(ref)
		w.until("one fetches", func() bool { return len(w.plane.callsOf("get")) == 1 })
		two := w.runs(ref)
		w.until("two has started", func() bool { return w.plane.view(two).started })
		w.after(3 * time.Second)
		w.plane.stopJob(one, domain.StopCancel)
		w.completed(one)
		w.until("two fetches", func() bool { return len(w.plane.callsOf("get")) == 2 })
		close(free)
		if v := w.completed(two); v.claim.Result != "succeeded" {
			t.Errorf("claim %+v", v.claim)
		}
	})
}

// What was changed in the cache is fetched anew, and not used; who runs with it
// keeps it.
func TestChangedPackageIsFetchedAnew(t *testing.T) {
	var runs chan struct{} // of the bubble
	first := true
	inFetchWorld(t, func(p *fakeProcess) executor.Exit {
		if first {
			first = false
			<-runs
		}
		return reads(p)
	}, func(t *testing.T, w *world) {
		runs = make(chan struct{})
		ref := w.stockPackage()
		w.begin()
		one := w.runs(ref)
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 1 })
		task := filepath.Join(w.config.StateDir, "packages", ref.SHA256, "roles/nginx/tasks/main.yml")
		if err := errors.Join(os.Chmod(task, 0o644), os.WriteFile(task, []byte("- debug: {msg: howdy}\n"), 0o600), os.Chmod(task, 0o444)); err != nil {
			t.Fatal(err)
		}
		v := w.completed(w.runs(ref))
		if !strings.Contains(string(v.logs["stdout"]), "hello") || events(t, v, "package_ready")[0]["cached"] != false {
			t.Errorf("stdout %s, events %s", v.logs["stdout"], v.logs["events"])
		}
		close(runs)
		if v := w.completed(one); !strings.Contains(string(v.logs["stdout"]), "howdy") {
			t.Errorf("it was taken away under the one that ran: %s", v.logs["stdout"])
		}
		if left := cacheOf(t, w.config.StateDir); len(left) != 1 || left[0] != ref.SHA256+".2" {
			t.Errorf("the cache has %v", left)
		}
		if !strings.Contains(w.log.String(), "not as it was unpacked") {
			t.Error("nobody is told")
		}
	})
}

// The least recently used go first, and never what is in use.
func TestCacheIsBounded(t *testing.T) {
	var runs chan struct{} // of the bubble
	inFetchWorld(t, func(p *fakeProcess) executor.Exit {
		if strings.Contains(string(p.config.Task.Parameters), "tags") {
			<-runs
		}
		return reads(p)
	}, func(t *testing.T, w *world) {
		runs = make(chan struct{})
		a, b, c := w.stockPackage("a"), w.stockPackage("b"), w.stockPackage("c")
		w.config.Fetch.CacheBytes = 300 // two of them
		w.begin()
		used := func(ref packages.Reference, cached bool) {
			t.Helper()
			v := w.completed(w.runs(ref))
			if got := events(t, v, "package_ready"); len(got) != 1 || got[0]["cached"] != cached {
				t.Errorf("package %s: %v", ref.SHA256[:4], got)
			}
			w.after(time.Second)
		}
		used(a, false)
		used(b, false)
		used(a, true)
		used(c, false) // b goes
		used(a, true)
		used(b, false) // c goes
		busy := w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
			s.JobType, s.Action = "ansible", "ansible.playbook.run"
			s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q,"tags":["x"]}`, a))
		})
		w.until("it runs", func() bool { return len(w.launcher.launched()) == 7 })
		w.after(time.Second)
		used(b, true)
		used(c, false) // b goes: a is in use
		used(b, false)
		close(runs)
		if v := w.completed(busy); v.claim.Result != "succeeded" {
			t.Errorf("claim %+v", v.claim)
		}
		if n := len(cacheOf(t, w.config.StateDir)); n != 2 {
			t.Errorf("%d packages are left", n)
		}
	})
}

// What a crash leaves of the cache is never taken for whole; what was whole is used
// by the next agent.
func TestCacheAfterACrash(t *testing.T) {
	inFetchWorld(t, reads, func(t *testing.T, w *world) {
		ref := w.stockPackage()
		w.begin()
		if v := w.completed(w.runs(ref)); v.claim.Result != "succeeded" {
			t.Fatalf("claim %+v", v.claim)
		}
		w.agent.Kill()
		if err := w.end(); err != nil {
			t.Fatal(err)
		}
		// Half of a folder, a record without its folder, a folder without its record, a
		// record that is cut off, one of another package, and what is neither.
		dir := filepath.Join(w.config.StateDir, "packages")
		digest := func(c string) string { return strings.Repeat(c, 32) }
		for name, text := range map[string]string{
			".new-1-" + digest("ab") + "/site.yml": "half", digest("ef") + "/site.yml": "no record",
			digest("ab") + ".json": `{"sha256":"` + digest("ab") + `","name":"web-base","tree":"x","bytes":1}`,
			digest("cd") + ".json": `{"sha256":"`, digest("cd") + "/site.yml": "cut", "strange": "",
			digest("01") + ".json": `{"sha256":"` + ref.SHA256 + `","name":"web-base","tree":"x","bytes":1}`, digest("01") + "/site.yml": "",
		} {
			p := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, digest("cd")), 0o555); err != nil {
			t.Fatal(err)
		}
		w.begin()
		if v := w.completed(w.runs(ref)); v.claim.Result != "succeeded" || events(t, v, "package_ready")[0]["cached"] != true {
			t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
		}
		if left := cacheOf(t, w.config.StateDir); len(left) != 1 || left[0] != ref.SHA256 {
			t.Errorf("the cache has %v", left)
		}
	})
}

// An agent that is killed while it fetches has launched nothing, and the next one
// says so and fetches anew.
func TestKilledWhileFetching(t *testing.T) {
	proctest.Check(t)
	plane := newFakePlane(t)
	data, ref := webPackage(t)
	plane.put("package:"+ref.SHA256, data)
	free := make(chan struct{})
	defer close(free)
	stock := plane.stock["package:"+ref.SHA256]
	stock.flow = heldUntil(free)
	server := plane.serve(t)
	config, err := realConfig(server.URL, filepath.Join(t.TempDir(), "state"), []string{"/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	emptyCache(t, config.StateDir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command(exe, "agent", server.URL, config.StateDir, "/bin/true")
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	submit := func() *job {
		return plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
			s.Action = "ansible.playbook.run"
			s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q}`, ref))
		})
	}
	first := start()
	j := submit()
	file := filepath.Join(attemptDir(config.StateDir, j.offer.AttemptID, 1), "package.tar")
	comesTrue(t, "half of the package is there", func() bool { info, err := os.Stat(file); return err == nil && info.Size() > 0 })
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	plane.with(func() { stock.flow = nil })
	second := start()
	v := finishes(t, config, plane, j)
	if v.claim.Result != "agent_restarted" || v.claim.Launched {
		t.Errorf("claim %+v", v.claim)
	}
	if left := cacheOf(t, config.StateDir); len(left) > 0 {
		t.Errorf("the cache has %v", left)
	}
	if v := finishes(t, config, plane, submit()); v.claim.Result != "succeeded" || events(t, v, "package_ready")[0]["cached"] != false {
		t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
	}
	_ = second.Process.Kill()
	_ = second.Wait()
}
