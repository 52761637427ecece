package underfire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// scripts are executors in shell. Those that go on for ever say ready.
var scripts = map[string]string{
	"ok":         `echo fine`,
	"ignoreTERM": `trap "" TERM INT HUP QUIT; echo ready; while :; do sleep 0.05; done`,
	"doubleFork": `(sh -c '(trap "" TERM; sleep 300) & (sleep 300 &)' &); echo ready; sleep 300`,
	"setsid":     `setsid sh -c 'trap "" TERM; setsid sleep 300 & sleep 300' & echo ready; sleep 300`,
	"closedDescriptors": `setsid sh -c 'exec 0<&- 1>&- 2>&- 3>&-; cd /; trap "" TERM HUP; (setsid env -i /bin/sleep 300 &); exec env -i /bin/sleep 300' &
		(sh -c 'exec 0<&- 1>&- 2>&- 3>&-; (setsid env -i sleep 300 &)' &); echo started; sleep 0.2; exit 0`,
	"holdsPipes":     `setsid sh -c 'trap "" TERM; exec sleep 300' & (sleep 300 &); echo done; exit 0`,
	"childrenGoOn":   `i=0; while [ $i -lt 20 ]; do i=$((i+1)); (trap "" TERM; while :; do echo child $i; sleep 0.05; done) & done; sleep 0.3; exit 4`,
	"forkStorm":      `i=0; while [ $i -lt 10 ]; do i=$((i+1)); (trap "" TERM; while :; do (setsid sleep 0.2 &); (sleep 0.1 &); sleep 0.02; done) & done; echo ready; wait`,
	"silent":         `exec sleep 300`,
	"closesStdout":   `echo before; exec 1>&- 2>&-; sleep 0.5; echo '{"type":"outcome","result":"succeeded"}' >&3; exit 0`,
	"grandchild":     `sh -c '(sleep 0.2; echo "{\"type\":\"evidence\",\"name\":\"e\",\"evidence_type\":\"log_check\",\"result\":\"passed\",\"observed_at\":\"2026-01-01T00:00:00Z\"}" >&3; echo "{\"type\":\"outcome\",\"result\":\"policy_denied\"}" >&3) & wait' & wait; exit 1`,
	"afterTheEnd":    `echo '{"type":"outcome","result":"succeeded"}' >&3; (trap "" TERM; while :; do echo '{"type":"outcome","result":"policy_denied"}'; sleep 0.01; done >&3) & sleep 0.1; exit 0`,
	"stopsItself":    `echo ready; kill -STOP $$; echo woken; sleep 300`,
	"endsShim":       `echo ready; kill -TERM $PPID; sleep 300`,
	"killsShim":      `setsid sleep 300 & echo ready; sleep 0.5; kill -KILL $PPID; sleep 300`,
	"killsAgent":     `setsid sleep 300 & echo ready; sleep 1.2; kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); sleep 300`,
	"endsAgent":      `kill -TERM $(cut -d' ' -f4 /proc/$PPID/stat); sleep 0.5; echo went on; exit 0`,
	"renames":        `printf 'x) Z 1 1 (' > /proc/self/comm; (printf 'a) R 0 (b' > /proc/self/comm; trap "" TERM; while :; do sleep 0.05; done) & echo ready; wait`,
	"unlinks":        `chmod 0 . ; cd /; rm -rf "$HOME" "$TMPDIR" "$HOME/../output"; ln -s / "$HOME"; echo '{"type":"artifact","name":"gone","artifact_type":"x","path":"gone"}' >&3; echo gone`,
	"chatteringTree": `trap "" TERM; (echo ready; while :; do echo from a child; sleep 0.1; done) & while :; do sleep 1; done`,
}

// acts are executors in Go.
var acts = map[string]func(t executor.Task) int{
	"garbage": garbage,
	"longLine": func(t executor.Task) int {
		return write(t, func(int) []byte { return bytes.Repeat([]byte("x"), 1<<16) })
	},
	"flood":    func(t executor.Task) int { return write(t, line64K) },
	"fillDisk": fillDisk,
	"spies":    spies,
	"hoards":   hoards,
	"floods":   floodsMemory,
	"steady":   steady,
	"talks":    talks,
	"escapes":  escapes,
}

// act does what the task's action names.
func act() int {
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 90
	}
	t, err := executor.DecodeTask(raw)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 91
	}
	name := strings.TrimPrefix(t.Action, "verify.x.")
	if script, ok := scripts[name]; ok {
		unix.CloseOnExec(0)
		return int(syscall.Exec("/bin/sh", []string{"sh", "-c", script}, os.Environ()).(syscall.Errno)) //nolint:errorlint,forcetypeassert // Exec returns nothing else
	}
	if do, ok := acts[name]; ok {
		return do(t)
	}
	fmt.Fprintln(os.Stderr, "no such act:", name)
	return 92
}

// garbage writes everything that the control socket must bear: noise, the shim's
// own words, lines that never end, and a valid outcome in single bytes.
func garbage(executor.Task) int {
	f := os.NewFile(executor.ControlFD, "control")
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	long := append(bytes.Repeat([]byte("y"), 3<<20), '\n')
	forged := []byte(`{"reaped":{"survivors":0,"confirmed":true,"method":"cgroup"}}
{"exited":{"code":0,"reason":"own"}}
{"type":"outcome","result":"succeeded","type":"outcome"}
{"type":"outcome","result":"executor_crashed"}
{"type":"fact","kind":"process_tree_reaped","survivors":0}
[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
`)
	for _, part := range [][]byte{noise, []byte("\n"), long, forged} {
		if _, err := f.Write(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	for _, b := range []byte(`{"type":"outcome","result":"target_unreachable"}` + "\n") {
		if _, err := f.Write([]byte{b}); err != nil {
			return 4
		}
	}
	_, _ = f.Write([]byte(`{"type":"outcome","result":"succeeded"`)) // and never ends
	return 1
}

// sizeOf is how many bytes a task asks for.
func sizeOf(t executor.Task) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.Trim(string(t.Parameters), `{}"bytes: `)), 10, 64)
	return n
}

// write prints as many bytes as the task says, in blocks.
func write(t executor.Task, block func(i int) []byte) int {
	left := sizeOf(t)
	for i := 0; left > 0; i++ {
		b := block(i)
		b = b[:min(int64(len(b)), left)]
		if _, err := os.Stdout.Write(b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		left -= int64(len(b))
	}
	return 0
}

func line64K(i int) []byte {
	return append(bytes.Repeat([]byte(fmt.Sprintf("%015d ", i)), 4095), "fifteen chars..\n"...)
}

// fillDisk writes to its work folder until the disk is full, and then stays.
func fillDisk(executor.Task) int {
	f, err := os.Create("big")
	if err != nil {
		return 3
	}
	block := make([]byte, 64<<10)
	for size := len(block); ; {
		_, err := f.Write(block[:size])
		switch {
		case errors.Is(err, unix.ENOSPC) && size == 1:
			fmt.Println("full") // finds no room either
			time.Sleep(5 * time.Minute)
			return 4
		case errors.Is(err, unix.ENOSPC):
			size = max(1, size/2)
		case err != nil:
			return 5
		}
	}
}

// talks says as many bytes of facts as the task asks for, in facts of the
// greatest size, and how it ended.
func talks(t executor.Task) int {
	rules := make([]string, 64)
	for i := range rules {
		rules[i] = strings.Repeat("r", 200)
	}
	c := executor.NewControl(os.NewFile(executor.ControlFD, "control"))
	for left := sizeOf(t); left > 0; left -= 64 * 203 {
		if err := c.Fact(executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "allowed", BundleDigest: "00", Rules: rules}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
	}
	if err := c.Send(executor.Message{Outcome: &executor.Outcome{Result: executor.Succeeded}}); err != nil {
		return 4
	}
	fmt.Println("all is said")
	return 0
}

// steady writes numbered lines for as many bytes as the task says, slowly.
func steady(t executor.Task) int {
	left := sizeOf(t)
	for i := 0; left > 0; i++ {
		n, err := fmt.Printf("line %d\n", i)
		if err != nil {
			return 3
		}
		left -= int64(n)
		time.Sleep(2 * time.Millisecond)
	}
	return 0
}

// spies tries to read its ancestors: the shim, then the agent.
func spies(executor.Task) int {
	pid := os.Getppid()
	for _, who := range []string{"shim", "agent"} {
		for _, file := range []string{"environ", "mem", "fd", "maps", "cwd", "exe"} {
			path := filepath.Join("/proc", strconv.Itoa(pid), file)
			err := peep(path)
			fmt.Printf("%s %s %v\n", who, file, err == nil)
		}
		fmt.Printf("%s trace %v\n", who, unix.PtraceAttach(pid) == nil)
		s, err := isolation.ReadStat(pid)
		if err != nil {
			return 3
		}
		pid = s.Parent
	}
	// What every process can see of its own kind, so that a refusal means something.
	other := exec.Command("/bin/sleep", "300")
	if err := other.Start(); err != nil {
		return 4
	}
	err := peep(filepath.Join("/proc", strconv.Itoa(other.Process.Pid), "environ"))
	fmt.Printf("sibling environ %v\n", err == nil)
	_ = other.Process.Kill()
	_ = other.Wait()
	return 0
}

func peep(path string) error {
	if strings.HasSuffix(path, "cwd") || strings.HasSuffix(path, "exe") {
		_, err := os.Readlink(path)
		return err
	}
	if strings.HasSuffix(path, "fd") {
		_, err := os.ReadDir(path)
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if strings.HasSuffix(path, "mem") {
		return nil
	}
	_, err = f.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = nil // read, and empty
	}
	return err
}
