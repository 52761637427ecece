package isolation

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusedCalls are the system calls that no executor in a sandbox needs and that
// reach past its namespaces, or past what is tried and tested of them. Most need a
// capability too; the filter holds where one is got by a fault of the kernel's.
var refusedCalls = []uintptr{
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, // keys are not kept apart by namespaces
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_FANOTIFY_INIT,
}

// families are the kinds of socket that stay: the others reach the hypervisor, the
// wire itself or the kernel's cryptography, and a network namespace does not hold all
// of them.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// newNamespaces are the flags of clone and unshare that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// Offsets in struct seccomp_data, and of the lower half of an argument on machines
// whose low byte comes first, as those of auditArch all are.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
}

// Filter forbids system calls for the calling thread and all that it executes. What
// is forbidden fails with an error of permission. The thread must have locked itself
// and given up new privileges.
func Filter() error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("there is no filter of system calls for %s", runtime.GOARCH)
	}
	program := filter(arch)
	if len(program) > math.MaxUint16 {
		return fmt.Errorf("the filter of system calls has %d steps, and the kernel takes %d at most", len(program), math.MaxUint16)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		return fmt.Errorf("set the filter of system calls: %w", err)
	}
	runtime.KeepAlive(program)
	return nil
}

func filter(arch uint32) []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	jump := func(test uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | test, K: k, Jt: yes, Jf: no}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	refuse := func(errno unix.Errno) unix.SockFilter { return answer(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
	allow := answer(unix.SECCOMP_RET_ALLOW)

	p := []unix.SockFilter{
		load(dataArch), jump(unix.BPF_JEQ, arch, 1, 0), refuse(unix.ENOSYS), // another machine's calls
		load(dataNumber),
	}
	if runtime.GOARCH == "amd64" {
		const x32 = 0x40000000
		p = append(p, jump(unix.BPF_JGE, x32, 0, 1), refuse(unix.ENOSYS))
	}
	for _, nr := range refusedCalls {
		p = append(p, jump(unix.BPF_JEQ, uint32(nr), 0, 1), refuse(unix.EPERM))
	}
	// Its flags lie in memory, where a filter cannot look. What asks falls back.
	p = append(p, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), refuse(unix.ENOSYS))
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		p = append(p, jump(unix.BPF_JEQ, nr, 0, 4),
			load(dataArgs), jump(unix.BPF_JSET, newNamespaces, 0, 1), refuse(unix.EPERM), allow)
	}
	p = append(p, jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 5), load(dataArgs+8),
		jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0), jump(unix.BPF_JEQ, tiocLinux, 0, 1), refuse(unix.EPERM), allow)
	for _, nr := range []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR} {
		p = append(p, jump(unix.BPF_JEQ, nr, 0, uint8(len(families)+3)), load(dataArgs))
		for i, f := range families {
			p = append(p, jump(unix.BPF_JEQ, f, uint8(len(families)-i), 0))
		}
		p = append(p, refuse(unix.EAFNOSUPPORT), allow)
	}
	return append(p, allow)
}

// tiocLinux pastes into a console.
const tiocLinux = 0x541C

// ForgetKeys gives the calling process a session keyring of its own, so that the keys
// of whoever started the runner are out of reach. A kernel without keys has none.
func ForgetKeys() error {
	// Without a name it is a fresh one.
	_, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS && errno != unix.EPERM {
		return fmt.Errorf("leave the session's keyring: %w", errno)
	}
	return nil
}
