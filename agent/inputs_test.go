package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/proctest"
	"github.com/platform-core/execution-plane-service/packages"
)

// inFetchWorld is inWorld with an executor for ansible jobs.
func inFetchWorld(t *testing.T, a act, test func(t *testing.T, w *world)) {
	inWorld(t, a, func(t *testing.T, w *world) {
		w.config.Executors["ansible"] = w.config.Executors["verification"]
		emptyCache(t, w.config.StateDir)
		test(t, w)
	})
}

// emptyCache removes, at the end, what an ordinary user's os.RemoveAll cannot.
func emptyCache(t *testing.T, stateDir string) {
	t.Cleanup(func() {
		if err := packages.Remove(filepath.Join(stateDir, "packages")); err != nil {
			t.Error(err)
		}
	})
}

// needs makes a job of input artifacts.
func (w *world) needs(inputs ...domain.ArtifactInput) *job {
	return w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) { s.Inputs.Artifacts = inputs })
}

func input(name, sha256 string) domain.ArtifactInput {
	return domain.ArtifactInput{Name: name, ArtifactRef: "artifact://operation/" + name, SHA256: sha256}
}

// reads says what the executor finds of what it was given, and succeeds.
func reads(p *fakeProcess) executor.Exit {
	for name, file := range p.config.Task.Inputs {
		info, err := os.Stat(file)
		content, rerr := os.ReadFile(file)
		fmt.Fprintf(p.out, "%s is %s %v %q %v\n", name, filepath.Base(file), info.Mode(), content, errors.Join(err, rerr))
	}
	for sum, dir := range p.config.Task.Packages {
		content, err := os.ReadFile(filepath.Join(dir, "roles/nginx/tasks/main.yml"))
		fmt.Fprintf(p.out, "package %s in %s %q %v\n", sum[:8], filepath.Base(dir)[:8], content, err)
	}
	return succeed(p)
}

// events gives the agent's own lines of one kind, without their time.
func events(t *testing.T, j job, kind string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(string(j.logs["events"])) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e["event"] == kind {
			delete(e, "time")
			out = append(out, e)
		}
	}
	return out
}

// What a job names is there when its executor begins, whole and read-only, and gone
// afterwards; the package stays for the next one.
func TestInputsAndPackageAreGiven(t *testing.T) {
	inFetchWorld(t, reads, func(t *testing.T, w *world) {
		plan := w.plane.put("a/plan.json", []byte(`{"a":1}`))
		hosts := w.plane.put("hosts", []byte("web1\n"))
		ref := w.stockPackage()
		w.begin()
		j := w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
			s.JobType, s.Action = "ansible", "ansible.playbook.run"
			s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q,"playbook":"site.yml"}`, ref))
			s.Inputs.Artifacts = []domain.ArtifactInput{input("a/plan.json", ""), input("hosts", hosts), input("", plan)}
			s.Controls.AllowedCommandsRef, s.Controls.OperationPolicyRef, s.Controls.Destructive = "policy/approved-commands", "policy/ops", true
		})
		v := w.completed(j)
		if v.claim.Result != "succeeded" || !v.claim.Launched {
			t.Fatalf("claim %+v, events %s", v.claim, v.logs["events"])
		}
		for _, line := range []string{
			`a/plan.json is 000-plan.json -r-------- "{\"a\":1}" <nil>`, `hosts is 001-hosts -r-------- "web1\n" <nil>`,
			fmt.Sprintf(`package %s in %[1]s "- debug: {msg: hello}\n" <nil>`, ref.SHA256[:8]),
		} {
			if !strings.Contains(string(v.logs["stdout"]), line) {
				t.Errorf("the executor does not see %s; it sees %s", line, v.logs["stdout"])
			}
		}
		task := w.processOf(j).config.Task
		if task.Isolation != "process" || task.Controls != (executor.Controls{AllowedCommandsRef: "policy/approved-commands", OperationPolicyRef: "policy/ops", Destructive: true}) || len(task.Inputs) != 2 {
			t.Errorf("task %+v", task)
		}
		want := []map[string]any{
			{"event": "input_fetched", "name": "a/plan.json", "sha256": plan, "bytes": 7.0},
			{"event": "input_fetched", "name": "hosts", "sha256": hosts, "bytes": 5.0},
		}
		if diff := cmp.Diff(want, events(t, v, "input_fetched")); diff != "" {
			t.Error(diff)
		}
		ready := []map[string]any{{"event": "package_ready", "sha256": ref.SHA256, "cached": false}}
		if diff := cmp.Diff(ready, events(t, v, "package_ready")); diff != "" {
			t.Error(diff)
		}
		if !strings.Contains(string(v.claim.Environment), plan) || !strings.Contains(string(v.claim.Environment), ref.SHA256) {
			t.Errorf("the environment does not name what was given: %s", v.claim.Environment)
		}
		v = w.completed(w.runs(ref))
		ready[0]["cached"] = true
		if diff := cmp.Diff(ready, events(t, v, "package_ready")); diff != "" {
			t.Error(diff)
		}
		if n := len(w.plane.callsOf("get")); n != 3 {
			t.Errorf("%d downloads, want 3", n)
		}
	})
}

// What cannot be had ends the attempt with its own code, with nothing launched.
func TestInputsThatAreRejected(t *testing.T) {
	other := hexSum([]byte("other"))
	good := []byte("good")
	for name, tc := range map[string]struct {
		stock func(w *world) *job
		text  string
	}{
		"unknown": {func(w *world) *job { return w.needs(input("x", "")) }, "the service does not give it"},
		"another digest": {func(w *world) *job {
			w.plane.put("x", good)
			return w.needs(input("x", other))
		}, "the job is for the bytes with SHA-256 " + other},
		"other bytes": {func(w *world) *job {
			w.plane.put("x", good)
			w.plane.stock["x"].data = []byte("gooD")
			return w.needs(input("x", ""))
		}, "are wanted"},
		"no digest": {func(w *world) *job {
			w.plane.put("x", good)
			w.plane.stock["x"].sha256 = ""
			return w.needs(input("x", ""))
		}, "names no SHA-256"},
		"removed from the store": {func(w *world) *job {
			w.plane.put("x", good)
			w.plane.stock["x"].gone = true
			return w.needs(input("x", ""))
		}, "does not have it any more"},
		"too large by the service's word": {func(w *world) *job {
			w.plane.put("x", good)
			w.plane.stock["x"].size = 1001
			return w.needs(input("x", ""))
		}, "exceeds the runner's limit of 1000 bytes"},
		"too large by the store's word": {func(w *world) *job {
			w.plane.put("x", make([]byte, 1001))
			return w.needs(input("x", ""))
		}, "exceeds the runner's limit of 1000 bytes"},
		"too large in all": {func(w *world) *job {
			w.plane.put("x", make([]byte, 900))
			w.plane.put("y", make([]byte, 700))
			return w.needs(input("x", ""), input("y", ""))
		}, "inputs exceed the runner's limit for all of them; 600 bytes are left"},
		"a package of other bytes": {func(w *world) *job {
			ref := w.stockPackage()
			w.plane.stock["package:"+ref.SHA256].data = []byte("other")
			return w.runs(ref)
		}, "are wanted"},
		"a package that was never pushed": {func(w *world) *job {
			return w.runs(packages.Reference{Name: "web-base", SHA256: other})
		}, "the service does not give it"},
		"a package that is none": {func(w *world) *job {
			sum := hexSum([]byte("no package"))
			w.plane.put("package:"+sum, []byte("no package"))
			return w.runs(packages.Reference{Name: "web-base", SHA256: sum})
		}, "(not_a_package)"},
		"a package of another name": {func(w *world) *job {
			ref := w.stockPackage()
			ref.Name = "db-base"
			return w.runs(ref)
		}, `it calls itself \"web-base\"`},
		"a package with too much in it": {func(w *world) *job {
			return w.runs(w.stockPackage("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"))
		}, "(too_many_entries)"},
	} {
		t.Run(name, func(t *testing.T) {
			inFetchWorld(t, reads, func(t *testing.T, w *world) {
				w.config.Fetch = FetchLimits{InputBytes: 1000, InputTotal: 1500, Package: packages.DefaultLimits()}
				w.config.Fetch.Package.Entries = 20
				w.begin()
				v := w.completed(tc.stock(w))
				if v.claim.Result != "inputs_rejected" || v.claim.Launched || v.claim.Code != nil {
					t.Errorf("claim %+v", v.claim)
				}
				if text := string(v.logs["events"]); !strings.Contains(text, tc.text) || !strings.Contains(text, "the executor was not started") {
					t.Errorf("the text does not say %q: %s", tc.text, text)
				}
				if n := len(w.launcher.launched()); n > 0 {
					t.Errorf("%d executors were launched", n)
				}
				if left := cacheOf(t, w.config.StateDir); len(left) > 0 && name != "a package of another name" {
					t.Errorf("left in the cache: %v", left)
				}
			})
		})
	}
}

// A service or store that is away is asked again, for as long as the patience lasts.
func TestStoreIsAway(t *testing.T) {
	broken := func(op string, until func(n int) bool) func(string, int) (error, error) {
		return func(o string, n int) (error, error) {
			if o == op && until(n) {
				return errWire, nil
			}
			return nil, nil
		}
	}
	for _, op := range []string{"input", "get"} {
		t.Run(op+" for a while", func(t *testing.T) {
			inFetchWorld(t, reads, func(t *testing.T, w *world) {
				w.plane.put("x", []byte("good"))
				w.plane.breakBy(broken(op, func(n int) bool { return n < 7 }))
				w.begin()
				if v := w.completed(w.needs(input("x", ""))); v.claim.Result != "succeeded" || len(w.plane.callsOf(op)) != 8 {
					t.Errorf("claim %+v after %d calls", v.claim, len(w.plane.callsOf(op)))
				}
			})
		})
		t.Run(op+" for ever", func(t *testing.T) {
			inFetchWorld(t, reads, func(t *testing.T, w *world) {
				w.plane.put("x", []byte("good"))
				w.plane.breakBy(broken(op, func(int) bool { return true }))
				w.begin()
				began := time.Now()
				v := w.completed(w.needs(input("x", "")))
				if took := time.Since(began); v.claim.Result != "storage_unavailable" || v.claim.Launched || took < DefaultFetchPatience || took > DefaultFetchPatience+15*time.Second {
					t.Errorf("claim %+v after %s", v.claim, took)
				}
			})
		})
	}
	t.Run("a download that breaks off", func(t *testing.T) {
		inFetchWorld(t, reads, func(t *testing.T, w *world) {
			tries := 0
			w.plane.put("x", bytes.Repeat([]byte("good"), 1000))
			w.plane.stock["x"].flow = func(_ context.Context, data []byte) io.Reader {
				if tries++; tries < 4 {
					return io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{errWire})
				}
				return bytes.NewReader(data)
			}
			w.begin()
			if v := w.completed(w.needs(input("x", ""))); v.claim.Result != "succeeded" || tries != 4 {
				t.Errorf("claim %+v after %d tries", v.claim, tries)
			}
		})
	})
	t.Run("a download that stalls", func(t *testing.T) {
		inFetchWorld(t, reads, func(t *testing.T, w *world) {
			w.plane.put("x", bytes.Repeat([]byte("good"), 1000))
			w.plane.stock["x"].flow = heldUntil(nil)
			w.begin()
			v := w.completed(w.needs(input("x", "")))
			if v.claim.Result != "storage_unavailable" || !strings.Contains(string(v.logs["events"]), errStalled.Error()) {
				t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
			}
		})
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Who ends a job need not wait for its inputs.
func TestFetchingEndsPromptly(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(w *world, j *job)
		want string // "": nothing is claimed
	}{
		"stop":       {func(w *world, j *job) { w.plane.stopJob(j, domain.StopCancel) }, domain.ClaimStopped},
		"lost lease": {func(w *world, j *job) { w.plane.with(func() { j.closed = true }) }, ""},
	} {
		for _, what := range []string{"input", "package", "package of another"} {
			t.Run(name+" of "+what, func(t *testing.T) {
				inFetchWorld(t, reads, func(t *testing.T, w *world) {
					ref := w.stockPackage()
					w.plane.put("x", []byte("good"))
					for _, s := range w.plane.stock {
						s.flow = heldUntil(nil)
					}
					w.begin()
					var j *job
					switch what {
					case "input":
						j = w.needs(input("x", ""))
					case "package":
						j = w.runs(ref)
					default:
						w.runs(ref)
						w.until("the first one fetches", func() bool { return len(w.plane.callsOf("get")) == 1 })
						j = w.runs(ref)
					}
					w.until("it has started", func() bool { return w.plane.view(j).started })
					w.after(5 * time.Second)
					began := time.Now()
					tc.end(w, j)
					if tc.want != "" {
						if v := w.completed(j); v.claim.Result != tc.want || v.claim.Launched {
							t.Errorf("claim %+v", v.claim)
						}
					} else {
						w.gone(j)
					}
					if took := time.Since(began); took > 4*time.Second {
						t.Errorf("it took %s", took)
					}
					if n := len(w.launcher.launched()); n > 0 {
						t.Errorf("%d executors were launched", n)
					}
				})
			})
		}
	}
}

// An executor under another user reads what it is given, and cannot write to it, to
// its folder, or to the package, nor let itself do so.
func TestInputsOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root has executors under another user
	}
	proctest.Check(t)
	plane := newFakePlane(t)
	plane.put("x", []byte("for the executor\n"))
	data, ref := webPackage(t)
	plane.put("package:"+ref.SHA256, data)
	base, err := os.MkdirTemp("", "inputs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = packages.Remove(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := realConfig(plane.serve(t).URL, filepath.Join(base, "state"), []string{"/bin/sh", "-c", `
task=$(cat)
file=${task#*'"x":"'}; file=${file%%\"*}
dir=${task#*'"` + ref.SHA256 + `":"'}; dir=${dir%%\"*}
id -u; cat "$file" "$dir/site.yml"
for p in "$file" "$(dirname "$file")" "$dir" "$dir/site.yml"; do chmod u+w "$p" 2>/dev/null && echo "chmod $p"; [ -w "$p" ] && echo "writable $p"; done
ls "$dir/.." 2>/dev/null; true`})
	if err != nil {
		t.Fatal(err)
	}
	c.Credential = &shim.Credential{UID: 65534, GID: 65534}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	v := finishes(t, c, plane, plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
		s.Action = "ansible.playbook.run"
		s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q}`, ref))
		s.Inputs.Artifacts = []domain.ArtifactInput{input("x", "")}
	}))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := string(v.logs["stdout"]); got != "65534\nfor the executor\n- hosts: all\n" {
		t.Errorf("stdout %q, stderr %s, events %s", got, v.logs["stderr"], v.logs["events"])
	}
}

// By HTTP: the redirect is not followed with the bearer token, names are escaped, and
// the executor reads what it was given.
func TestInputsOverHTTP(t *testing.T) {
	plane := newFakePlane(t)
	plane.put("a/plan.json", []byte(`{"a":1}`))
	data, ref := webPackage(t)
	plane.put("package:"+ref.SHA256, data)
	c := runReal(t, plane, []string{"/bin/sh", "-c", `
task=$(cat)
file=${task#*'"a/plan.json":"'}; file=${file%%\"*}
dir=${task#*'"` + ref.SHA256 + `":"'}; dir=${dir%%\"*}
cat "$file" "$dir/site.yml"`})
	emptyCache(t, c.StateDir)
	j := plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
		s.Action = "ansible.playbook.run"
		s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q}`, ref))
		s.Inputs.Artifacts = []domain.ArtifactInput{input("a/plan.json", "")}
	})
	v := finishes(t, c, plane, j)
	if got := string(v.logs["stdout"]); got != "{\"a\":1}- hosts: all\n" {
		t.Errorf("the executor read %q; stderr %s, events %s", got, v.logs["stderr"], v.logs["events"])
	}
	plane.with(func() { plane.stock["a/plan.json"].gone = true })
	v = finishes(t, c, plane, plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
		s.Inputs.Artifacts = []domain.ArtifactInput{input("a/plan.json", "")}
	}))
	if v.claim.Result != "inputs_rejected" || v.claim.Launched {
		t.Errorf("claim %+v", v.claim)
	}
}

// Where the runner's own disk takes nothing, nothing is launched.
func TestNoPlaceForInputs(t *testing.T) {
	for name, taken := range map[string]func(w *world, dir string) string{
		"input":   func(_ *world, dir string) string { return filepath.Join(dir, "inputs") },
		"package": func(_ *world, dir string) string { return filepath.Join(dir, "package.tar", "x") },
		"cache":   func(w *world, _ string) string { return filepath.Join(w.config.StateDir, "packages") },
	} {
		t.Run(name, func(t *testing.T) {
			inFetchWorld(t, reads, func(t *testing.T, w *world) {
				w.plane.put("x", []byte("good"))
				ref := w.stockPackage()
				w.begin()
				dir := ""
				w.plane.breakBy(func(op string, _ int) (error, error) {
					if op != "start" {
						return nil, nil
					}
					if name == "cache" {
						return nil, os.RemoveAll(taken(w, dir))
					}
					return nil, errors.Join(os.MkdirAll(filepath.Dir(taken(w, dir)), 0o755), os.WriteFile(taken(w, dir), nil, 0o600))
				})
				j := w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) {
					dir = attemptDir(w.config.StateDir, s.AttemptID, 1)
					if name == "input" {
						s.Inputs.Artifacts = []domain.ArtifactInput{input("x", "")}
						return
					}
					s.JobType, s.Action = "ansible", "ansible.playbook.run"
					s.Inputs.Parameters = json.RawMessage(fmt.Sprintf(`{"package":%q}`, ref))
				})
				v := w.completed(j)
				if v.claim.Result != "storage_unavailable" || v.claim.Launched || len(w.launcher.launched()) > 0 {
					t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
				}
			})
		})
	}
}
