package domain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// unverified is the least manifest that an operator can seal with.
func unverified() bundle.Manifest {
	m, err := domain.ManifestHead(created())
	if err != nil {
		panic(err)
	}
	m.State, m.Unverified = bundle.Incomplete, true
	m.Gaps = []bundle.Gap{{Kind: bundle.KindEvents, Name: "events.jsonl", Reason: domain.GapSealedByOperator}}
	return m
}

// chunkOf and fileOf are facts whose keys are those that the intake makes.
func chunkOf(at int, stream string, offset, bytes int64) domain.Fact {
	c := created()
	sum := bundle.Sum(fmt.Appendf(nil, "%s %d", stream, offset))
	key := bundle.LogChunkKey(bundle.Prefix(c.OperationID.UUID(), c.PlanNodeID, c.AttemptID.UUID()), bundle.Stream(stream), offset, sum)
	return domain.Fact{At: sec(at), Event: domain.LogStored{Epoch: 1, Stream: stream, Offset: offset, Bytes: bytes, Key: key, SHA256: sum.String(), ObjectBytes: bytes + 12}}
}

func fileOf(at int, name string, output bool) domain.Fact {
	c := created()
	sum := bundle.Sum([]byte(name))
	prefix := bundle.Prefix(c.OperationID.UUID(), c.PlanNodeID, c.AttemptID.UUID())
	key := bundle.ArtifactKey(prefix, name, sum)
	if output {
		key = bundle.OutputKey(prefix, name, sum)
	}
	return domain.Fact{At: sec(at), Event: domain.ArtifactCreated{Epoch: 1, ID: domain.ArtifactIDOf(c.AttemptID, name), Name: name, Type: "report", Output: output,
		Storage: "s3", Key: key, Sensitivity: "internal", MediaType: "text/plain", Bytes: 7, SHA256: sum.String()}}
}

func TestAnUnverifiedManifestNamesAllThatTheStreamKnows(t *testing.T) {
	c := claim("succeeded")
	c.Logs = []domain.ClaimedLog{{Stream: "stdout", Bytes: 20, SHA256: digestA}, {Stream: "stderr", Bytes: 5, SHA256: digestA}, {Stream: "events", SHA256: digestA}}
	c.Artifacts = 4
	before := append(running(), chunkOf(31, "stdout", 0, 8), chunkOf(32, "stderr", 0, 5), fileOf(33, "report", false), fileOf(34, "plan", true))
	inline := artifactAt(35, "small")
	kept := inline.Event.(domain.ArtifactCreated)
	kept.Key = ""
	inline.Event = kept
	stream := append(completedWith(append(before, inline), c), chunkOf(50, "stdout", 8, 4))
	m, err := domain.UnverifiedManifest(stream)
	if err != nil {
		t.Fatal(err)
	}
	if m.State != bundle.Incomplete || !m.Unverified || len(m.Objects) != 5 {
		t.Errorf("%s, unverified %t, %d objects", m.State, m.Unverified, len(m.Objects))
	}
	for _, o := range m.Objects {
		if o.ProducedBy != "runner/"+runnerA.String() {
			t.Errorf("%s was produced by %q", o.Key, o.ProducedBy)
		}
	}
	wantLogs := []bundle.Log{{Stream: "stdout", Bytes: 12, Chunks: 2}, {Stream: "stderr", Bytes: 5, Chunks: 1}}
	if d := cmp.Diff(wantLogs, m.Logs); d != "" {
		t.Errorf("logs (-want +got):\n%s", d)
	}
	b, err := m.Encode()
	if err != nil || !strings.Contains(string(b), `"state":"incomplete","unverified":true}`) {
		t.Errorf("%s, %v", b, err)
	}
	sorted, err := bundle.DecodeManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	wantGaps := []bundle.Gap{
		{Kind: bundle.KindArtifact, Name: "unregistered-4", Reason: "sealed_by_operator"},
		{Kind: bundle.KindEnvironment, Name: "environment.json", Reason: "sealed_by_operator"},
		{Kind: bundle.KindEvents, Name: "events.jsonl", Reason: "sealed_by_operator"},
		{Kind: bundle.KindJobSpec, Name: "job_spec.json", Reason: "sealed_by_operator"},
		{Kind: bundle.KindLog, Name: "stderr", From: 0, To: 5, Reason: "not_read_back"},
		{Kind: bundle.KindLog, Name: "stdout", From: 12, To: 20, Reason: "sealed_by_operator"},
	}
	if d := cmp.Diff(wantGaps, sorted.Gaps); d != "" {
		t.Errorf("gaps (-want +got):\n%s", d)
	}

	// It speaks of the stream before the order, whatever follows.
	sealing := given(t, stream).when(60, domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: m})
	again, err := domain.UnverifiedManifest(sealing.after())
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.Encode(); err != nil || string(same) != string(b) {
		t.Errorf("after the seal it is another manifest: %v\n%s\n%s", err, b, same)
	}
	r, events := sealing.thenEnds(domain.StatusSucceeded, "")
	if r.RawOutputBundle.State != "incomplete" || r.RawOutputBundle.ManifestSHA256 != bundle.Sum(b).String() || len(events) != 3 {
		t.Errorf("%+v after %d events", r.RawOutputBundle, len(events))
	}
	if want := created().StorageBase + bundle.ManifestKey(m.Prefix(), bundle.Sum(b)); r.RawOutputBundle.URI != want {
		t.Errorf("uri %s, want %s", r.RawOutputBundle.URI, want)
	}
}

// A runner that was lost announced nothing: each of its logs may lack bytes.
func TestAnUnverifiedManifestOfALostRunner(t *testing.T) {
	m, err := domain.UnverifiedManifest(salvaging())
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, g := range m.Gaps {
		if g.Kind == bundle.KindLog && g.Reason == "sealed_by_operator" && g.From == g.To {
			open++
		}
	}
	if open != 3 {
		t.Errorf("%d logs with an open end: %+v", open, m.Gaps)
	}
}

func TestOnlyAFinalizingAttemptIsSealedByAnOperator(t *testing.T) {
	e := given(t, running()).when(30, domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: unverified()}).thenError("illegal_transition")
	if e.Kind != domain.KindConflict || e.Next == "" || !strings.Contains(e.Message, "finalizing") {
		t.Errorf("%+v", e)
	}
}
