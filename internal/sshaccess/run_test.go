package sshaccess_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
)

func TestRun(t *testing.T) {
	for _, user := range sshtest.Users() {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			h := sshtest.Start(t, sshtest.Options{User: user})
			c := dial(t, target(t, h))
			for name, tc := range map[string]struct {
				argv           []string
				exit           int
				stdout, stderr string
			}{
				"arguments":     {argv: append([]string{"printf", "[%s]"}, nasty...), stdout: "[" + strings.Join(nasty, "][") + "]"},
				"status":        {argv: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, exit: 7, stdout: "out\n", stderr: "err\n"},
				"signal":        {argv: []string{"sh", "-c", "kill -KILL $$"}, exit: 137},
				"no program":    {argv: []string{"/no/such/program"}, exit: 127},
				"empty input":   {argv: []string{"cat"}},
				"no terminal":   {argv: []string{"sh", "-c", "test -t 0 || test -t 1 || test -t 2"}, exit: 1},
				"many bytes":    {argv: []string{"sh", "-c", "head -c 500000 /dev/zero | tr '\\0' x"}, stdout: strings.Repeat("x", 500000)},
				"its own group": {argv: []string{"sh", "-c", `read -r s </proc/self/stat; set -- ${s##*) }; test "$3" = "$4" && test "$3" = $$`}},
			} {
				r, err := c.Run(t.Context(), tc.argv, "", sshaccess.Limits{})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if r.Exit != tc.exit || string(r.Stdout) != tc.stdout || name != "no program" && string(r.Stderr) != tc.stderr || r.Stopped != "" || !r.Confirmed || r.Group == 0 {
					t.Errorf("%s: exit %d, stdout %.80q, stderr %q, %q %v %d", name, r.Exit, r.Stdout, r.Stderr, r.Stopped, r.Confirmed, r.Group)
				}
			}
		})
	}
}

// Children that ignore TERM, that left the group, and both.
const stubborn = `trap '' TERM; sleep 300 & setsid sh -c 'trap "" TERM; sleep 300; sleep 300' & (setsid sleep 300 &) ; echo up; wait; sleep 300`

func TestStopEndsTheWholeTree(t *testing.T) {
	for _, user := range sshtest.Users() {
		for name, tc := range map[string]struct {
			script string
			limits sshaccess.Limits
			cancel bool
			want   sshaccess.StopReason
		}{
			"cancelled":    {script: stubborn, cancel: true, want: sshaccess.StopCancelled},
			"run limit":    {script: stubborn, limits: sshaccess.Limits{Run: 700 * time.Millisecond}, want: sshaccess.StopRun},
			"idle limit":   {script: "echo up; " + stubborn, limits: sshaccess.Limits{Idle: 700 * time.Millisecond}, want: sshaccess.StopIdle},
			"output limit": {script: "echo up; yes & " + stubborn, limits: sshaccess.Limits{Output: 5000}, want: sshaccess.StopOutput},
		} {
			t.Run(user+" "+name, func(t *testing.T) {
				t.Parallel()
				h := sshtest.Start(t, sshtest.Options{User: user})
				c := dial(t, target(t, h))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.limits.Grace = 500 * time.Millisecond
				tc.limits.Stdout = writerFunc(func([]byte) {
					if tc.cancel {
						cancel()
					}
				})
				r, err := c.Run(ctx, []string{"sh", "-c", tc.script}, "", tc.limits)
				if err != nil {
					t.Fatal(err)
				}
				if r.Stopped != tc.want || !r.Confirmed || r.Exit != 137 || !strings.HasPrefix(string(r.Stdout), "up\n") {
					t.Errorf("%+v", r)
				}
				if tc.want == sshaccess.StopOutput && len(r.Stdout) != 5000 {
					t.Errorf("%d bytes", len(r.Stdout))
				}
				c.Close()
				eventually(t, "the end of all processes", func() bool { return len(h.Processes()) == 0 })
			})
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestStopIsGentleFirst(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	c := dial(t, target(t, h))
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	r, err := c.Run(ctx, []string{"sh", "-c", `trap 'echo put in order; exit 3' TERM; echo up; while :; do sleep 0.1; done`}, "",
		sshaccess.Limits{Grace: 20 * time.Second, Stdout: writerFunc(func([]byte) { cancel() })})
	if err != nil || r.Exit != 3 || string(r.Stdout) != "up\nput in order\n" || !r.Confirmed {
		t.Errorf("%+v, %v", r, err)
	}
	if time.Since(began) > 10*time.Second {
		t.Errorf("the grace was waited for in full")
	}
}

// The host ends what runs when its client is gone without a word, whichever of the
// processes ends first.
func TestLostClient(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"all ignore TERM":   stubborn,
		"the first one not": `setsid sh -c 'trap "" TERM; sleep 300; sleep 300' & sh -c 'trap "" TERM; sleep 300; sleep 300' & echo up; exec sleep 300`,
	} {
		h := sshtest.Start(t, sshtest.Options{})
		link := sshtest.NewLink(t, h, sshtest.Faults{})
		to := target(t, h)
		to.Port, to.Pins = uint16(link.Port), pins(t, link.KnownHosts...)
		c := dial(t, to)
		r, err := c.Run(t.Context(), []string{"sh", "-c", script}, "",
			sshaccess.Limits{Grace: 300 * time.Millisecond, Stdout: writerFunc(func([]byte) { link.Cut() })})
		if err != nil || r.Stopped != sshaccess.StopLost || r.Confirmed || r.Exit != -1 || r.Left == "" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		eventually(t, "the end of all processes when "+name, func() bool { return len(h.Processes()) == 0 })
		var lost *sshaccess.LostError
		if _, err := c.Run(t.Context(), []string{"true"}, "", sshaccess.Limits{}); !errors.As(err, &lost) {
			t.Errorf("%s: a run over a lost connection: %v", name, err)
		}
	}
}

// No packet comes any more, and no end either.
func TestSilentPeer(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	link := sshtest.NewLink(t, h, sshtest.Faults{})
	to := target(t, h)
	to.Port, to.Pins = uint16(link.Port), pins(t, link.KnownHosts...)
	to.Keepalive, to.KeepaliveTimeout = 200*time.Millisecond, 500*time.Millisecond
	c := dial(t, to)
	began := time.Now()
	r, err := c.Run(t.Context(), []string{"sh", "-c", "echo up; sleep 60"}, "", sshaccess.Limits{Stdout: writerFunc(func([]byte) { link.Freeze() })})
	if err != nil || r.Stopped != sshaccess.StopLost || r.Confirmed || string(r.Stdout) != "up\n" {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("noticed after %s", took)
	}
}

// Cancelled while the peer is silent: nothing waits for ever, and nothing is claimed.
func TestStopOfASilentPeerIsUnconfirmed(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	link := sshtest.NewLink(t, h, sshtest.Faults{})
	to := target(t, h)
	to.Port, to.Pins = uint16(link.Port), pins(t, link.KnownHosts...)
	to.Keepalive, to.KeepaliveTimeout = time.Second, time.Second
	c := dial(t, to)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := c.Run(ctx, []string{"sh", "-c", "echo up; sleep 60"}, "", sshaccess.Limits{Grace: 200 * time.Millisecond,
		Stdout: writerFunc(func([]byte) { link.Freeze(); cancel() })})
	if err != nil || r.Stopped != sshaccess.StopCancelled || r.Confirmed || r.Left == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A host that gives no second session ends the run by its input, unconfirmed.
func TestNoSecondSession(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Config: []string{"MaxSessions 1"}})
	c := dial(t, target(t, h))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := c.Run(ctx, []string{"sh", "-c", stubborn}, "", sshaccess.Limits{Grace: 300 * time.Millisecond, Stdout: writerFunc(func([]byte) { cancel() })})
	if err != nil || r.Stopped != sshaccess.StopCancelled || r.Confirmed || r.Exit != 137 || !strings.Contains(r.Left, "could not be looked for") {
		t.Errorf("%+v, %v", r, err)
	}
	eventually(t, "the end of all processes", func() bool { return len(h.Processes()) == 0 })
}

// A child that holds the output open does not hold the run.
func TestChildThatStays(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	c := dial(t, target(t, h))
	began := time.Now()
	r, err := c.Run(t.Context(), []string{"sh", "-c", "sleep 60 & echo done"}, "", sshaccess.Limits{})
	if err != nil || r.Exit != 0 || string(r.Stdout) != "done\n" || r.Stopped != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestSudo(t *testing.T) {
	t.Parallel()
	for sudo, want := range map[sshtest.Sudo]sshaccess.Result{
		sshtest.SudoAllows:  {Exit: 0, Stdout: []byte("root x y\n")},
		sshtest.SudoRefuses: {Exit: 1, SudoRefused: true},
		sshtest.SudoAbsent:  {Exit: 127, SudoRefused: true},
	} {
		h := sshtest.Start(t, sshtest.Options{Sudo: sudo})
		c := dial(t, target(t, h))
		r, err := c.Run(t.Context(), []string{"sh", "-c", `echo "$SUDO_TARGET $1"; touch /tmp/ran`, "sh", "x y"}, "root", sshaccess.Limits{})
		got := sshaccess.Result{Exit: r.Exit, Stdout: r.Stdout, SudoRefused: r.SudoRefused}
		if d := cmp.Diff(want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); err != nil || d != "" {
			t.Errorf("sudo %q: %v %s %s", sudo, err, d, r.Stderr)
		}
	}
	h := sshtest.Start(t, sshtest.Options{})
	c := dial(t, target(t, h))
	if r, err := c.Run(t.Context(), []string{"sh", "-c", "echo 'sudo: no'>&2; exit 1"}, "", sshaccess.Limits{}); err != nil || r.SudoRefused {
		t.Errorf("without sudo: %+v, %v", r, err)
	}
}

// What sudo started is ended too.
func TestStopUnderSudo(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoAllows})
	c := dial(t, target(t, h))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := c.Run(ctx, []string{"sh", "-c", stubborn}, sshtest.Tester,
		sshaccess.Limits{Grace: 500 * time.Millisecond, Stdout: writerFunc(func([]byte) { cancel() })})
	if err != nil || r.Stopped != sshaccess.StopCancelled || !r.Confirmed || r.Exit != 137 {
		t.Errorf("%+v, %v", r, err)
	}
	if !strings.Contains(h.SudoLog(), "-u "+sshtest.Tester+" -- kill -s TERM -- -") {
		t.Errorf("sudo was asked %q", h.SudoLog())
	}
	c.Close()
	eventually(t, "the end of all processes", func() bool { return len(h.Processes()) == 0 })
}

func TestWhatCannotBeRun(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	c := dial(t, target(t, h))
	for name, tc := range map[string]struct {
		argv []string
		sudo string
	}{
		"nothing":    {},
		"no name":    {argv: []string{""}},
		"an option":  {argv: []string{"-x"}},
		"NUL":        {argv: []string{"echo", "\x00"}},
		"assignment": {argv: []string{"A=b", "id"}, sudo: "root"},
	} {
		if r, err := c.Run(t.Context(), tc.argv, tc.sudo, sshaccess.Limits{}); !errors.Is(err, sshaccess.ErrArgument) || r.Exit != -1 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := c.Run(t.Context(), []string{"id"}, "-x", sshaccess.Limits{}); err == nil {
		t.Error("an option as the user of sudo")
	}
	if got := h.Processes(); len(got) > 0 {
		t.Errorf("something runs: %v", got)
	}
}

// A login shell of another kind, whose start file talks on both outputs.
func TestTalkativeLoginShell(t *testing.T) {
	t.Parallel()
	start := "echo welcome; echo 'last login: never' >&2; printf 'no newline'; touch /tmp/started\n"
	// Which of them a bash reads depends on how it was built.
	h := sshtest.Start(t, sshtest.Options{User: sshtest.Tester, Shell: "/bin/bash", Env: []string{"BASH_ENV=/home/tester/start"},
		Files: map[string]string{"/home/tester/start": start, "/home/tester/.bashrc": start}})
	c := dial(t, target(t, h))
	r, err := c.Run(t.Context(), append([]string{"printf", "%s\n"}, nasty...), "", sshaccess.Limits{})
	if err != nil || string(r.Stdout) != strings.Join(nasty, "\n")+"\n" || len(r.Stderr) != 0 {
		t.Errorf("%q, %q, %v", r.Stdout, r.Stderr, err)
	}
	if _, err := os.Stat(h.Path("/tmp/started")); err != nil {
		t.Errorf("the start file was not read: %v", err)
	}
}

// A login that gives no shell is told with what the host said.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Config: []string{"ForceCommand echo this account is closed; exit 1"}})
	c := dial(t, target(t, h))
	var not *sshaccess.NotStartedError
	if _, err := c.Run(t.Context(), []string{"id"}, "", sshaccess.Limits{}); !errors.As(err, &not) || !strings.Contains(not.Detail, "this account is closed") {
		t.Errorf("%v", err)
	}
}

// What sudo says before it goes on is no refusal; what it says in words that do not
// begin with its name is one.
func TestSudoWarns(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoAllows})
	c := dial(t, target(t, h))
	for said, refused := range map[string]bool{
		"sudo: unable to resolve host web1: Name or service not known":                                          false,
		"sudo: setrlimit(RLIMIT_CORE): Operation not permitted":                                                 false,
		"sudo: unable to resolve host web1: Name or service not known\nsudo: a password is required":            true,
		"Sorry, user deploy is not allowed to execute '/bin/true' as root on web1.":                             true,
		"deploy is not in the sudoers file.":                                                                    true,
		"deploy is not allowed to run sudo on web1.":                                                            true,
		"sudo: unable to resolve host web1: Name or service not known\ngrep: /etc/x: No such file or directory": false,
	} {
		r, err := c.Run(t.Context(), []string{"sh", "-c", `printf '%s\n' "$1" >&2; exit 1`, "sh", said}, "root", sshaccess.Limits{})
		if err != nil || r.Exit != 1 || r.SudoRefused != refused {
			t.Errorf("%q: refused %v, %v", said, r.SudoRefused, err)
		}
	}
}

// What left the group and the session and has lost its mark is found while its parents
// are there to tell of it, and is not forgotten when they end.
func TestStopFindsWhatHides(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, sshtest.Options{})
	c := dial(t, target(t, h))
	for seconds, script := range map[string]string{
		"3141": `env -i setsid sleep 3141 & echo up; wait`,
		"3142": `env -i setsid sh -c 'trap "" TERM; sleep 3142 & wait; wait' & echo up; wait`,
		"3143": `env -i timeout 3143 sleep 3143 & echo up; exec sleep 300`,
	} {
		t.Run(seconds, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var watching sync.WaitGroup
			defer watching.Wait()
			defer cancel()
			watching.Go(func() {
				defer cancel()
				for len(sleepers(seconds)) == 0 && ctx.Err() == nil {
					time.Sleep(10 * time.Millisecond)
				}
			})
			r, err := c.Run(ctx, []string{"sh", "-c", script}, "", sshaccess.Limits{Run: 20 * time.Second, Grace: 500 * time.Millisecond})
			if err != nil || r.Stopped != sshaccess.StopCancelled || !r.Confirmed {
				t.Errorf("%+v, %v", r, err)
			}
			for _, pid := range sleepers(seconds) {
				t.Errorf("process %d lives on", pid)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// sleepers are the processes that sleep so long.
func sleepers(seconds string) []int {
	var out []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && perr == nil && string(text) == "sleep\x00"+seconds+"\x00" {
			out = append(out, pid)
		}
	}
	return out
}

// A host may tell the status long before the last of the output has come through a slow
// line. What still comes is waited for.
func TestOutputThatComesLate(t *testing.T) {
	t.Parallel()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	hostKey, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(hostKey)
	port := serveSessions(t, config, func(channel ssh.Channel) {
		script := make([]byte, 64<<10)
		n, err := channel.Read(script)
		token := regexp.MustCompile(`t=([0-9a-f]{24}) `).FindSubmatch(script[:n])
		if err != nil || token == nil {
			t.Errorf("no token, %v", err)
			return
		}
		line := string(token[1]) + " 1\n"
		_, _ = channel.Stderr().Write([]byte(line))
		_, _ = channel.Write([]byte(line + "begin "))
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{0}))
		for range 3 {
			time.Sleep(900 * time.Millisecond)
			_, _ = channel.Write([]byte("more "))
		}
	})
	to := sshaccess.Target{Hop: sshaccess.Hop{Host: "127.0.0.1", Port: uint16(port), User: "any", Key: keyOf(t, sshtest.NewKey(t, "ed25519", "").PEM)}}
	to.Pins = pins(t, fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(hostKey.PublicKey())))
	r, err := dial(t, to).Run(t.Context(), []string{"any"}, "", sshaccess.Limits{})
	if err != nil || r.Exit != 0 || r.Stopped != "" || string(r.Stdout) != "begin more more more " {
		t.Errorf("%+v, %v", r, err)
	}
}

// serveSessions logs in one client and has each of its sessions handled.
func serveSessions(t *testing.T, config *ssh.ServerConfig, handle func(ssh.Channel)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, chans, reqs, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return
		}
		serving.Go(func() { ssh.DiscardRequests(reqs) })
		for c := range chans {
			channel, requests, err := c.Accept()
			if err != nil {
				continue
			}
			serving.Go(func() {
				for r := range requests {
					_ = r.Reply(r.Type == "exec", nil)
				}
			})
			serving.Go(func() {
				defer channel.Close()
				handle(channel)
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

// Output that was cut is never taken for whole, also where the program ended meanwhile.
func TestOutputLimitOfAProgramThatEnds(t *testing.T) {
	t.Parallel()
	c := dial(t, target(t, sshtest.Start(t, sshtest.Options{})))
	for range 10 {
		r, err := c.Run(t.Context(), []string{"printf", "%02000d", "7"}, "", sshaccess.Limits{Output: 1000})
		if err != nil || r.Stopped != sshaccess.StopOutput || !r.Confirmed || len(r.Stdout) != 1000 {
			t.Fatalf("%d bytes, stopped %q, confirmed %v, %v", len(r.Stdout), r.Stopped, r.Confirmed, err)
		}
	}
	if r, err := c.Run(t.Context(), []string{"printf", "%01000d", "7"}, "", sshaccess.Limits{Output: 1000}); err != nil || r.Stopped != "" || r.Exit != 0 {
		t.Errorf("just as much as it may: %+v, %v", r, err)
	}
}
