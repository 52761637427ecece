package peers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// launch starts cmd so that it dies with this process, even if that is killed
// while the server is paused. The kernel ties the death signal to the thread that
// started the child, so one thread stays until the child has ended.
func launch(cmd *exec.Cmd, ended chan<- struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
		close(ended)
	}()
	return <-started
}
