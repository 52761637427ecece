package domain_test

import (
	"errors"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

func tokenIssued(accessor string) domain.SecretTokenIssued {
	return domain.SecretTokenIssued{Accessor: accessor, Role: "execution-plane", Policies: []string{"read-db"}, ExpiresAt: sec(900), Purpose: "read"}
}

func resolved() domain.SecretResolved {
	return domain.SecretResolved{Name: "db", Reference: "vault://kv/db#password", Version: 3, Engine: "kv2", Mapping: "secret_mappings/db", Accessor: "read-1"}
}

func TestFactsOfSecrets(t *testing.T) {
	fact := func(e domain.Event) domain.RecordFact { return domain.RecordFact{Fence: fenceA, Fact: e} }
	issued, read := tokenIssued("read-1"), resolved()
	issued.Epoch, read.Epoch = 77, 77 // the ledger's epoch counts, not the sender's
	revoked := domain.SecretRevoked{Epoch: 77, Accessors: []string{"read-1"}}
	wantIssued, wantRead, wantRevoked := issued, read, revoked
	wantIssued.Epoch, wantRead.Epoch, wantRevoked.Epoch = 1, 1, 1

	if a := given(t, running()).when(30, fact(issued)).then(wantIssued); a.NeedsScan() || a.SecretFacts != 1 {
		t.Errorf("a token alone is no secret: %+v", a)
	}
	if a := given(t, running()).when(30, fact(read)).then(wantRead); !a.NeedsScan() {
		t.Error("whoever read a secret is scanned")
	}
	given(t, running()).when(30, fact(revoked)).then(wantRevoked)
	for _, e := range []domain.Event{issued, read, revoked} {
		given(t, leased()).when(11, fact(e)).thenError("illegal_transition")
		given(t, finalizing()).when(50, fact(e)).thenError("illegal_transition")
		given(t, salvaging()).when(120, fact(e)).thenError("lease_lost")
		given(t, closed()).when(61, fact(e)).thenError("attempt_closed")
	}
	full := running()
	for range domain.MaxSecretFacts {
		full = append(full, at(21, wantIssued))
	}
	for _, e := range []domain.Event{issued, read, revoked} {
		given(t, full).when(30, fact(e)).thenError("too_many")
	}
	given(t, full).when(30, fact(domain.ProcessTreeReaped{Confirmed: true})).then(domain.ProcessTreeReaped{Epoch: 1, Confirmed: true})
}

// A runner says with which bundle it decided; what it says does not choose the
// bundle that decides for it later.
func TestARunnersVerdictDoesNotChooseTheBundle(t *testing.T) {
	sent := domain.PolicyDecided{Verdict: "allow", BundleDigest: digestA, InputDigest: digestA}
	want := sent
	want.At, want.Epoch = "runner", 1
	a := given(t, running()).when(30, domain.RecordFact{Fence: fenceA, Fact: sent}).then(want)
	if a.PolicyDigest != digestB {
		t.Errorf("the bundle is %s, the offer named %s", a.PolicyDigest, digestB)
	}
}

func TestARunnerNotesWhatAnotherLeft(t *testing.T) {
	note := domain.NoteRevoked{Revoked: domain.RunnerSecretRevoked{AttemptID: attemptA, Accessors: []string{"read-1"}}}
	if _, err := domain.DecideRunner(domain.Runner{}, note, t0); !errors.Is(err, domain.ErrRunnerUnknown) {
		t.Errorf("nobody: %v", err)
	}
	for _, status := range []domain.RunnerStatus{domain.RunnerActive, domain.RunnerOnPause, domain.RunnerInDrain, domain.RunnerIsLost} {
		events, err := domain.DecideRunner(domain.Runner{ID: runnerA, Status: status}, note, t0)
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", status, events, err)
		}
		r, err := domain.EvolveRunner(domain.Runner{ID: runnerA, Status: status}, events[0], t0)
		if err != nil || r.Status != status {
			t.Errorf("%s: it changes the runner to %+v, %v", status, r, err)
		}
	}
}

func TestAccess(t *testing.T) {
	for _, granted := range []bool{true, false} {
		events, err := domain.DecideAccess(domain.AccessLog{}, domain.NoteAccess{Access: sampleAccess(), Granted: granted}, t0)
		if err != nil || len(events) != 1 {
			t.Fatalf("%v, %v", events, err)
		}
		want := domain.Event(domain.AccessDenied{Access: sampleAccess()})
		if granted {
			want = domain.AccessGranted{Access: sampleAccess()}
		}
		if d := diff(want, events[0]); d != "" {
			t.Error(d)
		}
		if _, err := domain.EvolveAccess(domain.AccessLog{}, events[0], t0); err != nil {
			t.Error(err)
		}
	}
	if _, err := domain.EvolveAccess(domain.AccessLog{}, allowed(), t0); err == nil {
		t.Error("an attempt's event was taken into an access log")
	}
}

// The manifest names what lies in object storage: of a secret artifact its
// encryption, and nothing where Vault holds it itself.
func TestStoredObjectsOfSecretArtifacts(t *testing.T) {
	inVault := domain.ArtifactCreated{Epoch: 1, Name: "token", Type: "token", Storage: domain.StorageVault, URI: "vault://kv/a?version=1",
		Sensitivity: domain.SensitivitySecret, Bytes: 10, SHA256: secretA}
	large := inVault
	large.Name, large.Key, large.Bytes = "state", "operations/o/n/a/artifacts/state/"+digestB, 1<<20
	out, err := domain.StoredObjects(append(running(), at(30, inVault), at(31, large)))
	if err != nil || len(out) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	if o := out[0]; o.Key != large.Key || o.SHA256.String() != digestB || o.Bytes != 1<<20+28 || o.Sensitivity != "secret" {
		t.Errorf("%+v", o)
	}
	if a := fold(append(running(), at(30, inVault))); !a.NeedsScan() {
		t.Error("an attempt with a secret artifact is scanned")
	}
}

func TestTooManySecrets(t *testing.T) {
	spec := goodSpec()
	for len(spec.Inputs.Secrets) < domain.MaxSecrets {
		spec.Inputs.Secrets = append(spec.Inputs.Secrets, domain.SecretInput{SecretRef: "vault://kv/db"})
	}
	if v := spec.Validate(domain.DefaultControlLimits()); len(v) > 0 {
		t.Errorf("as many as there may be: %v", v)
	}
	spec.Inputs.Secrets = append(spec.Inputs.Secrets, domain.SecretInput{SecretRef: "vault://kv/db"})
	if v := spec.Validate(domain.DefaultControlLimits()); len(v) != 1 || v[0].Pointer != "/inputs/secrets" {
		t.Errorf("one more: %v", v)
	}
}
