package ansible

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxSecret bounds the value of one secret variable, in bytes.
const maxSecret = 256 << 10

// fixedVariables are given as extra variables, which win over everything that a
// playbook, a role or a host could say: by them ssh reads our configuration and
// nothing else, and sudo is what it becomes users by.
func (a *attempt) fixedVariables() map[string]any {
	fixed := map[string]any{
		"ansible_become_method": "sudo", "ansible_become_exe": "sudo", "ansible_become_flags": "-H -S -n",
	}
	if len(a.grant.Become) == 0 {
		fixed["ansible_become"] = false
	}
	if a.tools.ssh != "" {
		fixed["ansible_ssh_args"] = "-F " + a.path("ssh/config")
		fixed["ansible_ssh_common_args"] = ""
		fixed["ansible_ssh_extra_args"] = ""
		fixed["ansible_sftp_extra_args"] = ""
		fixed["ansible_scp_extra_args"] = ""
		fixed["ansible_ssh_executable"] = a.tools.ssh
		fixed["ansible_host_key_checking"] = true
		fixed["ansible_ssh_host_key_checking"] = true
		fixed["ansible_ssh_pipelining"] = false
		fixed["ansible_pipelining"] = false
	}
	return fixed
}

// writeVariables writes the job's variables and the fixed ones, as files: nothing
// of them is on the command line.
func (a *attempt) writeVariables() error {
	job := map[string]any{}
	for name, v := range a.p.Variables {
		job[name] = v
	}
	if err := a.write("variables.yml", yamlDocument(job)); err != nil {
		return err
	}
	return a.write("fixed.yml", yamlDocument(a.fixedVariables()))
}

// secretVariables reads the secrets that variables want, as one document.
func (a *attempt) secretVariables() ([]byte, error) {
	values := map[string]any{}
	for variable, name := range a.p.SecretVariables {
		file, ok := a.task.Secrets[name]
		if !ok {
			return nil, rejected("variable %q wants the secret %q, which the job does not have", variable, clip(name, 80))
		}
		value, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the secret of variable %q: %w", variable, err)
		}
		if len(value) > maxSecret {
			return nil, rejected("the secret of variable %q is longer than %d bytes", variable, maxSecret)
		}
		if !utf8.Valid(value) {
			return nil, rejected("the secret of variable %q is no text", variable)
		}
		values[variable] = string(value)
	}
	return yamlDocument(values), nil
}

// pipePoll is how often a writer looks whether ansible has opened the pipe.
const pipePoll = 5 * time.Millisecond

// servePipe makes a named pipe and hands data to the first reader, so that secrets
// never stand on a disk. The function it gives ends that and waits for it.
func servePipe(ctx context.Context, path string, data []byte) (stop func(), err error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("making the pipe for secret variables: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f := openForReader(ctx, path)
		if f == nil {
			return
		}
		defer f.Close()
		unbind := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
		defer unbind()
		// A reader that goes away has ended, and its exit tells.
		_, _ = f.Write(data)
	}()
	return func() { cancel(); <-done }, nil
}

// openForReader waits until somebody reads the pipe; nil when ctx ends first.
func openForReader(ctx context.Context, path string) *os.File {
	tick := time.NewTicker(pipePoll)
	defer tick.Stop()
	for {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path)
		}
		if !errors.Is(err, syscall.ENXIO) && !errors.Is(err, syscall.EINTR) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
