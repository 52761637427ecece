package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// verbLeaker is an executor that shows its secrets in every way that it has, and
// then ends in the way that the job asks for.
const verbLeaker = "leaker"

// How a leaker ends, as the job's deadline_seconds in tenths, since that is the one
// number that the action's schema leaves free.
const (
	leakerExits   = 1
	leakerFails   = 2
	leakerCrashes = 3
	leakerHangs   = 4
	leakerBinary  = 5 // succeeds, and leaves a binary file that holds a secret
)

func leaker(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	var p struct {
		How float64 `json:"deadline_seconds"`
	}
	if err := json.Unmarshal(task.Parameters, &p); err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	values := map[string]string{}
	for name, path := range task.Secrets {
		b, err := os.ReadFile(path)
		if err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		values[name] = string(b)
	}
	for name, v := range values {
		if err := leak(task, control, name, v); err != nil {
			fmt.Fprintln(os.Stderr, "LEAKER:", err)
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
	}
	var all []string
	for _, v := range values {
		all = append(all, v)
	}
	text := strings.Join(all, " and ")
	switch int(p.How*10 + 0.5) {
	case leakerFails:
		return executor.Outcome{Result: executor.TaskFailed, Message: "it was " + text}
	case leakerCrashes:
		fmt.Print("unfinished ", text[:len(text)-3]) // a beginning without its end
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		<-ctx.Done()
	case leakerHangs:
		fmt.Print("unfinished ", text[:len(text)-3])
		if err := control.Progress("hangs", 1, 2, "with "+text); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		select {} // whatever it is told
	case leakerBinary:
		raw := append([]byte{0x7f, 'E', 'L', 'F', 0, 0, 0, 1}, text...)
		if err := os.WriteFile(filepath.Join(task.OutputDir, "dump.bin"), append(raw, 0, 0xff, 0xfe), 0o600); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		if err := control.Artifact(executor.Artifact{Name: "dump", ArtifactType: "core", Path: "dump.bin", MediaType: "application/octet-stream"}); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
	}
	return executor.Outcome{Result: executor.Succeeded, Message: "it was " + text}
}

// leak shows one secret.
func leak(task executor.Task, control *executor.Control, name, v string) error {
	quoted, err := json.Marshal(map[string]string{name: v})
	if err != nil {
		return err
	}
	lines := []string{
		"raw " + v, "go " + fmt.Sprintf("%q", v), "json " + string(quoted), "hex " + hex.EncodeToString([]byte(v)), "url " + url.QueryEscape(v),
		"base64 " + base64.StdEncoding.EncodeToString([]byte(v)), "basic " + base64.StdEncoding.EncodeToString([]byte("user:"+v)),
		"shifted " + base64.URLEncoding.EncodeToString([]byte("x"+v+"tail")), "colour \x1b[31m" + strings.Join(strings.SplitAfterN(v, "", 5), "\x1b[0m\x1b[31m") + "\x1b[0m",
		"PowerShell " + base64.StdEncoding.EncodeToString([]byte(huntForms(v)["utf-16"])),
	}
	for _, to := range []io.Writer{os.Stdout, os.Stderr} {
		for _, l := range lines {
			fmt.Fprintln(to, l)
		}
		for i := range len(v) { // a byte at a time
			if _, err := to.Write([]byte{v[i]}); err != nil {
				return err
			}
			if i == len(v)/2 {
				time.Sleep(1200 * time.Millisecond) // longer than anything that flushes
			}
		}
		fmt.Fprintln(to)
	}
	if err := os.WriteFile(filepath.Join(task.OutputDir, name+".txt"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(task.WorkDir, "left-behind"), []byte(v), 0o600); err != nil {
		return err
	}
	detail, err := json.Marshal(map[string]any{"seen": v, "list": lines})
	if err != nil {
		return err
	}
	say := []func() error{
		func() error { return control.Progress("reads", 1, 2, "read "+v) },
		func() error {
			return control.Artifact(executor.Artifact{Name: name + "-text", ArtifactType: "report", Path: name + ".txt", MediaType: "text/plain"})
		},
		func() error {
			return control.Evidence(executor.Evidence{Name: "seen-" + name, EvidenceType: "log_check", Result: "passed", ObservedAt: time.Now().UTC(), Source: "stdout", Detail: detail})
		},
		func() error {
			return control.Output(executor.Output{Name: name + "-value", ArtifactType: "value", Inline: quoted})
		},
	}
	for _, s := range say {
		if err := s(); err != nil {
			return fmt.Errorf("say something of %s: %w", name, err)
		}
	}
	return nil
}
