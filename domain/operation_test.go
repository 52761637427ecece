package domain_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

func toPut(name, sum string) domain.ArtifactCreated {
	return domain.ArtifactCreated{Name: name, Type: "input", Storage: "s3", URI: "s3://b/" + sum, Key: sum, Sensitivity: "internal", Bytes: 3, SHA256: sum}
}

// putAll puts one after the other, as the newest of its name; made counts the events
// of each.
func putAll(t *testing.T, puts ...domain.ArtifactCreated) (o domain.Operation, made []int) {
	t.Helper()
	newest := map[string]*domain.ArtifactCreated{}
	for i, a := range puts {
		events, err := domain.DecideOperation(o, domain.PutArtifact{Artifact: a, Newest: newest[a.Name]}, sec(i))
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, len(events))
		for _, e := range events {
			if o, err = domain.EvolveOperation(o, e, sec(i)); err != nil {
				t.Fatal(err)
			}
			is := e.(domain.ArtifactCreated)
			newest[is.Name] = &is
		}
	}
	return o, made
}

func TestTheNewestOfANameCounts(t *testing.T) {
	public := toPut("plan", digestB)
	public.Sensitivity = "public"
	longer := toPut("plan", digestB)
	longer.Bytes = 4
	o, made := putAll(t, toPut("plan", digestA), toPut("plan", digestA), toPut("plan", digestB), toPut("plan", digestA), toPut("other", digestA), toPut("plan", digestA), public, longer)
	want := []int{1, 0, 1, 1, 1, 0, 1, 1}
	for i := range want {
		if made[i] != want[i] {
			t.Errorf("put %d made %d events, want %d", i+1, made[i], want[i])
		}
	}
	if o.Artifacts != 6 {
		t.Errorf("%+v", o)
	}
}

func TestWhatAnOperationDoesNotTake(t *testing.T) {
	changed := func(change func(*domain.ArtifactCreated)) domain.ArtifactCreated {
		a := toPut("plan", digestA)
		change(&a)
		return a
	}
	full := domain.Operation{Artifacts: domain.MaxOperationArtifacts}
	same := toPut("plan", digestA)
	for name, c := range map[string]struct {
		o    domain.Operation
		a    domain.ArtifactCreated
		code string
	}{
		"a secret":                {a: changed(func(a *domain.ArtifactCreated) { a.Sensitivity = domain.SensitivitySecret }), code: "artifact_secret"},
		"no sensitivity":          {a: changed(func(a *domain.ArtifactCreated) { a.Sensitivity = "" }), code: "artifact_invalid"},
		"a sensitivity of no use": {a: changed(func(a *domain.ArtifactCreated) { a.Sensitivity = "private" }), code: "artifact_invalid"},
		"no name":                 {a: toPut("", digestA), code: "artifact_invalid"},
		"a name with a blank":     {a: toPut("a plan", digestA), code: "artifact_invalid"},
		"a name like an option":   {a: toPut("-plan", digestA), code: "artifact_invalid"},
		"a long name":             {a: toPut(strings.Repeat("x", 201), digestA), code: "artifact_invalid"},
		"one too many":            {o: full, a: toPut("plan", digestA), code: "operation_full"},
	} {
		events, err := domain.DecideOperation(c.o, domain.PutArtifact{Artifact: c.a}, t0)
		var e *domain.Error
		if !errors.As(err, &e) || e.Kind != domain.KindInvalid || e.Code != c.code || len(events) > 0 {
			t.Errorf("%s: %v, %v", name, events, err)
		}
	}
	if events, err := domain.DecideOperation(full, domain.PutArtifact{Artifact: same, Newest: &same}, t0); err != nil || len(events) > 0 {
		t.Errorf("the same bytes at a full operation: %v, %v", events, err)
	}
}

func TestStreamsOfInputsTakeOnlyTheirEvents(t *testing.T) {
	pushed := domain.PackagePushed{Name: "web", SHA256: digestA}
	if _, err := domain.EvolveOperation(domain.Operation{}, pushed, t0); err == nil {
		t.Error("an operation took a package")
	}
	if _, err := domain.EvolvePackage(domain.Package{}, toPut("plan", digestA), t0); err == nil {
		t.Error("a package took an artifact")
	}
}

func TestPackageIsPushedOnce(t *testing.T) {
	pushed := domain.PackagePushed{Name: "web", Version: "1", Bytes: 5, SHA256: digestA}
	events, err := domain.DecidePackage(domain.Package{}, domain.PushPackage{Pushed: pushed}, t0)
	if err != nil || len(events) != 1 {
		t.Fatalf("%v, %v", events, err)
	}
	p, err := domain.EvolvePackage(domain.Package{}, events[0], t0)
	if err != nil || p.PackagePushed != pushed {
		t.Fatalf("%+v, %v", p, err)
	}
	pushed.Name = "called otherwise"
	if events, err := domain.DecidePackage(p, domain.PushPackage{Pushed: pushed}, t0); err != nil || len(events) > 0 {
		t.Errorf("pushed again: %v, %v", events, err)
	}
}

func TestIDsOfWhatIsPut(t *testing.T) {
	one, two := domain.DeriveCommandID(operationA.UUID(), "1"), domain.DeriveCommandID(operationA.UUID(), "2")
	first := domain.PutArtifactIDOf(operationA, one)
	if again := domain.PutArtifactIDOf(operationA, one); again != first || first == domain.PutArtifactIDOf(operationA, two) {
		t.Error("a command gives one id, another command another one")
	}
}

func TestReadableReferences(t *testing.T) {
	id := domain.ArtifactIDOf(attemptA, "plan")
	for text, want := range map[string]domain.ArtifactReference{
		"artifact://" + id.String():               {ID: id},
		"artifact://operation/plan":               {Name: "plan"},
		"artifact://operation/a b/" + id.String(): {Name: "a b/" + id.String()},
		"s3://bucket/a/b c.yml":                   {Bucket: "bucket", Key: "a/b c.yml"},
		"s3://bucket/.../x":                       {Bucket: "bucket", Key: ".../x"},
	} {
		if got, err := domain.ParseArtifactRef(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// A runner gets its inputs while its attempt runs, and under no other lease.
func TestWhoMayHaveInputs(t *testing.T) {
	lease := domain.Lease{RunnerID: runnerA, Epoch: 2, TokenSHA256: digestA, Until: sec(100)}
	f := domain.Fence{RunnerID: runnerA, Epoch: 2, TokenSHA256: digestA}
	at := func(phase domain.Phase) domain.Attempt {
		a := domain.Attempt{ID: attemptA, Phase: phase, Epoch: 2}
		if phase != domain.PhaseClosed {
			a.Lease = &lease
		}
		return a
	}
	code := func(err error) string {
		var e *domain.Error
		if errors.As(err, &e) {
			return e.Code
		}
		return ""
	}
	for phase, want := range map[domain.Phase]string{domain.PhaseLeased: "illegal_transition", domain.PhaseRunning: "", domain.PhaseFinalizing: "illegal_transition", domain.PhaseClosed: "attempt_closed"} {
		if got := code(domain.CheckInputs(at(phase), f, sec(50))); got != want {
			t.Errorf("%s: %q, want %q", phase, got, want)
		}
	}
	if got := code(domain.CheckInputs(at(domain.PhaseRunning), f, sec(500))); got != "lease_lost" {
		t.Errorf("after the lease: %q", got)
	}
	old := f
	old.Epoch = 1
	if got := code(domain.CheckInputs(at(domain.PhaseRunning), old, sec(50))); got != "stale_epoch" {
		t.Errorf("of an old lease: %q", got)
	}
	other := f
	other.TokenSHA256 = digestB
	if got := code(domain.CheckInputs(at(domain.PhaseRunning), other, sec(50))); got != "not_lease_holder" {
		t.Errorf("with another token: %q", got)
	}
}
