package executor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

func TestTaskComesBackAndHasNoNullLists(t *testing.T) {
	in := executor.Task{Protocol: executor.Protocol, AttemptID: "a", Parameters: json.RawMessage(`{"x":{"Y":1}}`),
		Resources: []executor.Resource{{ResourceID: "r", Binding: executor.Binding{Address: "127.0.0.1", Port: 5432}}}}
	b, err := executor.EncodeTask(in)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "null"); n != 1 || !strings.Contains(string(b), `"retry":null`) {
		t.Errorf("only retry may be null: %s", b)
	}
	got, err := executor.DecodeTask(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := executor.EncodeTask(got)
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("%v: %s\n%s", err, b, again)
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	whole, err := executor.EncodeTask(executor.Task{Protocol: 1, Resources: []executor.Resource{{ResourceID: "r"}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(string) string{
		"later protocol":       func(s string) string { return strings.Replace(s, `"protocol":1`, `"protocol":2`, 1) },
		"unknown field":        func(s string) string { return strings.Replace(s, `"action"`, `"actions"`, 1) },
		"unknown deep field":   func(s string) string { return strings.Replace(s, `"address"`, `"adress"`, 1) },
		"deep field's case":    func(s string) string { return strings.Replace(s, `"address"`, `"Address"`, 1) },
		"repeated deep field":  func(s string) string { return strings.Replace(s, `"port":0`, `"port":0,"port":1`, 1) },
		"something after":      func(s string) string { return s + "{}" },
		"empty":                func(string) string { return "" },
		"resources not a list": func(s string) string { return strings.Replace(s, `"resources":[`, `"resources":3,"x":[`, 1) },
	} {
		if _, err := executor.DecodeTask([]byte(change(string(whole)))); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	_, err = executor.DecodeTask([]byte(`{"protocol":2,"new":true}`))
	if !errors.Is(err, executor.ErrProtocol) {
		t.Errorf("a later protocol is named as %v", err)
	}
}

func TestControlRefusesWhatTheShimWould(t *testing.T) {
	var out bytes.Buffer
	c := executor.NewControl(&out)
	if err := c.Artifact(executor.Artifact{Name: "n", ArtifactType: "t", Path: "../x"}); err == nil {
		t.Error("a path that leaves the folder was sent")
	}
	if err := c.Output(executor.Output{Name: "n", ArtifactType: "t", Inline: json.RawMessage(`{"a":`)}); err == nil {
		t.Error("broken inline JSON was sent")
	}
	if err := c.Send(executor.Message{Outcome: &executor.Outcome{Result: executor.Succeeded}}); err != nil {
		t.Error(err)
	}
	if err := c.Progress("p", 0, 0, ""); !errors.Is(err, executor.ErrAfterOutcome) {
		t.Errorf("after the outcome: %v", err)
	}
	if got := out.String(); got != `{"result":"succeeded","type":"outcome"}`+"\n" {
		t.Errorf("sent %q", got)
	}
}

func TestOpenOutputStaysInside(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "plain"), []byte("p"), 0o600),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "linked")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := executor.OpenOutput(dir, "plain")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, path := range []string{"link", "linked/secret", "fifo", "folder", "gone", "../secret", outside, ""} {
		if f, err := executor.OpenOutput(dir, path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

func TestConclude(t *testing.T) {
	nine := 9
	claim := func(r executor.OutcomeResult, code *int) *executor.Outcome {
		return &executor.Outcome{Result: r, Code: code}
	}
	type end struct {
		Result executor.OutcomeResult
		Code   int
	}
	for name, tc := range map[string]struct {
		claimed    *executor.Outcome
		exit       executor.Exit
		violations int
		want       end
	}{
		"exit 0":                     {nil, executor.Exit{}, 0, end{executor.Succeeded, 0}},
		"exit 3":                     {nil, executor.Exit{Code: 3}, 0, end{executor.TaskFailed, 3}},
		"signal":                     {nil, executor.Exit{Signal: 9}, 0, end{executor.ExecutorCrashed, 137}},
		"exit 0, broken":             {nil, executor.Exit{}, 1, end{executor.ExecutorCrashed, 0}},
		"claim, broken":              {claim(executor.Succeeded, nil), executor.Exit{}, 1, end{executor.Succeeded, 0}},
		"claim of failure, exit 0":   {claim(executor.TargetUnreachable, nil), executor.Exit{}, 0, end{executor.TargetUnreachable, 0}},
		"claim with the tool's code": {claim(executor.TaskFailed, &nine), executor.Exit{Code: 1}, 0, end{executor.TaskFailed, 9}},
		"success, then exit 1":       {claim(executor.Succeeded, nil), executor.Exit{Code: 1}, 0, end{executor.ExecutorCrashed, 1}},
		"failure, then a signal":     {claim(executor.PolicyDenied, nil), executor.Exit{Signal: 11}, 0, end{executor.PolicyDenied, 139}},
	} {
		c := executor.Conclude(tc.claimed, tc.exit, tc.violations)
		if diff := cmp.Diff(tc.want, end{c.Result, c.Code}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
