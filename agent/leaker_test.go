package agent

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// The leaker is an executor that shows its secrets in every way that it has. The
// action says how it ends.
const (
	leakAndExit   = "verify.x.leak_exit"
	leakAndFail   = "verify.x.leak_fail"
	leakAndCrash  = "verify.x.leak_crash"
	leakAndHang   = "verify.x.leak_hang"
	leakBinary    = "verify.x.leak_binary"
	storeSecrets  = "verify.x.store"
	storeAndHang  = "verify.x.store_hang"
	readsNothing  = "verify.x.reads_nothing"
	looksAtItself = "verify.x.looks"
)

func leaker(_ context.Context, t executor.Task, c *executor.Control) executor.Outcome {
	values := []string{}
	for _, name := range sortedKeys(t.Secrets) {
		b, err := os.ReadFile(t.Secrets[name])
		if err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		values = append(values, string(b))
	}
	switch t.Action {
	case readsNothing:
		return executor.Outcome{Result: executor.Succeeded}
	case storeSecrets, storeAndHang:
		return stores(t, c)
	case looksAtItself:
		return looks(t)
	case leakBinary:
		content := append([]byte{0x7f, 'E', 'L', 'F', 0}, strings.Join(values, "\x00")...)
		if err := os.WriteFile(filepath.Join(t.OutputDir, "core.bin"), content, 0o600); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
		_ = c.Artifact(executor.Artifact{Name: "core", ArtifactType: "dump", Path: "core.bin"})
		return executor.Outcome{Result: executor.Succeeded}
	}
	for i, v := range values {
		if err := leak(t, c, i, v); err != nil {
			return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
		}
	}
	all := strings.Join(values, " and ")
	if t.Action == leakAndHang {
		fmt.Println("ready and waiting")
	}
	// The beginning of a value is the last of the log.
	fmt.Print(values[0][:len(values[0])-1])
	switch t.Action {
	case leakAndFail:
		return executor.Outcome{Result: executor.TaskFailed, Message: "failed with " + all}
	case leakAndCrash:
		_ = unix.Kill(os.Getpid(), unix.SIGSEGV)
		time.Sleep(time.Minute)
	case leakAndHang:
		time.Sleep(time.Minute)
	}
	return executor.Outcome{Result: executor.Succeeded, Message: "succeeded with " + all}
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// encodings are the forms in which a leaker shows a value.
func encodings(v string) []string {
	quoted, _ := json.Marshal(v)
	return []string{
		v, base64.StdEncoding.EncodeToString([]byte("x" + v)), base64.URLEncoding.EncodeToString([]byte(v)), hex.EncodeToString([]byte(v)),
		url.QueryEscape(v), string(quoted), fmt.Sprintf("%q", v),
	}
}

// leak shows a value through every sink.
func leak(t executor.Task, c *executor.Control, n int, v string) error {
	forms := encodings(v)
	for i, f := range forms {
		fmt.Println("out", f)
		fmt.Fprintln(os.Stderr, "err", f)
		for _, half := range []string{f[:len(f)/2], f[len(f)/2:]} {
			fmt.Print(half)
			time.Sleep(time.Millisecond) // two writes
		}
		fmt.Println()
		id := fmt.Sprintf("%d-%d", n, i)
		name := clip(id+" "+oneLine(f), 200)
		file := filepath.Join(t.OutputDir, id+".txt")
		if err := os.WriteFile(file, []byte("a report\n"+f+"\n"), 0o600); err != nil {
			return err
		}
		detail, _ := json.Marshal(map[string]any{"found": f, "also": []string{f}})
		inline, _ := json.Marshal(map[string]string{f: "the key", "value": f})
		for _, m := range []executor.Message{
			{Progress: &executor.Progress{Phase: name, Message: "now " + f}},
			{Evidence: &executor.Evidence{Name: name, EvidenceType: "log_check", Result: "passed", ObservedAt: time.Now(), Capability: name, Source: name, Detail: detail}},
			{Artifact: &executor.Artifact{Name: name, ArtifactType: name, Path: id + ".txt", MediaType: name}},
			{Artifact: &executor.Artifact{Name: name + " gone", ArtifactType: "x", Path: "gone/" + id}},
			{Output: &executor.Output{Name: name + " output", ArtifactType: name, Inline: inline}},
			{Fact: &executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: name, InputDigest: name, Rules: []string{name}, Subject: f, Detail: detail}},
		} {
			// What is too long for the protocol is not said.
			_ = c.Send(m)
		}
	}
	// A broken message is quoted in a violation.
	_, err := fmt.Fprintf(os.NewFile(dupControl, "control"), `{"type":%q}`+"\n", v)
	return err
}

// dupControl is a copy of the control socket, for what the kit does not send.
const dupControl = 200

func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// stores leaves secret artifacts behind, and prints them once it is told to.
func stores(t executor.Task, c *executor.Control) executor.Outcome {
	failed := func(err error) executor.Outcome {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	var p struct{ Small, Binary, Large, Refused string }
	if err := json.Unmarshal(t.Parameters, &p); err != nil {
		return failed(err)
	}
	large := strings.Repeat("0123456789 filler of a large file\n", 40<<10)
	for name, content := range map[string]string{"small": p.Small, "binary": "\x00\xff" + p.Binary, "large": p.Large + "\n" + large, "refused": p.Refused} {
		if err := os.WriteFile(filepath.Join(t.SecretOutputDir, name), []byte(content), 0o600); err != nil {
			return failed(err)
		}
	}
	for _, name := range []string{"small", "binary", "large", "refused"} {
		if err := c.Artifact(executor.Artifact{Name: name, ArtifactType: "x", Path: name, Sensitivity: executor.Secret, MediaType: "text/x-" + name}); err != nil {
			return failed(err)
		}
	}
	// Outside its folder nothing secret is taken.
	if err := os.WriteFile(filepath.Join(t.OutputDir, "elsewhere"), []byte(p.Small), 0o600); err != nil {
		return failed(err)
	}
	_ = c.Artifact(executor.Artifact{Name: "elsewhere", ArtifactType: "x", Path: "elsewhere", Sensitivity: executor.Secret})
	fmt.Println("announced all of them")
	for !exists("go") {
		time.Sleep(5 * time.Millisecond)
	}
	for _, v := range []string{p.Small, "\x00\xff" + p.Binary, p.Large, p.Refused} {
		for i, f := range encodings(v) {
			if i < 4 || utf8.ValidString(v) { // the rest loses what is no text
				fmt.Println(f)
				_ = c.Progress("showing", 1, 2, f)
			}
		}
	}
	if t.Action == storeAndHang {
		fmt.Println("ready and waiting")
		time.Sleep(time.Minute)
	}
	return executor.Outcome{Result: executor.Succeeded, Message: p.Small}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// looks tells what the kernel would do with a dump, and what stands in its tree.
func looks(t executor.Task) executor.Outcome {
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return executor.Outcome{Result: executor.TaskFailed}
	}
	child := exec.Command("/bin/sh", "-c", "kill -SEGV $$")
	err := child.Run()
	status := syscall.WaitStatus(0)
	if x := (*exec.ExitError)(nil); errors.As(err, &x) {
		status, _ = x.Sys().(syscall.WaitStatus)
	}
	left, _ := filepath.Glob("*core*")
	fmt.Printf("limit %d %d, signal %d, dumped %v, files %v\n", core.Cur, core.Max, status.Signal(), status.CoreDump(), left)
	for name, path := range t.Secrets {
		info, err := os.Stat(path)
		content, _ := os.ReadFile(path)
		fields := map[string]string{}
		_ = json.Unmarshal(content, &fields)
		fmt.Printf("%s %s %v %v %q %d\n", name, filepath.Base(path), info.Mode(), err, sortedKeys(fields), len(content))
	}
	return executor.Outcome{Result: executor.Succeeded}
}

// serveLeaker is the leaker's main function.
func serveLeaker() int {
	if fd, err := unix.FcntlInt(executor.ControlFD, unix.F_DUPFD_CLOEXEC, dupControl); err != nil || fd != dupControl {
		return 3
	}
	return executor.Serve(leaker)
}
