package sshtest

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

//go:embed bin
var programs embed.FS

// testerID is the user and group id of Tester on root's hosts.
const testerID = 2000

// privilegeFolders are where the distributions' sshd put their unprivileged part.
var privilegeFolders = []string{"/run/sshd", "/var/empty", "/var/empty/sshd", "/usr/share/empty.sshd"}

// build makes the root folder and the keys.
func (h *Host) build() {
	h.t.Helper()
	dir := h.t.TempDir()
	h.Root = filepath.Join(dir, "root")
	if err := os.Mkdir(h.Root, 0o755); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	h.KeyFile = filepath.Join(dir, "id")
	if err := os.WriteFile(h.KeyFile, h.Key.PEM, 0o600); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	h.accounts()
	for _, d := range []string{"/root", "/home/" + Tester, "/var/log", "/var/tmp", "/opt/bin", "/var/lib/units", "/srv/small"} {
		h.mkdir(d)
	}
	h.keep("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n", 0o644)
	h.keep("/etc/hosts", "127.0.0.1 localhost\n", 0o644)
	for _, d := range append([]string{"/tmp"}, privilegeFolders...) {
		if strings.HasPrefix(d, "/usr") {
			continue // the machine's, read-only
		}
		if err := os.MkdirAll(h.Path(d), 0o755); err != nil {
			h.t.Fatalf("sshtest: %v", err)
		}
	}
	if err := os.Chmod(h.Path("/tmp"), 0o777|os.ModeSticky); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	h.programs()
	for unit, properties := range h.options.Units {
		if properties == "" {
			properties = "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=4711\nExecMainStartTimestamp=Mon 2026-01-05 10:00:00 UTC\nNRestarts=0\n"
		}
		h.Write("/var/lib/units/"+unit, properties, 0o644)
	}
	for name, content := range h.options.Files {
		h.Write(name, content, 0o644)
	}
	h.hostKeys()
}

// keep writes a file of the system's own.
func (h *Host) keep(name, content string, mode os.FileMode) {
	h.t.Helper()
	path := h.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
}

func (h *Host) accounts() {
	uid, gid := testerID, testerID
	if os.Geteuid() != 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	shell := h.options.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	h.keep("/etc/passwd", fmt.Sprintf("root:x:0:0:root:/root:%s\nsshd:x:74:74::/run/sshd:/bin/false\n%s:x:%d:%d::/home/%s:%s\n", shell, Tester, uid, gid, Tester, shell), 0o644)
	h.keep("/etc/group", fmt.Sprintf("root:x:0:\nsshd:x:74:\n%s:x:%d:\n", Tester, gid), 0o644)
	h.keep("/etc/shadow", "root:*:20000::::::\nsshd:*:20000::::::\n"+Tester+":*:20000::::::\n", 0o600)
}

func (h *Host) programs() {
	names := []string{"systemctl"}
	if h.options.Sudo != SudoAbsent {
		names = append(names, "sudo")
		h.keep("/etc/sudo.answer", string(h.options.Sudo)+"\n", 0o644)
	}
	for _, name := range names {
		text, err := programs.ReadFile("bin/" + name)
		if err != nil {
			h.t.Fatalf("sshtest: %v", err)
		}
		h.keep("/opt/bin/"+name, string(text), 0o755)
	}
	for _, name := range []string{"sudo.log", "systemctl.log"} {
		h.keep("/var/log/"+name, "", 0o666)
	}
}

func (h *Host) hostKeys() {
	types := h.options.HostKeyTypes
	if len(types) == 0 {
		types = []string{"ed25519"}
	}
	for _, kind := range types {
		key := NewKey(h.t, kind, "")
		h.keep("/etc/ssh/host_"+kind, string(key.PEM), 0o600)
		h.HostKeys = append(h.HostKeys, key.Signer.PublicKey())
		if ca := h.options.HostCA; ca != nil {
			cert := ca.sign(h.t, ssh.HostCert, key, 3600e9, h.options.HostNames)
			h.keep("/etc/ssh/host_"+kind+"-cert.pub", line(cert)+"\n", 0o644)
		}
	}
	if !h.options.NoKey {
		h.keep("/etc/ssh/authorized_keys", line(h.Key.Signer.PublicKey())+"\n", 0o644)
	}
	if h.options.UserCA != nil {
		h.keep("/etc/ssh/user_ca.pub", h.options.UserCA.Public()+"\n", 0o644)
	}
}

func (h *Host) configure() {
	lines := []string{
		"ListenAddress " + h.Address, "Port " + strconv.Itoa(h.Port), "UsePAM no", "StrictModes no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes",
		"AuthorizedKeysFile /etc/ssh/authorized_keys", "PidFile none",
		"MaxStartups 200:30:400", "MaxSessions 100", "AllowTcpForwarding yes", "PrintMotd no", "LogLevel VERBOSE",
		strings.Join(append([]string{"SetEnv", h.mark, "PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, h.options.Env...), " "),
	}
	// Other keywords count where they stand first; this one may stand but once.
	if !strings.Contains(strings.Join(h.options.Config, "\n"), "Subsystem ") {
		lines = append(lines, "Subsystem sftp internal-sftp")
	}
	entries, err := os.ReadDir(h.Path("/etc/ssh"))
	if err != nil {
		h.t.Fatalf("sshtest: %v", err)
	}
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), "-cert.pub"):
			lines = append(lines, "HostCertificate /etc/ssh/"+e.Name())
		case strings.HasPrefix(e.Name(), "host_"):
			lines = append(lines, "HostKey /etc/ssh/"+e.Name())
		}
	}
	if h.options.UserCA != nil {
		lines = append(lines, "TrustedUserCAKeys /etc/ssh/user_ca.pub")
	}
	// The first value of a keyword counts.
	lines = append(append([]string{}, h.options.Config...), lines...)
	h.keep("/etc/ssh/sshd_config", strings.Join(lines, "\n")+"\n", 0o644)
}

// arguments are bubblewrap's: the root folder with the machine's programs in it.
func (h *Host) arguments() []string {
	args := []string{"--bind", h.Root, "/", "--ro-bind", "/usr", "/usr"}
	if os.Geteuid() == 0 {
		args = append(args, "--cap-add", "ALL")
	}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		// The folder is made anew at each launch.
		_ = os.Remove(h.Path(name))
		info, err := os.Lstat(name)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			if err != nil {
				h.t.Fatalf("sshtest: %v", err)
			}
			args = append(args, "--symlink", target, name)
			continue
		}
		args = append(args, "--ro-bind", name, name)
	}
	for _, name := range []string{"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/os-release", "/etc/alternatives", "/etc/localtime"} {
		args = append(args, "--ro-bind-try", name, name)
	}
	args = append(args, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--proc", "/proc", "--dev", "/dev", "--die-with-parent")
	if h.options.SmallBytes > 0 {
		args = append(args, "--size", strconv.FormatInt(h.options.SmallBytes, 10), "--perms", "1777", "--tmpfs", SmallDir)
	}
	return append(args, "--", sshd(), "-D", "-e", "-f", "/etc/ssh/sshd_config")
}

func sshd() string {
	for _, file := range []string{"/usr/sbin/sshd", "/usr/bin/sshd"} {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	if file, err := exec.LookPath("sshd"); err == nil {
		return file
	}
	return "/usr/sbin/sshd" // bubblewrap says that it is missing
}
