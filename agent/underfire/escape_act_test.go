package underfire

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// prize is what lies outside, for the one that tries to escape.
type prize struct {
	Work, Secret, Journal, Credential string // files of others
	Victim                            int    // a process of the same user, outside
	TCP, UDP, Unix, Abstract          string // who answers there
	Terminal                          string // somebody's
	Mark                              string // argument of what is to outlive the executor
	Forks                             int    // how many processes to try
	Fill                              int    // bytes that fill a place in memory
	Linger                            int    // seconds for who minds a filled disk to say so
	Only                              string // do this alone: "" is all
}

// tries are the ways out. Each says nil where it got through, and undoes it.
var tries = map[string]func(p prize, t executor.Task) error{
	"other_work":       func(p prize, _ executor.Task) error { return readable(p.Work) },
	"other_secret":     func(p prize, _ executor.Task) error { return readable(p.Secret) },
	"agent_journal":    func(p prize, _ executor.Task) error { return readable(p.Journal) },
	"agent_credential": func(p prize, _ executor.Task) error { return readable(p.Credential) },
	"victim_environment": func(p prize, _ executor.Task) error {
		return readable(fmt.Sprintf("/proc/%d/environ", p.Victim))
	},
	"victim_root": func(p prize, _ executor.Task) error {
		return readable(fmt.Sprintf("/proc/%d/root/etc/shadow", p.Victim))
	},
	"victim_signal": func(p prize, _ executor.Task) error { return unix.Kill(p.Victim, unix.SIGWINCH) },
	"victim_trace":  traceVictim,
	"shadow":        func(prize, executor.Task) error { return readable("/etc/shadow") },
	"tcp":           func(p prize, _ executor.Task) error { return answers("tcp", p.TCP) },
	"udp":           func(p prize, _ executor.Task) error { return answers("udp", p.UDP) },
	"unix":          func(p prize, _ executor.Task) error { return answers("unix", p.Unix) },
	"abstract":      func(p prize, _ executor.Task) error { return answers("unix", "@"+p.Abstract) },
	"raw_socket":    func(prize, executor.Task) error { return opens(unix.AF_PACKET, unix.SOCK_RAW) },
	"vsock":         func(prize, executor.Task) error { return opens(unix.AF_VSOCK, unix.SOCK_STREAM) },
	"write_usr":     func(p prize, _ executor.Task) error { return creates("/usr/" + p.Mark) },
	"write_etc":     func(p prize, _ executor.Task) error { return creates("/etc/" + p.Mark) },
	"write_root":    func(p prize, _ executor.Task) error { return creates("/" + p.Mark) },
	"write_dev":     func(p prize, _ executor.Task) error { return creates("/dev/" + p.Mark) },
	"write_program": func(prize, executor.Task) error { return opensToWrite("/proc/1/exe") },
	"kernel_settings": func(prize, executor.Task) error {
		return opensToWrite("/proc/sys/kernel/core_pattern")
	},
	"sysrq":          func(prize, executor.Task) error { return opensToWrite("/proc/sysrq-trigger") },
	"mount":          mounts,
	"mknod":          makesDevice,
	"hostname":       setsHostname,
	"keys":           usesKeys,
	"terminal":       pushesInto,
	"user_namespace": newUserNamespace,
	"chroot_out":     func(prize, executor.Task) error { return unix.Chroot("/") },
	"fill_tmp":       func(p prize, _ executor.Task) error { return fills("/tmp/"+p.Mark, p.Fill) },
	"fill_shm":       func(p prize, _ executor.Task) error { return fills("/dev/shm/"+p.Mark, p.Fill) },
	"raise_limit": func(prize, executor.Task) error {
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 500, Max: 500})
	},
}

// escapes tries all of it and prints one JSON object: the name of a try, and whether
// it got through.
func escapes(t executor.Task) int {
	var p prize
	if err := json.Unmarshal(t.Parameters, &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if p.Only == "fill_disk" {
		return fillWork(p)
	}
	done := map[string]bool{}
	for name, try := range tries {
		err := try(p, t)
		done[name] = err == nil
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
	started := forks(p)
	away := outlive(p)
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"done": done, "forks": started, "away": away}); err != nil {
		return 4
	}
	return 0
}

func readable(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 0 {
		return errors.New("it is empty")
	}
	return err
}

func opensToWrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func creates(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(path))
}

// answers says nil where whoever listens there says a byte.
func answers(network, address string) error {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func opens(family, kind int) error {
	fd, err := unix.Socket(family, kind, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func traceVictim(p prize, _ executor.Task) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		// Seized, it does not even stop; it is let go with this thread.
		_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(p.Victim), 0, 0, 0, 0)
		if errno != 0 {
			done <- errno
			return
		}
		done <- nil
	}()
	return <-done
}

func mounts(p prize, t executor.Task) error {
	dir := filepath.Join(t.WorkDir, "mountpoint")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

func makesDevice(p prize, t executor.Task) error {
	path := filepath.Join(t.WorkDir, "device")
	defer os.Remove(path)
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))); err != nil {
		return err
	}
	return readableDevice(path)
}

func readableDevice(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	return err
}

func setsHostname(prize, executor.Task) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return unix.Sethostname([]byte(name)) // what it is
}

func usesKeys(prize, executor.Task) error {
	_, err := unix.AddKey("user", "escape", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return err
}

// pushesInto types a letter at somebody's terminal.
func pushesInto(p prize, _ executor.Task) error {
	f, err := os.OpenFile(p.Terminal, os.O_RDWR, 0) // it becomes this session's where it is nobody's
	if err != nil {
		return err
	}
	defer f.Close()
	letter := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&letter)))
	if errno != 0 {
		return errno
	}
	return nil
}

func newUserNamespace(prize, executor.Task) error {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	return cmd.Run()
}

func fills(path string, n int) error {
	defer os.Remove(path)
	return os.WriteFile(path, make([]byte, n), 0o600)
}

// forks starts processes until it may not, and says how many it got.
func forks(p prize) int {
	var all []*exec.Cmd
	for range p.Forks {
		cmd := exec.Command("/bin/sleep", "300")
		if cmd.Start() != nil {
			break
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return len(all)
}

// ways is how many ways there are to leave one's parents.
const ways = 4

// outlive starts what is to go on when the executor has ended, in every way that there
// is to leave one's parents, and says how many of them got away.
func outlive(p prize) (away int) {
	sleep := "exec /bin/sleep " + p.nap()
	for _, script := range [ways]string{
		sleep,
		"trap '' TERM HUP INT; setsid sh -c '" + sleep + "' &",
		"(setsid sh -c '(setsid sh -c \"" + sleep + "\" &)' &)",
		"exec 0<&- 1>&- 2>&- 3>&-; (setsid env -i /bin/sleep " + p.nap() + " &)",
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	// They are not its children, so that there is nothing to wait on.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		away = 0
		for _, s := range isolation.AllProcesses() {
			cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Pid))
			if err == nil && string(cmd) == "/bin/sleep\x00"+p.nap()+"\x00" {
				away++
			}
		}
		if away == ways {
			break
		}
	}
	return away
}

// nap is the argument of those that are to outlive the executor, which nobody else
// gives to sleep.
func (p *prize) nap() string { return "300" + p.Mark[len(p.Mark)-8:] }

// fillWork fills the work folder, partly in files without a name and below folders
// without permissions.
func fillWork(p prize) int {
	if err := os.Mkdir("hidden", 0o700); err != nil {
		return 3
	}
	block := make([]byte, 1<<20)
	var open []*os.File
	for i := range p.Fill {
		name := "hidden/" + strconv.Itoa(i)
		f, err := os.Create(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 4
		}
		open = append(open, f)
		if i%2 == 0 {
			_ = os.Remove(name) // and stays open
		}
		if _, err := f.Write(block); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
	}
	_ = os.Chmod("hidden", 0)
	time.Sleep(time.Duration(p.Linger) * time.Second)
	fmt.Println("nobody minds", len(open))
	return 0
}
