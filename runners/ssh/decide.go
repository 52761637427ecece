package ssh

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// policyInput is what the job was decided on at submit, as far as the task tells.
func policyInput(task executor.Task) (policy.Input, error) {
	in := policy.Input{
		Action: task.Action, JobType: task.JobType, Environment: task.Environment,
		Runner: task.Runner, Isolation: task.Isolation, RetryPolicyRef: task.Controls.RetryPolicyRef,
		AllowedCommandsRef: task.Controls.AllowedCommandsRef, OperationPolicyRef: task.Controls.OperationPolicyRef,
		Destructive: task.Controls.Destructive, Labels: task.Labels, Parameters: task.Parameters,
		Use: runners.UseOf(task.Action, task.Parameters, ""),
	}
	var resources []runners.Resource
	for _, r := range task.Resources {
		resources = append(resources, runners.Resource{ID: r.ResourceID, Address: r.Binding.Address, Port: r.Binding.Port, User: r.Binding.User})
	}
	targets, violations := runners.Targets(task.Action, task.Parameters, resources)
	if len(violations) > 0 {
		return in, fmt.Errorf("the job's target cannot be used: %s %s", violations[0].Pointer, violations[0].Message)
	}
	for _, t := range targets {
		in.Targets = append(in.Targets, policy.Target{ResourceID: t.ResourceID, Host: t.Host, Port: t.Port})
	}
	return in, nil
}

// recorder sends messages of the executor protocol. It keeps the first error, since
// work on a host goes on without a reader.
type recorder struct {
	control *executor.Control

	mu   sync.Mutex
	err  error
	told map[string]bool // input digests of decisions already recorded
}

// maxDials bounds how many distinct allowed addresses one attempt reports: a name
// with ever new addresses must not flood the ledger. A refusal is always reported.
const maxDials = 32

// maxFactRules is the protocol's bound of rule ids in one fact.
const maxFactRules = 64

func (r *recorder) keep(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *recorder) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) progress(phase, format string, args ...any) {
	r.keep(r.control.Progress(phase, 0, 0, fmt.Sprintf(format, args...)))
}

// decided records a verdict once, and gives an error that names its reasons where
// it denies.
func (r *recorder) decided(subject string, v policy.Verdict) error {
	r.mu.Lock()
	again := r.told[v.InputDigest] || v.Allow && len(r.told) >= maxDials
	r.told[v.InputDigest] = true
	r.mu.Unlock()
	if !again {
		r.record(subject, v)
	}
	if v.Allow {
		return nil
	}
	var reasons []string
	for _, reason := range v.Reasons {
		reasons = append(reasons, reason.Code+" ("+reason.Detail+")")
	}
	return deniedf("policy refuses %s: %s", subject, strings.Join(reasons, ", "))
}

func (r *recorder) record(subject string, v policy.Verdict) {
	verdict := "allowed"
	if !v.Allow {
		verdict = "denied"
	}
	detail, err := json.Marshal(struct {
		Reasons []policy.Reason `json:"reasons"`
	}{v.Reasons[:min(len(v.Reasons), 32)]})
	if err != nil {
		r.keep(fmt.Errorf("encoding a policy decision: %w", err))
		return
	}
	r.keep(r.control.Fact(executor.Fact{
		Kind: executor.FactPolicyDecided, Verdict: verdict, BundleDigest: v.BundleDigest, InputDigest: v.InputDigest,
		Rules: v.Rules[:min(len(v.Rules), maxFactRules)], Privileges: slices.Clone(v.Privileges), Subject: clip(subject, 200), Detail: detail,
	}))
}

// guard asks policy about the very address that is about to be dialled.
func (j *job) guard(host string, addr netip.AddrPort) error {
	return j.rec.decided(host+" at "+addr.String(), j.bundle.CheckDialOf(j.input, host, addr))
}

// clip gives one printable line of at most so many bytes.
func clip(s string, most int) string {
	s = plain(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "…"
	}
	return s
}
