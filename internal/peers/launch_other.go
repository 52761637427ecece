//go:build !linux

package peers

import "os/exec"

func launch(cmd *exec.Cmd, ended chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		// How it ended stands in cmd.ProcessState.
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}
