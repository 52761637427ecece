package verification

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// policyInput is what policy looks at when the executor asks again, as far as the
// executor knows the job.
func policyInput(req Request, params json.RawMessage, use *policy.Use) policy.Input {
	in := policy.Input{
		Action: req.Action, JobType: runners.TypeVerification, Environment: req.Environment,
		Runner: req.Task.Runner, Isolation: req.Task.Isolation, RetryPolicyRef: req.Task.Controls.RetryPolicyRef, Labels: req.Task.Labels,
		AllowedCommandsRef: req.Task.Controls.AllowedCommandsRef, OperationPolicyRef: req.Task.Controls.OperationPolicyRef,
		Destructive: req.Task.Controls.Destructive, Use: use, Parameters: params,
	}
	// A target that cannot be used is told when the probe is made.
	targets, _ := runners.Targets(req.Action, req.Parameters, resourcesOf(req))
	for _, t := range targets {
		in.Targets = append(in.Targets, policy.Target{ResourceID: t.ResourceID, Host: t.Host, Port: t.Port})
	}
	return in
}

func resourcesOf(req Request) []runners.Resource {
	out := make([]runners.Resource, len(req.Resources))
	for i, r := range req.Resources {
		out[i] = r.Resource
	}
	return out
}

// maxKnownHosts bounds an input artifact with host keys, in bytes.
const maxKnownHosts = 1 << 20

// hostKeys gives the known_hosts lines that the job names: by policy's name, or in an
// input artifact.
func hostKeys(req Request, c customParameters, in policy.Input, g *guard) ([]string, error) {
	if c.HostKeysRef != "" {
		lines, verdict := req.Policy.HostKeyGrant(in)
		g.note("host keys "+c.HostKeysRef, verdict)
		if !verdict.Allow {
			return nil, refused("the host keys %q are refused", c.HostKeysRef)
		}
		return lines, nil
	}
	if c.KnownHosts == "" {
		return nil, fmt.Errorf("the probe %q logs in to a host: name its keys in host_keys_ref or known_hosts", c.Probe)
	}
	path, ok := req.Task.Inputs[c.KnownHosts]
	if !ok {
		return nil, fmt.Errorf("known_hosts names the input artifact %q, which the job does not have", c.KnownHosts)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the input artifact %q: %w", c.KnownHosts, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKnownHosts+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the input artifact %q: %w", c.KnownHosts, err)
	case len(data) > maxKnownHosts:
		return nil, fmt.Errorf("the input artifact %q has more than %d bytes", c.KnownHosts, maxKnownHosts)
	}
	return strings.Split(string(data), "\n"), nil
}
