package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/gowebpki/jcs"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Golden files are written once for a schema and never change afterwards.
var update = flag.Bool("update", false, "write missing golden files of this schema")

func object(kind bundle.Kind, name string, key func(prefix, name string, sum bundle.SHA256) string, data []byte) bundle.Object {
	p := bundle.Prefix(operation, "install/node 1", attempt)
	return bundle.Object{
		Name: name, Key: key(p, name, bundle.Sum(data)), Kind: kind, Type: string(kind), Sensitivity: bundle.Internal,
		Bytes: int64(len(data)), SHA256: bundle.Sum(data), MediaType: "application/json", ProducedBy: "service",
	}
}

func unnamed(key func(prefix string, sum bundle.SHA256) string) func(string, string, bundle.SHA256) string {
	return func(prefix, _ string, sum bundle.SHA256) string { return key(prefix, sum) }
}

func chunkObject(stream bundle.Stream, offset int64, text string) (bundle.Object, []byte) {
	data := bundle.AppendFrame(nil, 1_700_000_000_000_000+offset, []byte(text))
	o := object(bundle.KindLog, string(stream), func(p, _ string, sum bundle.SHA256) string {
		return bundle.LogChunkKey(p, stream, offset, sum)
	}, data)
	o.Type, o.MediaType, o.ProducedBy = "log_frames", "application/octet-stream", "runner/r1"
	o.Log = &bundle.LogPart{Stream: stream, Offset: offset, Length: int64(len(text))}
	return o, data
}

// sample is a bundle in which everything occurs, with its objects by key.
func sample() (bundle.Manifest, map[string][]byte) {
	m := bundle.Manifest{
		Schema: bundle.ManifestSchema, BundleID: bundle.BundleID(attempt), AttemptID: attempt, OperationID: operation,
		PlanNodeID: "install/node 1", JobSpecSHA256: bundle.Sum([]byte("spec")), State: bundle.Incomplete,
		Logs: []bundle.Log{
			{Stream: bundle.Stdout, Bytes: 12, Chunks: 2, Complete: true, SHA256: bundle.Sum([]byte("hello\nworld\n"))},
			{Stream: bundle.Stderr, Bytes: 4, Chunks: 1},
		},
		Gaps: []bundle.Gap{
			{Kind: bundle.KindLog, Name: "stderr", From: 0, To: 100, Reason: "upload_lease_expired"},
			{Kind: bundle.KindArtifact, Name: "zweite Datei", Reason: "upload_lease_expired"},
		},
		Redactions: map[string]int64{"vault://ssh/prod#key": 3, "vault://db/\u20ac?version=2": 1, "vault://db/\U0001f511": 2},
	}
	store := map[string][]byte{}
	add := func(o bundle.Object, data []byte) {
		m.Objects = append(m.Objects, o)
		store[o.Key] = data
	}
	add(chunkObject(bundle.Stdout, 6, "world\n"))
	add(chunkObject(bundle.Stdout, 0, "hello\n"))
	add(chunkObject(bundle.Stderr, 100, "oops"))
	for _, o := range []struct {
		kind bundle.Kind
		name string
		key  func(string, string, bundle.SHA256) string
		data string
	}{
		{bundle.KindJobSpec, "job_spec.json", unnamed(bundle.JobSpecKey), `{"a":1}`},
		{bundle.KindEnvironment, "environment.json", unnamed(bundle.EnvironmentKey), `{}`},
		{bundle.KindEvents, "events.jsonl", unnamed(bundle.EventsKey), "{}\n"},
		{bundle.KindArtifact, "Bericht \"ä\"\t\u2028\u007f\u0001", bundle.ArtifactKey, "report"},
		{bundle.KindOutput, "plan.json", bundle.OutputKey, ""},
	} {
		add(object(o.kind, o.name, o.key, []byte(o.data)), []byte(o.data))
	}
	return m, store
}

func encode(t *testing.T, m bundle.Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the bytes of a schema must never change\n got %s\nwant %s", name, got, want)
	}
}

func TestManifestGolden(t *testing.T) {
	m, _ := sample()
	golden(t, "manifest.v1.json", encode(t, m))
}

func TestEmptyManifestGolden(t *testing.T) {
	m := bundle.EmptyManifest(attempt, operation, "install/node 1", bundle.Sum([]byte("spec")), "policy_denied")
	golden(t, "empty.v1.json", encode(t, m))
	got, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	const want = "615f30361e40f74cb76eca73d3e14d4cd53110e66c2bb5155cce087bacb81a7b"
	if got.String() != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestBundleID(t *testing.T) {
	id := bundle.BundleID(attempt)
	if id.Version() != 5 || id != bundle.BundleID(attempt) || id == bundle.BundleID(operation) {
		t.Errorf("bundle id %s", id)
	}
}

// The canonical form must be what any RFC 8785 library makes of the same JSON.
func TestEncodeIsRFC8785(t *testing.T) {
	m, _ := sample()
	for _, m := range []bundle.Manifest{m, bundle.EmptyManifest(attempt, operation, "n", bundle.Sum(nil), "no_runner")} {
		got := encode(t, m)
		want, err := jcs.Transform(got)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("encoded\n%s\ncanonical\n%s", got, want)
		}
	}
}

func TestEncodeIgnoresOrder(t *testing.T) {
	a, _ := sample()
	b, _ := sample()
	for i, j := 0, len(b.Objects)-1; i < j; i, j = i+1, j-1 {
		b.Objects[i], b.Objects[j] = b.Objects[j], b.Objects[i]
	}
	b.Logs[0], b.Logs[1] = b.Logs[1], b.Logs[0]
	b.Gaps[0], b.Gaps[1] = b.Gaps[1], b.Gaps[0]
	first := b.Objects[0].Key
	if !bytes.Equal(encode(t, a), encode(t, b)) {
		t.Error("the order of lists changes the bytes")
	}
	if b.Objects[0].Key != first {
		t.Error("encoding reordered the caller's slice")
	}
}

func TestManifestRoundTrip(t *testing.T) {
	m, _ := sample()
	data := encode(t, m)
	got, err := bundle.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encode(t, got), data) {
		t.Error("decoding and encoding changes the bytes")
	}
	if diff := cmp.Diff(m.Redactions, got.Redactions); diff != "" {
		t.Errorf("redactions (-want +got):\n%s", diff)
	}
}

func TestDecodeManifestIsStrict(t *testing.T) {
	m, _ := sample()
	data := string(encode(t, m))
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(data), "", " "); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"empty":           "",
		"no object":       "[]",
		"cut":             data[:len(data)-1],
		"trailing space":  data + "\n",
		"two documents":   data + data,
		"indented":        indented.String(),
		"unknown member":  strings.Replace(data, `{"attempt_id"`, `{"a":1,"attempt_id"`, 1),
		"repeated member": strings.Replace(data, `"schema":1`, `"schema":1,"schema":1`, 1),
		"other schema":    strings.Replace(data, `"schema":1`, `"schema":2`, 1),
		"null list":       strings.Replace(data, `"gaps":[`, `"gaps":null,"x":[`, 1),
		"upper-case hash": strings.Replace(data, m.JobSpecSHA256.String(), strings.ToUpper(m.JobSpecSHA256.String()), 1),
		"float":           strings.Replace(data, `"chunks":2`, `"chunks":2.0`, 1),
		"other case":      strings.Replace(data, `"state"`, `"State"`, 1),
	} {
		if in == data {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := bundle.DecodeManifest([]byte(in)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestValidateNamesContradictions(t *testing.T) {
	tests := []struct {
		name   string
		change func(*bundle.Manifest)
		want   string
	}{
		{"foreign bundle id", func(m *bundle.Manifest) { m.BundleID = uuid.Max }, "bundle_id"},
		{"no attempt", func(m *bundle.Manifest) { m.AttemptID = uuid.Nil }, "attempt_id"},
		{"no operation", func(m *bundle.Manifest) { m.OperationID = uuid.Nil }, "operation_id"},
		{"no plan node", func(m *bundle.Manifest) { m.PlanNodeID = "" }, "plan_node_id"},
		{"plan node is no text", func(m *bundle.Manifest) { m.PlanNodeID = "\xff" }, "plan_node_id"},
		{"no job spec", func(m *bundle.Manifest) { m.JobSpecSHA256 = bundle.SHA256{} }, "job_spec_sha256"},
		{"state", func(m *bundle.Manifest) { m.State = "quarantined" }, "state"},
		{"complete with gaps", func(m *bundle.Manifest) { m.State = bundle.Complete }, "gaps"},
		{"empty with objects", func(m *bundle.Manifest) { m.State = bundle.Empty }, "empty"},
		{"failure code", func(m *bundle.Manifest) { m.FailureCode = "lease_lost" }, "failure_code"},
		{"an object twice", func(m *bundle.Manifest) { m.Objects = append(m.Objects, m.Objects[4]) }, "twice"},
		{"foreign key", func(m *bundle.Manifest) { m.Objects[3].Key = "operations/x" }, "give the key"},
		{"other digest than in the key", func(m *bundle.Manifest) { m.Objects[3].SHA256 = bundle.Sum(nil) }, "give the key"},
		{"name that is no text", func(m *bundle.Manifest) { m.Objects[3].Name = "\xff" }, "UTF-8"},
		{"kind", func(m *bundle.Manifest) { m.Objects[3].Kind = "core_dump" }, "kind"},
		{"sensitivity", func(m *bundle.Manifest) { m.Objects[3].Sensitivity = "" }, "sensitivity"},
		{"size", func(m *bundle.Manifest) { m.Objects[3].Bytes = -1 }, "size"},
		{"log without place", func(m *bundle.Manifest) { m.Objects[0].Log = nil }, "log member"},
		{"place without log", func(m *bundle.Manifest) { m.Objects[3].Log = &bundle.LogPart{} }, "log member"},
		{"log far out", func(m *bundle.Manifest) { m.Objects[0].Log.Offset = math.MaxInt64 }, "part of a log"},
		{"log bytes", func(m *bundle.Manifest) { m.Logs[0].Bytes++ }, "the objects hold"},
		{"log chunks", func(m *bundle.Manifest) { m.Logs[0].Chunks++ }, "the objects hold"},
		{"log not listed", func(m *bundle.Manifest) { m.Logs = m.Logs[:1] }, "not listed"},
		{"log listed twice", func(m *bundle.Manifest) { m.Logs[1] = m.Logs[0] }, "twice"},
		{"complete log without digest", func(m *bundle.Manifest) { m.Logs[0].SHA256 = bundle.SHA256{} }, "sha256"},
		{"incomplete log with digest", func(m *bundle.Manifest) { m.Logs[1].SHA256 = bundle.Sum(nil) }, "sha256"},
		{"gap in a complete log", func(m *bundle.Manifest) { m.Gaps[0].Name = "stdout" }, "gap"},
		{"hole without gap", func(m *bundle.Manifest) { m.Gaps[0].From = 1 }, "no gap says so"},
		{"gap of no range", func(m *bundle.Manifest) { m.Gaps[0].To = -1 }, "range"},
		{"gap without reason", func(m *bundle.Manifest) { m.Gaps[1].Reason = "" }, "reason"},
		{"gap of an artifact with offsets", func(m *bundle.Manifest) { m.Gaps[1].To = 5 }, "offsets"},
		{"count of redactions", func(m *bundle.Manifest) { m.Redactions["vault://x"] = 0 }, "redactions"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := sample()
			tt.change(&m)
			if _, err := m.Encode(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one about %q", err, tt.want)
			}
		})
	}
	overlap, _ := sample()
	o, _ := chunkObject(bundle.Stdout, 3, "lo\nwor")
	overlap.Objects = append(overlap.Objects, o)
	if err := overlap.Validate(); err == nil || !strings.Contains(err.Error(), "two chunks") {
		t.Errorf("overlapping chunks: error %v", err)
	}
	unexplained := bundle.EmptyManifest(attempt, operation, "n", bundle.Sum(nil), "")
	if err := unexplained.Validate(); err == nil {
		t.Error("an empty bundle without a failure code was accepted")
	}
}

func FuzzDecodeManifest(f *testing.F) {
	m, _ := sample()
	full, err := m.Encode()
	if err != nil {
		f.Fatal(err)
	}
	empty, err := bundle.EmptyManifest(attempt, operation, "n", bundle.Sum(nil), "no_runner").Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add(empty)
	f.Add([]byte(`{}`))
	f.Add(bytes.Replace(empty, []byte(`"n"`), []byte(`"\ud800"`), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := bundle.DecodeManifest(data)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("accepted %q, encoded again %q, %v", data, again, err)
		}
		canonical, err := jcs.Transform(data)
		if err != nil || !bytes.Equal(canonical, data) {
			t.Fatalf("accepted %q, RFC 8785 says %q, %v", data, canonical, err)
		}
	})
}
