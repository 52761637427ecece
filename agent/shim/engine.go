package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// fdEngineEntry is the stage "engine"'s own entry, beyond what goes on inside.
const fdEngineEntry = fdInsideTask + 1

// envAttempt marks the processes of an engine for the clean-up after a crash.
const envAttempt = "EXECUTION_PLANE_ATTEMPT"

// insideView is the shim's view of what runs inside.
type insideView struct {
	first   isolation.Identity // the first process inside, as seen from here
	reports <-chan insidePacket
	words   *words
}

type insidePacket struct {
	insideReport
	pid int // who sent it, by the kernel
}

// launchInside starts the executor by way of an engine: the engine starts this
// program's stage "inside", and that the executor. An error means that the executor
// certainly never ran; unwanted then says whether and why it was not to.
func launchInside(o *startOrder, cg *isolation.Cgroup, a isolation.Applied, by attendant) (launched, error) {
	argv, order, err := composeInside(o, a)
	if err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	outer, err := json.Marshal(entry{
		Argv: argv, Env: append(engineEnv(o.Box.EngineUID), envAttempt+"="+o.Dir), Dir: "/", Cgroup: cg, Parent: os.Getpid(), Credential: engineCredential(o),
	})
	if err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	var opened fds
	defer opened.close()
	task, inner, config := opened.memory("task", o.Task), opened.memory("order", order), opened.memory("entry", outer)
	near, far := opened.socketpair(unix.SOCK_STREAM)
	status, statusIn := opened.socketpair(unix.SOCK_SEQPACKET)
	words, wordsIn := opened.pipe()
	if opened.err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, opened.err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	defer null.Close()
	if err := unix.SetsockoptInt(status, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return launched{}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	_, err = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env: stageEnv(stageEngine),
		Files: []uintptr{null.Fd(), uintptr(wordsIn), uintptr(wordsIn), uintptr(far), uintptr(statusIn),
			uintptr(inner), fdLogOut, fdLogErr, uintptr(task), uintptr(config)},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return launched{}, fmt.Errorf("%w: fork: %w", errNeverRan, err)
	}
	for _, fd := range []int{wordsIn, far, statusIn} {
		opened.closeOne(fd)
	}
	l := launched{control: opened.keep(near), inside: &insideView{words: keepWords(opened.keep(words))}}
	reports, err := readPackets(opened.keep(status))
	if err == nil {
		l.inside.reports = reports
		err = l.awaitRunning(by)
	}
	if err == nil && o.Box.Engine.OwnCgroup() {
		o.Limits.ReadLimits(l.inside.first.Pid, &l.applied)
	}
	if err != nil {
		unix.Close(l.control)
		return launched{inside: l.inside, unwanted: l.unwanted}, fmt.Errorf("%w: %w", errNeverRan, err)
	}
	return l, nil
}

// composeInside gives the engine's command line and the order for the first process
// inside.
func composeInside(o *startOrder, a isolation.Applied) (argv []string, order []byte, err error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	b := o.Box
	b.ReadOnly = append(b.ReadOnly, self)
	b.Argv = append([]string{self}, os.Args[1:]...)
	b.Env = append(stageEnv(stageInside), "PATH="+DefaultPath)
	b.Passed = insidePassed
	a.Level, a.Engine, a.EngineVersion = b.Engine.Level(), b.Engine.Name, b.Engine.Version
	if a.Level == isolation.LevelContainer {
		a.Image, a.RootFS = b.Image.Name, b.Image.RootFS
		if b.Image.RootFS == "" {
			a.ImageDigest = b.Image.Digest
		}
	}
	a.Limits["scratch"] = int64(b.Scratch)
	if o.Disk > 0 {
		a.Limits["disk"] = int64(o.Disk)
	}
	argv, err = b.Command()
	if err != nil {
		return nil, nil, err
	}
	outside, err := isolation.OwnNamespaces()
	if err != nil {
		return nil, nil, err
	}
	order, err = json.Marshal(insideOrder{
		Entry:   entry{Argv: o.Argv, Env: o.Env, Dir: Layout(o.Dir).Work, Limits: o.Limits, Applied: a},
		Promise: isolation.Promise{Outside: outside, Network: b.Network, Writable: b.Writable, UID: b.UID, GID: b.GID},
	})
	return argv, order, err
}

// engineCredential is the user that the engine runs as, nil for the shim's own.
func engineCredential(o *startOrder) *Credential {
	if o.Credential != nil && o.Box.EngineUID == int(o.Credential.UID) {
		return o.Credential
	}
	return nil
}

// engineEnv is the environment of the engine itself; nothing of it gets inside.
func engineEnv(uid int) []string {
	env := []string{"PATH=" + DefaultPath, "LANG=" + DefaultLang, "HOME=" + engineHome(uid)}
	if run := "/run/user/" + strconv.Itoa(uid); uid != 0 {
		if s, err := os.Stat(run); err == nil && s.IsDir() {
			env = append(env, "XDG_RUNTIME_DIR="+run)
		}
	}
	return env
}

// engineCommand runs an engine as this program's own user, for what is not a start. It
// looks where a start looks.
func engineCommand(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = engineEnv(os.Geteuid()), "/", time.Second
	return cmd
}

// engineHome is where an engine has its own files.
func engineHome(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/"
}

// enterEngine is the stage "engine": it becomes the engine. What it says goes where
// the engine's words go.
func enterEngine() int {
	fmt.Fprintln(os.Stderr, becomeEngine())
	return 127
}

func becomeEngine() error {
	unix.CloseOnExec(fdEngineEntry)
	e, err := readEntryFrom(fdEngineEntry)
	if err != nil {
		return err
	}
	if e.Cgroup != nil {
		if err := e.Cgroup.Enter(); err != nil {
			return err
		}
	}
	// The folders that it makes inside are passed by the executor's user.
	unix.Umask(0o022)
	if err := isolation.ForbidCoreDumps(); err != nil {
		return err
	}
	if err := becomeUser(e.Credential); err != nil {
		return err
	}
	if err := isolation.ForgetKeys(); err != nil {
		return err
	}
	if err := unix.Chdir(e.Dir); err != nil {
		return fmt.Errorf("enter %s: %w", e.Dir, err)
	}
	if err := isolation.DefaultSignals(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask to end with the shim: %w", err)
	}
	if os.Getppid() != e.Parent {
		return errors.New("the shim is gone")
	}
	if err := closeOnExec(fdEngineEntry); err != nil {
		return err
	}
	return fmt.Errorf("start %s: %w", e.Argv[0], syscall.Exec(e.Argv[0], e.Argv, e.Env))
}

func (v *insideView) failed(text string) error {
	select {
	case <-v.words.ended:
	case <-time.After(time.Second): // somebody holds them open, and says no more
	}
	if said := v.words.text(); said != "" {
		text += ": " + strings.ReplaceAll(said, "\n", "; ")
	}
	return fmt.Errorf("the isolation engine: %s", text)
}

// processes lists what lives inside, without the first process there. With that one
// all of it ends, and its number may be another's then.
func (v *insideView) processes() []isolation.Stat {
	if !v.first.Alive() {
		return nil
	}
	return isolation.Descendants(v.first.Pid)
}

// readPackets hands on what comes over the status socket. The channel is closed when
// nobody holds the other end any more.
func readPackets(fd int) (<-chan insidePacket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("read the status socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "status")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read the status socket: %w", err)
	}
	// All that can come fits, so that the reader never waits for the loop.
	out := make(chan insidePacket, 8)
	go func() {
		defer close(out)
		defer f.Close()
		for {
			p, err := readPacket(raw)
			if err != nil {
				return
			}
			out <- p
		}
	}()
	return out, nil
}

const maxPacket = 64 << 10

func readPacket(raw syscall.RawConn) (insidePacket, error) {
	b, oob := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	var n, oobn int
	var rerr error
	err := raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, rerr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
			if !errors.Is(rerr, unix.EINTR) {
				return !errors.Is(rerr, unix.EAGAIN)
			}
		}
	})
	if err = errors.Join(err, rerr); err != nil {
		return insidePacket{}, err
	}
	if n == 0 {
		return insidePacket{}, io.EOF
	}
	var p insidePacket
	if err := json.Unmarshal(b[:n], &p.insideReport); err != nil {
		return insidePacket{}, fmt.Errorf("read the status socket: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return insidePacket{}, errors.New("read the status socket: the kernel does not say who wrote")
	}
	who, err := unix.ParseUnixCredentials(&messages[0])
	if err != nil {
		return insidePacket{}, fmt.Errorf("read the status socket: %w", err)
	}
	p.pid = int(who.Pid)
	return p, nil
}

// words are what an engine says of itself.
type words struct {
	tail
	ended chan struct{}
}

// keepWords keeps the last of what the engine says.
func keepWords(fd int) *words {
	w := &words{ended: make(chan struct{})}
	f := os.NewFile(uintptr(fd), "words")
	go func() {
		defer close(w.ended)
		defer f.Close()
		_, _ = io.Copy(&w.tail, f)
	}()
	return w
}
