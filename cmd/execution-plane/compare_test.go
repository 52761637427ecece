package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

var otherAttempt = domain.NewID[domain.AttemptID](uuid.MustParse("a0000000-0000-4000-8000-000000000002"))

// two are an attempt with a host that was down, and its repetition.
func two(t *testing.T) paths {
	t.Helper()
	event := func(version int64, e domain.Event) wire.Event {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return wire.Event{Version: version, Type: e.EventType(), Schema: 1, PayloadBase64: b}
	}
	hosts := domain.ArtifactIDOf(otherAttempt, runners.ArtifactAnsibleHosts)
	p := paths{"/v1/artifacts/" + hosts.String(): `bytes:{"ok":["node-0"],"changed":["node-2"],"unreachable":[]}`}
	for i, id := range []domain.AttemptID{someAttempt, otherAttempt} {
		at := "/v1/attempts/" + id.String()
		v := wire.Attempt{AttemptID: id, State: "failed", CreatedAt: someTime.Add(time.Duration(i) * time.Hour)}
		r := domain.ExecutionResult{AttemptID: id, Status: domain.StatusFailed, ExitSummary: domain.ExitSummary{Category: domain.CategoryUnknown, Message: "The job failed."}, FailureCode: domain.CodeTargetUnreachable,
			Contract: []domain.ContractItem{{Kind: "evidence", Name: "app", Verdict: "missing"}}, SideEffects: "possible"}
		a := wire.Artifact{ArtifactRef: domain.ArtifactRef{ID: domain.ArtifactIDOf(id, runners.ArtifactAnsibleHosts), Name: runners.ArtifactAnsibleHosts}, Bytes: 9, SHA256: "x",
			Inline: json.RawMessage(`{"ok":["node-0"],"changed":["node-0"],"unreachable":["node-2"]}`)}
		release := "4.2"
		if i == 1 {
			v.State, v.RetryOf, release = "succeeded", &someAttempt, "4.3"
			r.Status, r.ExitSummary, r.FailureCode, r.Contract[0].Verdict = domain.StatusSucceeded, domain.ExitSummary{Message: "The job did its work."}, "", "confirmed"
			r.Evidence = []domain.EvidenceRef{{Name: "app", Result: "passed"}}
			a.Inline = nil // it is in object storage
		}
		p[at], p[at+"/result"] = v, r
		p[at+"/job-spec"] = `{"attempt_id":"` + id.String() + `","action":"ansible.playbook.run","inputs":{"parameters":{"a/b":1.50,"variables":{"release":"` + release + `"}}}}`
		p[at+"/artifacts"] = wire.Page[wire.Artifact]{Items: []wire.Artifact{a}}
		p[at+"/events"] = wire.Page[wire.Event]{Items: []wire.Event{
			event(1, domain.PolicyDecided{At: "submit", Verdict: "allow", BundleDigest: "b1"}), event(2, domain.Started{Isolation: "sandbox"}),
			event(3, domain.SecretResolved{Name: "app", Reference: "vault://kv2/app#password", Version: i + 1}),
		}}
	}
	return p
}

func TestCompare(t *testing.T) {
	url := two(t).start(t)
	for name, args := range map[string][]string{
		"with what it repeats": {otherAttempt.String()}, "both named": {someAttempt.String(), otherAttempt.String()}, "the other way round": {otherAttempt.String(), someAttempt.String()},
	} {
		code, out, errOut := cliRun(t, "", append(append([]string{"compare"}, args...), "--url", url, "--token", "t", "-o", "json")...)
		var got comparison
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
			t.Fatalf("%s: %d: %s%s, %v", name, code, out, errOut, err)
		}
		want := comparison{A: someAttempt, B: otherAttempt, Differences: []difference{
			{partJob, "/inputs/parameters/variables/release", `"4.2"`, `"4.3"`},
			{partSecrets, "app", "vault://kv2/app#password version 1", "vault://kv2/app#password version 2"},
			{partOutcome, "category", "unknown", ""}, {partOutcome, "failure code", "target_unreachable", ""},
			{partOutcome, "message", "The job failed.", "The job did its work."}, {partOutcome, "status", "failed", "succeeded"},
			{partContract, "evidence app", "missing", "confirmed"},
			{partHosts, "node-0", "changed, ok", "ok"}, {partHosts, "node-2", "unreachable", "changed"},
			{partEvidence, "app", "", "passed"},
		}, Same: []string{partPolicy, partRunner, partArtifacts}}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(domain.AttemptID{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	code, out, errOut := cliRun(t, "", "compare", otherAttempt.String(), "--url", url, "--token", "t")
	for _, want := range []string{"unreachable", "the same in both: policy, runner, artifacts", "–"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, it lacks %q:\n%s%s", code, want, out, errOut)
		}
	}
}

func TestSubmitAgain(t *testing.T) {
	before := `{"attempt_id":"` + someAttempt.String() + `","action":"verify.tcp.connect","big":12345678901234567890,"retry_of":"` + otherAttempt.String() + `"}`
	b, err := repeated([]byte(before), someAttempt)
	var got map[string]json.RawMessage
	if err != nil || json.Unmarshal(b, &got) != nil {
		t.Fatal(string(b), err)
	}
	if string(got["retry_of"]) != `"`+someAttempt.String()+`"` || string(got["big"]) != "12345678901234567890" || strings.Contains(string(got["attempt_id"]), someAttempt.String()) {
		t.Errorf("%s", b)
	}
	p := paths{"/v1/attempts/" + someAttempt.String() + "/job-spec": before, "/v1/attempts": wire.Receipt{AttemptID: otherAttempt}}
	if code, out, errOut := cliRun(t, "", "submit", "--retry-of", someAttempt.String(), "--detach", "--url", p.start(t), "--token", "t"); code != 0 || !strings.Contains(out, otherAttempt.String()) {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	for _, args := range [][]string{{"submit"}, {"submit", "-f", "x.yaml", "--retry-of", "@latest"}} {
		if code, _, errOut := cliRun(t, "", args...); code != exitUsage || !strings.Contains(errOut, "retry-of") {
			t.Errorf("%v: %d: %s", args, code, errOut)
		}
	}
}

func TestCompareWhatIsNotShown(t *testing.T) {
	p := two(t)
	p["/v1/attempts/"+otherAttempt.String()+"/job-spec"] = wire.Problem{Status: 403, Code: "bundle_quarantined", Detail: "quarantined"}
	p["/v1/artifacts/"+domain.ArtifactIDOf(otherAttempt, runners.ArtifactAnsibleHosts).String()] = wire.Problem{Status: 403, Code: "bundle_quarantined", Detail: "its scan failed"}
	url := p.start(t)
	code, out, errOut := cliRun(t, "", "compare", otherAttempt.String(), "--url", url, "--token", "t", "-o", "json")
	var got comparison
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || len(got.NotCompared) != 2 {
		t.Fatalf("%d: %s%s, %v", code, out, errOut, err)
	}
	if slices.ContainsFunc(got.Differences, func(d difference) bool { return d.Part == partJob || d.Part == partHosts }) {
		t.Errorf("compared all the same: %+v", got)
	}
	if code, _, errOut := cliRun(t, "", "compare", someAttempt.String(), "--url", url, "--token", "t"); code != exitUsage || !strings.Contains(errOut, "repeats no other one") {
		t.Errorf("%d: %s", code, errOut)
	}
}
