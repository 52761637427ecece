package domain_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

func observed(n int, name, capability, result, source string) domain.Fact {
	e := evidence(name, result)
	e.Capability, e.Source = capability, source
	e.ID = domain.NewID[domain.EvidenceID](uuid.NewSHA1(attemptA.UUID(), []byte{byte(n)}))
	return at(30+n, e)
}

// life is a whole stream: these facts between start and completion, and this seal.
func life(t *testing.T, contract domain.OutputContract, s domain.Sealed, between ...domain.Fact) []domain.Fact {
	t.Helper()
	stream := append(running(), between...)
	c := stream[0].Event.(domain.Created)
	c.Contract = contract
	stream[0].Event = c
	end := given(t, completedWith(stream, claim("succeeded"))).when(60, domain.Seal{Sealed: s})
	if end.err != nil {
		t.Fatal(end.err)
	}
	return end.after()
}

func resultOf(t *testing.T, stream []domain.Fact) domain.ExecutionResult {
	t.Helper()
	r, err := domain.ResultOf(stream)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestContractVerdicts(t *testing.T) {
	for _, c := range []struct {
		name    string
		between []domain.Fact
		want    [3]string // capability "cap", artifact "art", evidence "ev"
	}{
		{"nothing", nil, [3]string{"missing", "missing", "missing"}},
		{"evidence by its name", []domain.Fact{observed(1, "ev", "", "passed", "stdout")}, [3]string{"missing", "missing", "confirmed"}},
		{"capability by its evidence", []domain.Fact{observed(1, "other", "cap", "passed", "stdout")}, [3]string{"confirmed", "missing", "missing"}},
		{"evidence named like the capability", []domain.Fact{observed(1, "cap", "", "passed", "stdout")}, [3]string{"missing", "missing", "missing"}},
		{"only inconclusive", []domain.Fact{observed(1, "ev", "cap", "inconclusive", "stdout")}, [3]string{"missing", "missing", "missing"}},
		{"passed and inconclusive", []domain.Fact{observed(1, "ev", "cap", "passed", "stdout"), observed(2, "ev", "cap", "inconclusive", "stdout")}, [3]string{"confirmed", "missing", "confirmed"}},
		{"one failed after one passed", []domain.Fact{observed(1, "ev", "cap", "passed", "stdout"), observed(2, "ev", "cap", "failed", "stdout")}, [3]string{"failed", "missing", "failed"}},
		{"one failed before one passed", []domain.Fact{observed(1, "ev", "cap", "failed", "stdout"), observed(2, "ev", "cap", "passed", "stdout")}, [3]string{"failed", "missing", "failed"}},
		{"artifact by its name", []domain.Fact{artifactAt(31, "art")}, [3]string{"missing", "confirmed", "missing"}},
		{"another artifact", []domain.Fact{artifactAt(31, "Art")}, [3]string{"missing", "missing", "missing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := resultOf(t, life(t, domain.OutputContract{Capabilities: []string{"cap"}, Artifacts: []string{"art"}, Evidence: []string{"ev"}}, sealed(), c.between...))
			kinds, names := [3]string{"capability", "artifact", "evidence"}, [3]string{"cap", "art", "ev"}
			all := true
			if len(r.Contract) != 3 {
				t.Fatalf("%+v", r.Contract)
			}
			for i, item := range r.Contract {
				if item.Kind != kinds[i] || item.Name != names[i] || item.Verdict != c.want[i] || (item.Ref == "") != (item.Verdict == "missing") {
					t.Errorf("%+v, want %s", item, c.want[i])
				}
				all = all && item.Verdict == "confirmed"
			}
			if r.ContractConfirmed() != all || r.Status != domain.StatusSucceeded {
				t.Errorf("confirmed %v, status %s", r.ContractConfirmed(), r.Status)
			}
		})
	}
	kept := resultOf(t, life(t, domain.OutputContract{Evidence: []string{"ev"}}, sealed(), observed(1, "ev", "", "passed", "stdout")))
	none := resultOf(t, life(t, domain.OutputContract{}, sealed()))
	if !kept.ContractConfirmed() || !none.ContractConfirmed() {
		t.Error("a contract without open promises is confirmed")
	}
}

func TestVerdictPointsAtWhatDecidedIt(t *testing.T) {
	wrong := observed(2, "ev", "", "failed", "stdout")
	r := resultOf(t, life(t, domain.OutputContract{Artifacts: []string{"art"}, Evidence: []string{"ev"}}, sealed(),
		observed(1, "ev", "", "passed", "stdout"), wrong, observed(3, "ev", "", "passed", "stdout"), artifactAt(35, "art")))
	if r.Contract[0].Ref != "artifact://"+domain.ArtifactIDOf(attemptA, "art").String() || r.Contract[1].Ref != wrong.Event.(domain.EvidenceRecorded).ID.String() {
		t.Errorf("%+v", r.Contract)
	}
}

func TestOutputsAndArtifactsAreApart(t *testing.T) {
	out := artifactAt(31, "out")
	e := out.Event.(domain.ArtifactCreated)
	e.Output = true
	out.Event = e
	r := resultOf(t, life(t, domain.OutputContract{}, sealed(), out, artifactAt(32, "side"), artifactAt(33, "side2")))
	by := domain.ProducedBy{OperationID: operationA, PlanNodeID: "probe", AttemptID: attemptA}
	ref := func(name string) domain.ArtifactRef {
		return domain.ArtifactRef{ID: domain.ArtifactIDOf(attemptA, name), Name: name, Type: "report", Storage: "s3", URI: "s3://bucket/" + name, Sensitivity: "internal", ProducedBy: by}
	}
	if d := diff([]domain.ArtifactRef{ref("out")}, r.Outputs); d != "" {
		t.Error(d)
	}
	if d := diff([]domain.ArtifactRef{ref("side"), ref("side2")}, r.Artifacts); d != "" {
		t.Error(d)
	}
}

func TestSourceRefs(t *testing.T) {
	r := resultOf(t, life(t, domain.OutputContract{}, sealed(),
		observed(1, "a", "", "passed", "samples"), // the artifact comes after its evidence
		artifactAt(32, "samples"),
		observed(3, "b", "", "passed", "stdout"), observed(4, "c", "", "passed", "stderr"), observed(5, "d", "", "passed", "events"),
		observed(6, "e", "", "passed", "nowhere")))
	var got []string
	for _, e := range r.Evidence {
		got = append(got, e.SourceRef)
	}
	log := func(s string) string { return "log://" + domain.LogID(attemptA, s) }
	want := []string{"artifact://" + domain.ArtifactIDOf(attemptA, "samples").String(), log("stdout"), log("stderr"), log("events"), ""}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRawLogsComeFromTheSeal(t *testing.T) {
	s := sealed()
	s.Logs = []domain.SealedLog{{Stream: "stdout", Bytes: 100, SHA256: digestA, Complete: true, Chunks: 1}, {Stream: "stderr", SHA256: digestB}}
	r := resultOf(t, life(t, domain.OutputContract{}, s))
	prefix := "s3://bucket/" + bundle.Prefix(operationA.UUID(), "probe", attemptA.UUID()) + "logs/"
	want := []domain.LogRef{
		{ID: domain.LogID(attemptA, "stdout"), Stream: "stdout", URI: prefix + "stdout/", Bytes: 100, SHA256: digestA, Complete: true},
		{ID: domain.LogID(attemptA, "stderr"), Stream: "stderr", URI: prefix + "stderr/", SHA256: digestB},
	}
	if d := diff(want, r.RawLogs); d != "" {
		t.Error(d)
	}
}

// TestResultIsPure: the same stream gives the same bytes, also when it was read
// back from storage; the fold changes none of it.
func TestResultIsPure(t *testing.T) {
	stream := life(t, sampleCreated().Contract, sealed(), observed(1, "port-open", "postgres.ready", "passed", "samples"), artifactAt(32, "samples"))
	encodeResult := func(f []domain.Fact) []byte {
		b, err := json.Marshal(resultOf(t, f))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := encodeResult(stream)
	var read []domain.Fact
	for _, f := range stream {
		name, schema, payload, err := domain.EncodeEvent(f.Event)
		if err != nil {
			t.Fatal(err)
		}
		e, err := domain.DecodeEvent(name, schema, payload)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, domain.Fact{Event: e, At: f.At.Local()})
	}
	for range 50 {
		if b := encodeResult(stream); !bytes.Equal(first, b) {
			t.Fatalf("%s\n%s", first, b)
		}
	}
	if b := encodeResult(read); !bytes.Equal(first, b) {
		t.Fatalf("read back:\n%s\n%s", first, b)
	}
}

// TestResultHasNoNullLists: callers iterate without asking.
func TestResultHasNoNullLists(t *testing.T) {
	s := given(t, queued()).when(3600, domain.Tick{})
	r, _ := s.thenEnds(domain.StatusFailed, domain.CodeQueueTimeout)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"contract", "outputs", "artifacts", "evidence", "raw_logs"} {
		if l, ok := m[list].([]any); !ok || len(l) != 0 {
			t.Errorf("%s is %v", list, m[list])
		}
	}
	if v, ok := m["started_at"]; !ok || v != nil {
		t.Errorf("started_at is %v: null says that nothing started", v)
	}
	if v, ok := m["exit_summary"].(map[string]any)["code"]; !ok || v != nil {
		t.Errorf("exit_summary.code is %v: null says that none ran", v)
	}
	if _, ok := m["stop"]; ok {
		t.Error("a stop that nobody asked for")
	}
}

func TestNoResultBeforeTheEnd(t *testing.T) {
	for name, stream := range map[string][]domain.Fact{"nothing": nil, "queued": queued(), "running": running(), "finalizing": uploaded()} {
		if _, err := domain.ResultOf(stream); err == nil {
			t.Errorf("%s has a result", name)
		}
	}
}

// TestEmptyBundleIsAFunctionOfTheAttempt: anybody can compute the bundle of an
// attempt that never ran, and gets what the ledger says.
func TestEmptyBundleIsAFunctionOfTheAttempt(t *testing.T) {
	r, _ := given(t, queued()).when(3600, domain.Tick{}).thenEnds(domain.StatusFailed, domain.CodeQueueTimeout)
	m, err := domain.EmptyManifest(attemptA, operationA, "probe", digestA, domain.CodeQueueTimeout)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	want := domain.RawOutputBundle{ID: m.BundleID.String(), State: "empty", ManifestSHA256: digest.String(), URI: "s3://bucket/" + bundle.ManifestKey(m.Prefix(), digest)}
	if d := cmp.Diff(want, r.RawOutputBundle); d != "" {
		t.Error(d)
	}
	other, _ := given(t, queued()).when(3600, domain.Tick{NoRunner: true}).thenEnds(domain.StatusFailed, domain.CodeNoRunner)
	if other.RawOutputBundle.ManifestSHA256 == r.RawOutputBundle.ManifestSHA256 {
		t.Error("the manifest names the failure code")
	}
}
