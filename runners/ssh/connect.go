package ssh

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/policy"
)

// maxKnownHosts bounds an input artifact of host keys, in bytes.
const maxKnownHosts = 4 << 20

// route gives the host of the job and the way to it: the targets that policy
// decided on, jump hosts first.
func (j *job) route() (sshaccess.Target, error) {
	var t sshaccess.Target
	pins, err := j.pins()
	if err != nil {
		return t, err
	}
	var hops []sshaccess.Hop
	for _, target := range j.input.Targets {
		b, err := j.binding(target.ResourceID)
		if err != nil {
			return t, err
		}
		key, err := j.key(target.ResourceID, b)
		if err != nil {
			return t, err
		}
		if _, err := policy.NormalizeHost(target.Host); err != nil {
			return t, rejectedf("binding.address of resource %q: %s", target.ResourceID, err)
		}
		if err := sshaccess.CheckUser(b.User); err != nil {
			return t, rejectedf("binding.user of resource %q: %s", target.ResourceID, err)
		}
		hops = append(hops, sshaccess.Hop{Host: target.Host, Port: target.Port, User: b.User, Key: key})
	}
	if len(hops) == 0 {
		return t, rejectedf("the job has no host")
	}
	last := len(hops) - 1
	return sshaccess.Target{Hop: hops[last], Jumps: hops[:last], Pins: pins, ConnectTimeout: seconds(j.params.ConnectTimeout)}, nil
}

func (j *job) binding(id string) (executor.Binding, error) {
	for _, r := range j.task.Resources {
		if r.ResourceID == id {
			return r.Binding, nil
		}
	}
	return executor.Binding{}, rejectedf("the task has no resource %q", id)
}

func (j *job) key(id string, b executor.Binding) (sshaccess.Key, error) {
	if b.AccessSecret == "" {
		return sshaccess.Key{}, rejectedf("binding.access_secret of resource %q is empty: name the secret that holds the private key", id)
	}
	file, ok := j.task.Secrets[b.AccessSecret]
	if !ok {
		return sshaccess.Key{}, rejectedf("binding.access_secret of resource %q names a secret that the job does not have", id)
	}
	key, err := sshaccess.LoadKey(file)
	if err != nil {
		return key, rejectedf("the access secret of resource %q: %s", id, err)
	}
	return key, nil
}

// pins are the host keys that policy names, or an input artifact.
func (j *job) pins() (*sshaccess.Pins, error) {
	var lines []string
	if ref := j.params.HostKeysRef; ref != "" {
		granted, verdict := j.bundle.HostKeyGrant(j.input)
		if err := j.rec.decided("host keys "+ref, verdict); err != nil {
			return nil, err
		}
		lines = granted
	} else {
		data, err := j.inputFile(j.params.KnownHosts, maxKnownHosts)
		if err != nil {
			return nil, err
		}
		lines = strings.Split(string(data), "\n")
	}
	pins, err := sshaccess.KnownHosts(lines)
	if err != nil {
		return nil, rejectedf("the pinned host keys cannot be used: %s", err)
	}
	return pins, nil
}

func (j *job) openInput(name string) (*os.File, error) {
	path, ok := j.task.Inputs[name]
	if !ok {
		return nil, rejectedf("the job has no input artifact %q", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the input artifact %q: %w", name, err)
	}
	return f, nil
}

func (j *job) inputFile(name string, most int64) ([]byte, error) {
	f, err := j.openInput(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading the input artifact %q: %w", name, err)
	}
	if int64(len(data)) > most {
		return nil, rejectedf("the input artifact %q has more than %d bytes", name, most)
	}
	return data, nil
}
