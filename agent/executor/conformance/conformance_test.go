package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "kit":
			os.Exit(executor.Serve(kit))
		}
	}
	goleak.VerifyTestMain(m)
}

// kit is an executor on the Go kit that waits as long as it is told.
func kit(ctx context.Context, t executor.Task, c *executor.Control) executor.Outcome {
	if t.Action != "verify.x.free_space" {
		return executor.Outcome{Result: executor.InputsRejected}
	}
	var p struct {
		Settle int `json:"settle_seconds"`
	}
	if err := json.Unmarshal(t.Parameters, &p); err != nil {
		return executor.Outcome{Result: executor.InputsRejected, Message: err.Error()}
	}
	if err := c.Progress("settle", 0, 1, ""); err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	select {
	case <-ctx.Done():
		return executor.Outcome{Result: executor.TaskFailed, Message: "stopped"}
	case <-time.After(time.Duration(p.Settle) * time.Second):
		return executor.Outcome{Result: executor.Succeeded}
	}
}

const example = "../../../examples/executor-shell/"

func task(t *testing.T, file string) executor.Task {
	t.Helper()
	b, err := os.ReadFile(example + file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := executor.DecodeTask(b)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func check(t *testing.T, argv []string) conformance.Report {
	t.Helper()
	long := task(t, "task-long.json")
	r, err := conformance.Check(t.Context(), argv, conformance.Options{
		Shim: []string{"/proc/self/exe", "shim"},
		Task: task(t, "task.json"), LongTask: &long,
		Grace: 3 * time.Second, Timeout: 15 * time.Second, TempDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func verdicts(r conformance.Report) map[string]conformance.Verdict {
	out := map[string]conformance.Verdict{}
	for _, f := range r.Findings {
		out[f.Name] = f.Verdict
	}
	return out
}

func script(t *testing.T, change func(string) string) []string {
	t.Helper()
	b, err := os.ReadFile(example + "executor.sh")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "executor.sh")
	if err := os.WriteFile(path, []byte(change(string(b))), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func TestShellExampleConforms(t *testing.T) {
	r := check(t, script(t, func(s string) string { return s }))
	for _, f := range r.Findings {
		if f.Verdict != conformance.Passed {
			t.Errorf("%s: %s: %s", f.Name, f.Verdict, f.Explanation)
		}
	}
	if !r.Conforms || len(r.Findings) != 9 {
		t.Errorf("%+v", r)
	}
}

func TestKitConforms(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := check(t, []string{exe, "kit"})
	if !r.Conforms {
		t.Errorf("%+v", r)
	}
}

// Each fault is found by the check that is there for it, and by no other.
func TestFaultsAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		old, new string
		want     []string
	}{
		"tool holds the socket": {`sleep "${settle:-0}" 3>&- &`, `sleep "${settle:-0}" &`,
			[]string{"tools_do_not_inherit_the_control_socket"}},
		"TERM ignored": {"trap 'kill \"$tool\" 2>/dev/null; wait; end task_failed \"stopped by SIGTERM\" 143' TERM", "trap '' TERM",
			[]string{"sigterm_ends_it_within_grace"}},
		"leaves its tool": {`kill "$tool" 2>/dev/null; wait;`, ``,
			[]string{"sigterm_ends_it_within_grace"}},
		"every action taken": {`|| end inputs_rejected "this`, `|| : "this`,
			[]string{"unknown_action_is_rejected"}},
		"unknown message field": {`"type":"artifact",`, `"type":"artifact","size":1,`,
			[]string{"messages_are_well_formed"}},
		"file is missing": {`"path":"df.txt"`, `"path":"gone.txt"`,
			[]string{"announced_files_exist"}},
		"leaves a daemon": {"end succeeded", "sleep 50 3>&- >/dev/null 2>&1 &\nend succeeded",
			[]string{"nothing_is_left_running"}},
		"chokes on a big task": {`[ "$action" =`, `[ ${#task} -lt 9999 ] || exit 9; [ "$action" =`,
			[]string{"big_task_is_read"}},
		"waits for stdout": {`cat "$out/df.txt" 3>&-`, `trap '' PIPE; until echo 2>/dev/null; do sleep 0.1 3>&-; done`,
			[]string{"closed_stdout_does_not_hang_it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // nearly all of it is waiting
			r := check(t, script(t, func(s string) string {
				if !strings.Contains(s, tc.old) {
					t.Fatalf("the example no longer holds %q", tc.old)
				}
				return strings.Replace(s, tc.old, tc.new, 1)
			}))
			var failed []string
			for _, f := range r.Findings {
				if f.Verdict == conformance.Failed {
					failed = append(failed, f.Name)
				}
			}
			if diff := cmp.Diff(tc.want, failed); diff != "" || r.Conforms {
				t.Errorf("%s\n%+v", diff, r.Findings)
			}
		})
	}
}

func TestShortTaskIsNotObserved(t *testing.T) {
	r, err := conformance.Check(t.Context(), script(t, func(s string) string { return s }), conformance.Options{
		Shim: []string{"/proc/self/exe", "shim"}, Task: task(t, "task.json"), TempDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := verdicts(r)["sigterm_ends_it_within_grace"]; v == conformance.Failed || !r.Conforms {
		t.Errorf("%+v", r)
	}
}

func TestCheckOfNoExecutor(t *testing.T) {
	_, err := conformance.Check(t.Context(), []string{"/no/such/executor"}, conformance.Options{
		Shim: []string{"/proc/self/exe", "shim"}, Task: task(t, "task.json"), TempDir: t.TempDir(),
	})
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

func TestRunOnce(t *testing.T) {
	var out bytes.Buffer
	var kinds []string
	dir := filepath.Join(t.TempDir(), "attempt")
	r, err := conformance.RunOnce(t.Context(), script(t, func(s string) string { return s }), task(t, "task.json"),
		conformance.RunOptions{
			Shim: []string{"/proc/self/exe", "shim"}, Dir: dir, Stdout: &out,
			OnMessage: func(m executor.Message) { kinds = append(kinds, m.Kind()) },
		})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Ended || r.Conclusion.Result != executor.Succeeded || !r.Result.Reaped.Confirmed {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff([]string{"progress", "artifact", "evidence", "outcome"}, kinds); diff != "" {
		t.Error(diff)
	}
	report, err := os.ReadFile(filepath.Join(r.Folders.Output, "df.txt"))
	if err != nil || string(report) != out.String() {
		t.Errorf("%v: %q and %q", err, report, out.String())
	}
}

func TestRunOnceMakesAFolderAndReportsInJSON(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, err := conformance.RunOnce(t.Context(), script(t, func(s string) string { return s }), task(t, "task.json"),
		conformance.RunOptions{Shim: []string{"/proc/self/exe", "shim"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.Folders.Output, "df.txt")); err != nil {
		t.Error(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back conformance.RunReport
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" || !strings.Contains(string(b), `"type":"evidence"`) {
		t.Errorf("%s\n%s", diff, b)
	}
}

func TestRunOnceEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := conformance.RunOnce(ctx, script(t, func(s string) string { return s }), task(t, "task-long.json"),
		conformance.RunOptions{
			Shim: []string{"/proc/self/exe", "shim"}, Dir: filepath.Join(t.TempDir(), "attempt"),
			OnMessage: func(executor.Message) { cancel() },
		})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	if r.Result.Reason != shim.ReasonStop || !r.Result.Reaped.Confirmed || r.Ended {
		t.Errorf("%+v", r)
	}
}
