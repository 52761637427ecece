//go:build !linux

package s3test

import "os/exec"

func launch(cmd *exec.Cmd) (*running, error) {
	r := &running{cmd: cmd, output: &output{}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.output, r.output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		// How it ended stands in cmd.ProcessState.
		_ = cmd.Wait()
		close(r.exited)
	}()
	return r, nil
}

// keepsAttributes: a separate folder for metadata works everywhere.
func keepsAttributes(string) bool { return false }
