package isolation

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelSigaction has room for the kernel's struct sigaction on every Linux; the
// handler is its first member.
type kernelSigaction struct {
	handler uintptr
	rest    [7]uintptr
}

const (
	sigIgn     = 1 // SIG_IGN
	lastSignal = 64
	maskSize   = 8 // bytes of the kernel's signal mask
)

// DefaultSignals gives every ignored signal its default action again: what is
// ignored stays ignored over exec, and a parent that ignores signals, as make does
// with two of the thread library's, must not reach into the executor. Handlers need
// no care, exec drops them.
func DefaultSignals() error {
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		var now, byDefault kernelSigaction
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&now)), maskSize, 0, 0); errno != 0 {
			return fmt.Errorf("read the action of signal %d: %w", sig, errno)
		}
		if now.handler != sigIgn {
			continue
		}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&byDefault)), 0, maskSize, 0, 0); errno != 0 {
			return fmt.Errorf("give signal %d its default action: %w", sig, errno)
		}
	}
	return nil
}
