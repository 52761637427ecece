package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// act is what the test binary does as an executor.
func act(name string) int {
	switch name {
	case "kit":
		return executor.Serve(kit)
	case "panic":
		return executor.Serve(func(context.Context, executor.Task, *executor.Control) executor.Outcome { panic("broken on purpose") })
	case "obey":
		return executor.Serve(func(ctx context.Context, _ executor.Task, _ *executor.Control) executor.Outcome {
			fmt.Println("ready")
			<-ctx.Done()
			return executor.Outcome{Result: executor.TaskFailed, Message: "asked to end"}
		})
	case "chatter":
		return executor.Serve(func(_ context.Context, _ executor.Task, c *executor.Control) executor.Outcome {
			for i := range int64(20_000) {
				if err := c.Progress("count", i, 0, ""); err != nil {
					return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
				}
			}
			return executor.Outcome{Result: executor.Succeeded}
		})
	case "longline":
		chunk := bytes.Repeat([]byte("x"), 1<<20)
		for range 64 {
			if _, err := os.Stdout.Write(chunk); err != nil {
				return 3
			}
		}
		return 0
	case "hoard":
		return hoard()
	case "talkative":
		return talkative()
	case "report":
		return reportSelf()
	default:
		return 99
	}
}

// hoard uses 200 MiB of memory.
func hoard() int {
	all := bytes.Repeat([]byte("x"), 200<<20)
	fmt.Println("survived", len(all))
	return 0
}

// talkative says as much as the protocol lets it, of what encoding may widen.
func talkative() int {
	await := func(name string) {
		for {
			if _, err := os.Stat(name); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	c := executor.NewControl(os.NewFile(executor.ControlFD, "control"))
	fmt.Println("ready")
	await("go")
	detail := json.RawMessage(`"` + strings.Repeat("<", 16_000) + `"`)
	for i := range executor.MaxEvidence {
		err := c.Evidence(executor.Evidence{Name: fmt.Sprint(i), EvidenceType: "log_check", Result: "passed", ObservedAt: time.Now(), Detail: detail})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	if err := os.WriteFile("said", nil, 0o600); err != nil {
		return 4
	}
	await("never")
	return 0
}

func kit(_ context.Context, t executor.Task, c *executor.Control) executor.Outcome {
	if err := os.WriteFile(filepath.Join(t.OutputDir, "r.txt"), []byte("result"), 0o600); err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	for _, err := range []error{
		c.Progress("work", 1, 2, "half"),
		c.Evidence(executor.Evidence{Name: "port", EvidenceType: "api_check", Result: "passed", ObservedAt: time.Now()}),
		c.Artifact(executor.Artifact{Name: "r", ArtifactType: "report", Path: "r.txt", Sensitivity: executor.Public}),
		c.Output(executor.Output{Name: "n", ArtifactType: "number", Inline: json.RawMessage("42")}),
		c.Fact(executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: "d", Rules: []string{"r1"}}),
	} {
		if err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
	}
	return executor.Outcome{Result: executor.Succeeded, RecommendedCategory: "success"}
}

// inside is what an executor sees of its own process.
type inside struct {
	Env    []string
	FDs    []string
	Cwd    string
	Status map[string]string
	Limits string
	OOM    string
	Pid    int
	Stdin  int
	UID    int
	Task   executor.Task
}

// reportSelf prints what it sees. It lists descriptors before it opens any.
func reportSelf() int {
	var in inside
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 3
	}
	for _, e := range d {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/fs/cgroup/") || strings.Contains(target, "eventpoll") || strings.Contains(target, "eventfd") {
			continue // of this program's own runtime
		}
		in.FDs = append(in.FDs, e.Name())
	}
	in.Env = os.Environ()
	in.Cwd, _ = os.Getwd()
	in.Pid, in.UID = os.Getpid(), os.Getuid()
	status, _ := os.ReadFile("/proc/self/status")
	in.Status = map[string]string{}
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		in.Status[k] = strings.TrimSpace(v)
	}
	limits, _ := os.ReadFile("/proc/self/limits")
	in.Limits = string(limits)
	oom, _ := os.ReadFile("/proc/self/oom_score_adj")
	in.OOM = strings.TrimSpace(string(oom))
	task, _ := io.ReadAll(os.Stdin)
	in.Stdin = len(task)
	in.Task, err = executor.DecodeTask(task)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	if err := json.NewEncoder(os.Stdout).Encode(in); err != nil {
		return 5
	}
	return 0
}
