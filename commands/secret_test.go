package commands_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

// byID compares ids by their value.
var byID = cmpopts.EquateComparable(domain.AttemptID{})

// pools are two, so that one runner can be of another pool.
const pools = `pools:
  - name: other
    job_types: [verification]
    actions: ["verify.*"]
    environments: ["*"]
    max_slots: 4
`

func withPools(t *testing.T) func(*commands.Config) {
	t.Helper()
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"other.yaml": {Data: []byte(pools)}})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *commands.Config) { c.Policy = func() *policy.Bundle { return b } }
}

func secretSpec(secrets ...domain.SecretInput) (*domain.JobSpec, []byte) {
	s, _ := newSpec()
	s.Inputs.Secrets = secrets
	return s, encode(s)
}

// events are those of a stream.
func (b *bench) events(stream eventstore.StreamID) (out []domain.Event) {
	b.t.Helper()
	stored, err := b.store.ReadStream(b.t.Context(), stream, 0, 1000)
	b.must(err)
	for _, s := range stored {
		e, err := domain.DecodeEvent(s.Type, s.Schema, s.Payload)
		b.must(err)
		out = append(out, e)
	}
	return out
}

// runsWith is an attempt that runs and may read these secrets.
func (b *bench) runsWith(runner domain.RunnerID, secrets ...domain.SecretInput) (domain.AttemptID, commands.LeaseCall) {
	b.t.Helper()
	spec, raw := secretSpec(secrets...)
	_, err := b.s.Submit(b.t.Context(), meta("submit"), spec, raw)
	b.must(err)
	token := uuid.NewString()
	a, err := b.s.Offer(b.t.Context(), spec.AttemptID, b.specText(spec.AttemptID), domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha(token)})
	b.must(err)
	if a.Lease == nil {
		b.t.Fatalf("no lease was given: %+v", a)
	}
	call := commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: runner}
	_, err = b.s.Start(b.t.Context(), meta("start"), call, "process")
	b.must(err)
	return spec.AttemptID, call
}

// What no mapping lets the job read ends it at submit, with the reason; a reference
// that is none is no attempt at all.
func TestSubmitDecidesOnSecrets(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		ref    string
		reason string // "" for allowed
	}{
		{"vault://secret/dev/db", ""},
		{"vault://secret/dev/db#password?version=3", ""},
		{"vault://secret/other", policy.CodeSecretNotMapped},
		{"vault://kv/db", policy.CodeSecretMountNotAllowed},
	} {
		for _, name := range []string{"", "db"} {
			spec, raw := secretSpec(domain.SecretInput{Name: name, SecretRef: c.ref})
			dry, err := b.s.DryRun(t.Context(), spec, raw)
			if err != nil || dry.Policy.Allow != (c.reason == "") || len(dry.Violations) > 0 {
				t.Errorf("dry run of %s: %+v, %v", c.ref, dry, err)
			}
			if _, err := b.s.Submit(t.Context(), meta("submit"), spec, raw); err != nil {
				t.Fatal(err)
			}
			decided := b.events(commands.AttemptStream(spec.AttemptID))[1].(domain.PolicyDecided)
			a, err := b.s.Attempt(t.Context(), spec.AttemptID)
			b.must(err)
			if c.reason == "" {
				if a.Phase != domain.PhaseQueued || !slices.Contains(decided.Rules, "secret_mappings/dev-secrets") {
					t.Errorf("%s: %s, %+v", c.ref, a.Phase, decided)
				}
			} else if a.Outcome == nil || a.Outcome.FailureCode != domain.CodePolicyDenied || !slices.Equal(decided.Reasons, []string{c.reason}) {
				t.Errorf("%s: %+v, %+v", c.ref, a.Outcome, decided)
			}
		}
	}
}

func TestAMalformedReferenceIsNotRepeated(t *testing.T) {
	b := newBench(t)
	for _, value := range []string{
		"hunter2-hunter2", "vault://hunter2", "vault://secret/hunter2 hunter2", "vault://secret//hunter2", "vault://sys/hunter2", "vault://secret/a?version=hunter2",
		"vault://secret/a#hunter2#b", "vault://secret/" + strings.Repeat("hunter2", 200), "VAULT://secret/hunter2", "vault://secret/hunter2\x00",
	} {
		spec, raw := secretSpec(domain.SecretInput{Name: "ok", SecretRef: "vault://secret/dev/db"}, domain.SecretInput{SecretRef: value})
		dry, err := b.s.DryRun(t.Context(), spec, raw)
		if err != nil || len(dry.Violations) != 1 || dry.Violations[0].Pointer != "/inputs/secrets/1/secret_ref" || dry.Policy.BundleDigest != "" {
			t.Errorf("dry run of %q: %+v, %v", value, dry, err)
		}
		_, err = b.s.Submit(t.Context(), meta("submit"), spec, raw)
		var e *domain.Error
		if !errors.As(err, &e) || e.Kind != domain.KindInvalid || len(e.Violations) != 1 || e.Violations[0].Pointer != "/inputs/secrets/1/secret_ref" {
			t.Fatalf("%q: %v", value, err)
		}
		if text := fmt.Sprint(err, e.Details, dry.Violations); strings.Contains(text, "hunter2") {
			t.Errorf("the value is told: %s", text)
		}
		if got := b.events(commands.AttemptStream(spec.AttemptID)); len(got) > 0 {
			t.Errorf("%q: an attempt was made: %v", value, got)
		}
	}
}

// The bundle that is active at the offer decides again.
func TestAnOfferDecidesOnSecretsAgain(t *testing.T) {
	active := policy.BuiltinDev()
	b := newBench(t, func(c *commands.Config) { c.Policy = func() *policy.Bundle { return active } })
	spec, raw := secretSpec(domain.SecretInput{SecretRef: "vault://secret/dev/db"})
	if _, err := b.s.Submit(t.Context(), meta("submit"), spec, raw); err != nil {
		t.Fatal(err)
	}
	runner := b.enrolled()
	stricter, err := policy.Overlay(policy.Builtin(), fstest.MapFS{"targets.yaml": {Data: []byte(
		"targets:\n  - {id: t, actions: ['*'], environments: ['*'], cidrs: [127.0.0.0/8], ports: ['1-65535']}\n")}})
	if err != nil {
		t.Fatal(err)
	}
	active = stricter
	a, err := b.s.Offer(t.Context(), spec.AttemptID, b.specText(spec.AttemptID), domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha("token")})
	if err != nil || a.Outcome == nil || a.Outcome.FailureCode != domain.CodePolicyDenied {
		t.Fatalf("%+v, %v", a.Outcome, err)
	}
	if d := b.events(commands.AttemptStream(spec.AttemptID))[2].(domain.PolicyDecided); d.At != "offer" || !slices.Equal(d.Reasons, []string{policy.CodeSecretMountNotAllowed}) {
		t.Errorf("%+v", d)
	}
}

// What a runner says of a secret must be about an entry of the JobSpec.
func TestAResolvedSecretIsTheJobSpecs(t *testing.T) {
	b := newBench(t)
	id, call := b.runsWith(b.enrolled(), domain.SecretInput{Name: "db", SecretRef: "vault://secret/dev/db#password"}, domain.SecretInput{SecretRef: "vault://secret/dev/api?version=2"})
	stream := commands.AttemptStream(id)
	before := len(b.events(stream))
	good := domain.SecretResolved{Index: 0, Name: "db", Reference: "vault://secret/dev/db#password", Version: 4, Engine: "kv2", Mapping: "secret_mappings/dev-secrets", Accessor: "hmac"}
	for name, change := range map[string]func(*domain.SecretResolved){
		"an index behind the last":  func(e *domain.SecretResolved) { e.Index = 2 },
		"an index before the first": func(e *domain.SecretResolved) { e.Index = -1 },
		"another entry's name":      func(e *domain.SecretResolved) { e.Name = "hunter2" },
		"no name":                   func(e *domain.SecretResolved) { e.Name = "" },
		"a value":                   func(e *domain.SecretResolved) { e.Reference = "hunter2" },
		"another path":              func(e *domain.SecretResolved) { e.Reference = "vault://secret/dev/hunter2#password" },
		"another field":             func(e *domain.SecretResolved) { e.Reference = "vault://secret/dev/db#hunter2" },
		"no field":                  func(e *domain.SecretResolved) { e.Reference = "vault://secret/dev/db" },
		"two versions":              func(e *domain.SecretResolved) { e.Reference = "vault://secret/dev/db#password?version=3" },
		"another version": func(e *domain.SecretResolved) {
			e.Index, e.Name, e.Reference, e.Version = 1, "api", "vault://secret/dev/api?version=3", 3
		},
		"the version left out": func(e *domain.SecretResolved) { e.Index, e.Name, e.Reference = 1, "api", "vault://secret/dev/api" },
	} {
		bad := good
		change(&bad)
		err := b.s.RecordFact(t.Context(), meta(name), call, bad)
		if domain.KindOf(err) != domain.KindInvalid || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(b.events(stream)); n != before {
		t.Fatalf("%d events came of refused facts", n-before)
	}
	versioned := good
	versioned.Reference = "vault://secret/dev/db#password?version=4"
	second := domain.SecretResolved{Index: 1, Name: "secret-2", Reference: "vault://secret/dev/api?version=2", Version: 2, Engine: "kv2", Mapping: "m", Accessor: "hmac"}
	for i, e := range []domain.SecretResolved{good, versioned, second} {
		b.must(b.s.RecordFact(t.Context(), meta(fmt.Sprint(i)), call, e))
		want := e
		want.Epoch = 1
		if d := cmp.Diff(domain.Event(want), b.events(stream)[before+i], byID); d != "" {
			t.Errorf("%d (-want +got):\n%s", i, d)
		}
	}
}

func issued(accessor string, until time.Time) domain.SecretTokenIssued {
	return domain.SecretTokenIssued{Accessor: accessor, Role: "execution-plane-dev", Policies: []string{"read"}, ExpiresAt: until, Purpose: "read"}
}

// enrolledIn lets a runner into another pool.
func (b *bench) enrolledIn(pool string) domain.RunnerID {
	b.t.Helper()
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	b.must(b.s.CreateEnrolment(b.t.Context(), meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: pool, SHA256: sha("secret"), ExpiresAt: b.clock().Add(time.Hour)}))
	_, r := b.enrolment()
	r.Enrolment = &commands.EnrolmentProof{ID: e, Secret: "secret"}
	_, err := b.s.RegisterRunner(b.t.Context(), meta("register"), r)
	b.must(err)
	return r.Registered.RunnerID
}

// Tokens that a runner left are revoked by another of its pool, once, and never
// while somebody holds the attempt.
func TestRevoked(t *testing.T) {
	b := newBench(t, withPools(t))
	gone, helper, foreign := b.enrolled(), b.enrolled(), b.enrolledIn("other")
	id, call := b.started(gone)
	for _, a := range []string{"read-1", "read-2", "done"} {
		b.must(b.s.RecordFact(t.Context(), meta(a), call, issued(a, b.clock().Add(time.Hour))))
	}
	b.must(b.s.RecordFact(t.Context(), meta("revoked"), call, domain.SecretRevoked{Accessors: []string{"done"}}))
	left := []string{"read-2", "read-1", "done", "never-heard-of"}
	noted := func(runner domain.RunnerID) (out []domain.RunnerSecretRevoked) {
		for _, e := range b.events(commands.RunnerStream(runner)) {
			if r, ok := e.(domain.RunnerSecretRevoked); ok {
				out = append(out, r)
			}
		}
		return out
	}

	if err := b.s.Revoked(t.Context(), meta("held"), helper, id, left); codeOf(err) != "secret_token_held" {
		t.Errorf("while it is held: %v", err)
	}
	if _, err := b.s.Tick(t.Context(), id, commands.TickOptions{EvictedRunner: gone}); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Revoked(t.Context(), meta("foreign"), foreign, id, left); codeOf(err) != "foreign_pool" {
		t.Errorf("of another pool: %v", err)
	}
	_, reg := b.enrolment()
	reg.Registered.Name = "a-strange-runner"
	_, err := b.s.RegisterRunner(t.Context(), meta("strange"), reg)
	b.must(err)
	if err := b.s.Revoked(t.Context(), meta("unapproved"), reg.Registered.RunnerID, id, left); codeOf(err) != "runner_refused" {
		t.Errorf("by a runner that policy does not approve: %v", err)
	}
	if err := b.s.Revoked(t.Context(), meta("unknown"), helper, domain.NewID[domain.AttemptID](uuid.New()), left); !errors.Is(err, domain.ErrUnknownAttempt) {
		t.Errorf("of no attempt: %v", err)
	}
	if n := len(noted(helper)) + len(noted(foreign)); n != 0 {
		t.Fatalf("%d refused requests became events", n)
	}

	m := meta("mine")
	b.breakNext(false)
	if err := b.s.Revoked(t.Context(), m, helper, id, left); !errors.Is(err, eventstore.ErrUnavailable) || len(noted(helper)) != 0 {
		t.Fatalf("failed and not persisted: %v, %v", err, noted(helper))
	}
	b.breakNext(true)
	if err := b.s.Revoked(t.Context(), m, helper, id, left); !errors.Is(err, eventstore.ErrUnavailable) || len(noted(helper)) != 1 {
		t.Fatalf("failed but persisted: %v, %v", err, noted(helper))
	}
	for _, again := range []commands.Meta{m, meta("another request")} {
		if err := b.s.Revoked(t.Context(), again, helper, id, left); err != nil {
			t.Errorf("again: %v", err)
		}
	}
	want := []domain.RunnerSecretRevoked{{AttemptID: id, Accessors: []string{"read-1", "read-2"}}}
	if d := cmp.Diff(want, noted(helper), byID); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A runner tells what it revoked late itself, when its attempt takes no fact any
// more.
func TestRevokedByTheRunnerItself(t *testing.T) {
	b := newBench(t)
	runner := b.enrolled()
	id, call := b.started(runner)
	b.must(b.s.RecordFact(t.Context(), meta("issued"), call, issued("read-1", b.clock().Add(time.Hour))))
	c := claim(b.clock())
	c.Artifacts = 1 // the upload lease stays
	_, err := b.s.Complete(t.Context(), meta("complete"), call, c, nil)
	b.must(err)
	b.must(b.s.Revoked(t.Context(), meta("revoked"), runner, id, []string{"read-1"}))
	tokens, err := rowIndex{b.store}.VaultTokens(t.Context(), id)
	if err != nil || len(tokens) != 1 || !tokens[0].Held || !tokens[0].Revoked {
		t.Errorf("%+v, %v", tokens, err)
	}
}

// A secret artifact stays one, and so does what is none.
func TestASensitivityCannotBeChanged(t *testing.T) {
	b := newBench(t)
	_, call := b.started(b.enrolled())
	secret := domain.ArtifactCreated{Name: "kubeconfig", Type: "kubeconfig", Storage: domain.StorageVault, URI: "vault://secret/a?version=1", Sensitivity: "secret", Bytes: 3, SHA256: sha("hmac")}
	plain := artifact("report", "bytes")
	b.must(b.s.RegisterArtifact(t.Context(), meta("1"), call, secret))
	b.must(b.s.RegisterArtifact(t.Context(), meta("2"), call, plain))
	for name, a := range map[string]domain.ArtifactCreated{
		"lowered to internal": {Name: "kubeconfig", Sensitivity: "internal", SHA256: secret.SHA256, Storage: "s3", URI: "s3://b/k"},
		"lowered to public":   {Name: "kubeconfig", Sensitivity: "public", SHA256: sha("x"), Storage: "s3", URI: "s3://b/k"},
		"raised":              {Name: "report", Sensitivity: "secret", SHA256: plain.SHA256, Storage: domain.StorageVault, URI: "vault://secret/b?version=1"},
		"elsewhere":           {Name: "kubeconfig", Sensitivity: "secret", SHA256: secret.SHA256, Storage: domain.StorageVault, URI: "vault://secret/a?version=2"},
	} {
		if err := b.s.RegisterArtifact(t.Context(), meta(name), call, a); codeOf(err) != "artifact_exists" {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.must(b.s.RegisterArtifact(t.Context(), meta("the same again"), call, secret))
}
