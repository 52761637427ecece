package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

// Bounds of one fact, below those of the protocol: a verdict may have more rules and
// reasons than a message carries, and a refusal must be told all the same.
const (
	maxRules   = 64
	maxReasons = 32
	maxSubject = 512      // bytes
	maxDetail  = 15 << 10 // bytes
)

// Fact words a verdict for the record. subject says in a few words what was decided
// on.
func Fact(subject string, v policy.Verdict) (executor.Fact, error) {
	verdict := "allowed"
	if !v.Allow {
		verdict = "denied"
	}
	if len(subject) > maxSubject {
		subject = strings.ToValidUTF8(subject[:maxSubject-len("…")], "") + "…"
	}
	f := executor.Fact{
		Kind: executor.FactPolicyDecided, Verdict: verdict, BundleDigest: v.BundleDigest, InputDigest: v.InputDigest,
		Rules: v.Rules[:min(len(v.Rules), maxRules)], Privileges: slices.Clone(v.Privileges), Subject: subject,
	}
	for n := min(len(v.Reasons), maxReasons); ; n /= 2 {
		detail, err := json.Marshal(struct {
			Reasons []policy.Reason `json:"reasons"`
		}{v.Reasons[:n]})
		if err != nil {
			return executor.Fact{}, fmt.Errorf("encoding a policy decision: %w", err)
		}
		if f.Detail = detail; len(detail) <= maxDetail || n == 0 {
			return f, nil
		}
	}
}
