package s3test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// launch starts cmd so that it dies with this process, even if that is killed.
// The kernel ties the death signal to the thread that started the child, so one
// thread stays until the child has ended.
func launch(cmd *exec.Cmd) (*running, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := &running{cmd: cmd, output: &output{}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.output, r.output
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How it ended stands in cmd.ProcessState.
		_ = cmd.Wait()
		close(r.exited)
	}()
	return r, <-started
}

// keepsAttributes reports whether the file system of dir has user attributes.
func keepsAttributes(dir string) bool {
	return unix.Setxattr(filepath.Clean(dir), "user.probe", []byte("x"), 0) == nil
}
