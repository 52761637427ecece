package agent

import (
	"strings"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/wire"
)

// Bytes of text that the service keeps.
const (
	maxProgressText = 500
	maxDetailText   = 2000
)

// takeMessages takes what the executor says, as claims: bounded by the
// protocol, masked here.
func (at *attempt) takeMessages(messages <-chan executor.Message) {
	for m := range messages {
		switch {
		case m.Progress != nil:
			at.takeProgress(m.Progress)
		case m.Evidence != nil:
			at.takeEvidence(m.Evidence)
		case m.Artifact != nil:
			a := m.Artifact
			at.artifacts.take(announced{name: a.Name, kind: a.ArtifactType, path: a.Path, sensitivity: a.Sensitivity, mediaType: a.MediaType})
		case m.Output != nil:
			o := m.Output
			at.artifacts.take(announced{name: o.Name, kind: o.ArtifactType, path: o.Path, sensitivity: o.Sensitivity,
				mediaType: o.MediaType, inline: o.Inline, output: true})
		case m.Fact != nil:
			at.takeFact(m.Fact)
		case m.Outcome != nil:
			at.note("executor_outcome", map[string]any{"result": m.Outcome.Result, "message": m.Outcome.Message})
		}
	}
}

// takeProgress keeps the latest; the next report carries it.
func (at *attempt) takeProgress(p *executor.Progress) {
	latest := &wire.ReportProgress{
		Phase: at.mask.String(p.Phase), Done: p.Done, Total: p.Total,
		Message: clip(at.mask.String(p.Message), maxProgressText),
	}
	at.mu.Lock()
	at.progress = latest
	at.mu.Unlock()
}

func (at *attempt) takeEvidence(e *executor.Evidence) {
	req := wire.EvidenceRequest{
		Name: at.mask.String(e.Name), Type: e.EvidenceType, Capability: at.mask.String(e.Capability), Result: e.Result,
		Source: at.mask.String(e.Source), ObservedAt: e.ObservedAt.UTC(), Detail: clip(maskText(at.mask, e.Detail), maxDetailText),
	}
	at.records.add(record{key: uuid.New(), evidence: &req})
}

// takeFact words a verdict as the ledger does. What it was about goes to the log.
func (at *attempt) takeFact(f *executor.Fact) {
	verdict := "deny"
	if f.Verdict == "allowed" {
		verdict = "allow"
	}
	at.note("policy_decided", map[string]any{
		"verdict": verdict, "subject": f.Subject, "rules": f.Rules, "detail": f.Detail, "input_digest": f.InputDigest, "privileges": f.Privileges,
	})
	var rules []string
	for _, r := range f.Rules {
		rules = append(rules, at.mask.String(r))
	}
	at.records.add(record{key: uuid.New(), fact: &wire.FactRequest{PolicyDecided: &wire.PolicyFact{
		Verdict: verdict, BundleDigest: at.mask.String(f.BundleDigest), InputDigest: at.mask.String(f.InputDigest), Rules: rules,
		Privileges: f.Privileges,
	}}})
}

// clip keeps at most n bytes, on a border of characters, and shows the cut.
func clip(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(mark)], "") + mark
}
