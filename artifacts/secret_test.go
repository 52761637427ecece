package artifacts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

const stores = `secret_mappings:
  - name: artifacts
    store: vault://secret/artifacts/{operation_id}/{attempt_id}/{artifact_name}
    environments: ["*"]
    job_types: [verification]
    actions: ["*"]
    policies: [write]
    token_role: role
`

// newStoringBench lets attempts store secret artifacts.
func newStoringBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, domain.FastProfile())
	p, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"stores.yaml": {Data: []byte(stores)}})
	b.must(err)
	b.s.Config.Policy = func() *policy.Bundle { return p }
	return b
}

// placeOf is where policy lets an attempt store an artifact.
func (b *bench) placeOf(id domain.AttemptID, name string) string {
	b.t.Helper()
	return fmt.Sprintf("vault://secret/artifacts/%s/%s/%s", b.state(id).OperationID, id, name)
}

func (b *bench) inVault(id domain.AttemptID, name, content string) artifacts.Announcement {
	b.t.Helper()
	return artifacts.Announcement{Name: name, Type: "kubeconfig", Sensitivity: "secret", Bytes: int64(len(content)),
		Vault: &artifacts.VaultPlace{Reference: b.placeOf(id, name) + "?version=1", HMACSHA256: sha("keyed" + content)}}
}

func (b *bench) artifactsOf(id domain.AttemptID) (out []domain.ArtifactCreated) {
	b.t.Helper()
	events, err := b.store.ReadStream(b.t.Context(), commands.AttemptStream(id), 0, 1000)
	b.must(err)
	for _, e := range events {
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		b.must(err)
		if a, ok := d.(domain.ArtifactCreated); ok {
			out = append(out, a)
		}
	}
	return out
}

// liesAt says that the reference stands in a text beside the event, and not in it:
// whoever reads events or the result is not told by them.
func (b *bench) liesAt(a domain.ArtifactCreated, reference string) bool {
	b.t.Helper()
	got, err := b.s.SecretReference(b.t.Context(), a.URI)
	b.must(err)
	_, _, payload, err := domain.EncodeEvent(a)
	b.must(err)
	texts := 0
	domain.EachText(a, func(domain.TextRef) { texts++ })
	return got == reference && texts == 1 && !strings.Contains(string(payload), "vault://")
}

// What lies in Vault is registered by its reference and a keyed digest; nothing of
// it comes here.
func TestASecretArtifactInVault(t *testing.T) {
	b := newStoringBench(t)
	id, call := b.started()
	n := b.inVault(id, "kubeconfig", "content")
	for range 2 {
		got, err := b.intake.Announce(t.Context(), meta("announce"), call, n)
		if err != nil || !got.Stored || got.Upload != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	all, a := b.artifactsOf(id), b.state(id)
	if len(all) != 1 || len(b.storage.tried()) > 0 || !a.NeedsScan() {
		t.Fatalf("%d events, stored %v", len(all), b.storage.tried())
	}
	if a := all[0]; a.Storage != "vault" || !b.liesAt(a, n.Vault.Reference) || a.Key != "" || a.SHA256 != n.Vault.HMACSHA256 || a.Bytes != 7 ||
		a.Sensitivity != "secret" || a.Inline != nil || a.ID != domain.ArtifactIDOf(id, "kubeconfig") {
		t.Errorf("%+v", a)
	}
	moved := n
	moved.Vault = &artifacts.VaultPlace{Reference: b.placeOf(id, "kubeconfig") + "?version=2", HMACSHA256: n.Vault.HMACSHA256}
	if _, err := b.intake.Announce(t.Context(), meta("moved"), call, moved); codeOf(err) != "artifact_exists" {
		t.Errorf("the same bytes in another version: %v", err)
	}
	lower := announcement("kubeconfig", "content")
	up, err := b.intake.Announce(t.Context(), meta("lower"), call, lower)
	b.must(err)
	b.upload(up.Upload, "content", true)
	if _, err := b.intake.Announce(t.Context(), meta("lower again"), call, lower); codeOf(err) != "artifact_exists" {
		t.Errorf("the name with a lower sensitivity: %v", err)
	}
	inline := artifacts.Announcement{Name: "kubeconfig", Type: "kubeconfig", Sensitivity: "public", Inline: []byte(`{}`)}
	if _, err := b.intake.Announce(t.Context(), meta("inline"), call, inline); codeOf(err) != "artifact_exists" || len(b.artifactsOf(id)) != 1 {
		t.Errorf("the name inline: %v", err)
	}
}

// A large one lies encrypted in object storage, where it is verified, named and
// scrubbed by what it is there.
func TestALargeSecretArtifact(t *testing.T) {
	b := newStoringBench(t)
	id, call := b.started()
	clear := strings.Repeat("k", 600<<10)
	encrypted := "nonce-12-byt" + strings.Repeat("x", len(clear)) + "tag-of-16-bytes!"
	_, err := b.s.FingerprintKey(t.Context(), call)
	b.must(err)
	_, err = b.s.AddFingerprints(t.Context(), call, nil, 8)
	b.must(err)
	n := b.inVault(id, "events.jsonl", clear) // as an object of the service's own is called
	n.Vault.ObjectBytes, n.Vault.ObjectSHA256 = int64(len(encrypted)), sha(encrypted)
	first, err := b.intake.Announce(t.Context(), meta("announce"), call, n)
	b.must(err)
	if first.Stored || first.Upload == nil || len(b.artifactsOf(id)) != 0 {
		t.Fatalf("announced: %+v", first)
	}
	b.upload(first.Upload, clear, false)
	b.upload(first.Upload, encrypted, true)
	second, err := b.intake.Announce(t.Context(), meta("register"), call, n)
	if err != nil || !second.Stored {
		t.Fatalf("%+v, %v", second, err)
	}
	a := b.artifactsOf(id)[0]
	if a.Storage != "vault" || !b.liesAt(a, n.Vault.Reference) || !strings.HasSuffix(a.Key, "/"+sha(encrypted)) || a.SHA256 != n.Vault.HMACSHA256 || a.Bytes != int64(len(clear)) {
		t.Errorf("%+v", a)
	}

	s := &shelf{storage: b.storage}
	report, err := b.scrubber(s).Pass(t.Context(), &id, commands.Scrubber, nil)
	if err != nil || !report.OK() || report.Objects != 1 || report.Bytes != int64(len(encrypted)) {
		t.Errorf("scrubbed: %+v, %v", report, err)
	}
	s.harm(a.Key, func(v []byte) []byte { return v[1:] })
	report, err = b.scrubber(s).Pass(t.Context(), &id, commands.Scrubber, nil)
	if err != nil || len(report.Findings) != 1 || report.Findings[0].Problem != domain.ScrubWrongSize || *report.Findings[0].Bytes != int64(len(encrypted)) || report.Findings[0].SHA256 != sha(encrypted) {
		t.Errorf("scrubbed a harmed one: %+v, %v", report, err)
	}

	b.complete(call, 1, nil)
	b.sealed(id)
	// The service's own objects and the manifest are read; what is encrypted is not.
	if v, ok := b.verdict(id).(domain.ScanPassed); !ok || v.Objects != 4 || !slices.Equal(v.Skipped, []string{"artifact events.jsonl: encrypted"}) {
		t.Errorf("the verdict is %+v", b.verdict(id))
	}
	m := b.manifest(id)
	at := slices.IndexFunc(m.Objects, func(o bundle.Object) bool { return o.Key == a.Key })
	if at < 0 || m.Objects[at].Bytes != int64(len(encrypted)) || m.Objects[at].SHA256.String() != sha(encrypted) || m.Objects[at].Sensitivity != bundle.Secret {
		t.Errorf("the manifest names %+v", m.Objects)
	}
	s = &shelf{storage: b.storage}
	if report, err = b.scrubber(s).Pass(t.Context(), &id, commands.Scrubber, nil); err != nil || !report.OK() || report.Objects < 5 {
		t.Errorf("scrubbed when sealed: %+v, %v", report, err)
	}
}

func TestRefusedSecretArtifacts(t *testing.T) {
	b := newStoringBench(t)
	id, call := b.started()
	before := b.events(id)
	for name, change := range map[string]func(*artifacts.Announcement){
		"without a place":     func(n *artifacts.Announcement) { n.Vault = nil },
		"of less sensitivity": func(n *artifacts.Announcement) { n.Sensitivity = "internal" },
		"with a digest":       func(n *artifacts.Announcement) { n.SHA256 = sha("hunter2") },
		"inline":              func(n *artifacts.Announcement) { n.Inline = []byte(`"hunter2"`) },
		"no reference":        func(n *artifacts.Announcement) { n.Vault.Reference = "hunter2" },
		"no version":          func(n *artifacts.Announcement) { n.Vault.Reference = b.placeOf(id, "kubeconfig") },
		"a field": func(n *artifacts.Announcement) {
			n.Vault.Reference = b.placeOf(id, "kubeconfig") + "#hunter2?version=1"
		},
		"no keyed digest":     func(n *artifacts.Announcement) { n.Vault.HMACSHA256 = "" },
		"a short digest":      func(n *artifacts.Announcement) { n.Vault.HMACSHA256 = "hunter2" },
		"too large for Vault": func(n *artifacts.Announcement) { n.Bytes = 512<<10 + 1 },
		"a negative size":     func(n *artifacts.Announcement) { n.Bytes = -1 },
		"too large at all": func(n *artifacts.Announcement) {
			n.Bytes = 5<<30 + 1
			n.Vault.ObjectBytes = n.Bytes + 28
			n.Vault.ObjectSHA256 = sha("x")
		},
		"an object of the wrong size": func(n *artifacts.Announcement) {
			n.Vault.ObjectBytes, n.Vault.ObjectSHA256 = n.Bytes, sha("x")
		},
		"an object without a digest": func(n *artifacts.Announcement) { n.Vault.ObjectBytes = n.Bytes + 28 },
		"an object without a size":   func(n *artifacts.Announcement) { n.Vault.ObjectSHA256 = sha("x") },
	} {
		n := b.inVault(id, "kubeconfig", "content")
		change(&n)
		_, err := b.intake.Announce(t.Context(), meta(name), call, n)
		if domain.KindOf(err) != domain.KindInvalid || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, reference := range map[string]string{
		"of another artifact":  b.placeOf(id, "other") + "?version=1",
		"of another attempt":   b.placeOf(b.submit("127.0.0.1"), "kubeconfig") + "?version=1",
		"in another mount":     strings.Replace(b.placeOf(id, "kubeconfig"), "secret/", "kv/", 1) + "?version=1",
		"where it may be read": "vault://secret/dev/kubeconfig?version=1",
	} {
		n := b.inVault(id, "kubeconfig", "content")
		n.Vault.Reference = reference
		if _, err := b.intake.Announce(t.Context(), meta(name), call, n); domain.KindOf(err) != domain.KindForbidden || codeOf(err) != policy.CodeSecretStoreNotAllowed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.events(id) != before || len(b.storage.tried()) != 0 {
		t.Errorf("%d events, stored %v", b.events(id)-before, b.storage.tried())
	}
}

// The bundle that the offer named decides, whatever is active now. One that cannot
// be read is waited for; where there is none, the active one decides.
func TestTheOffersBundleDecidesWhereASecretArtifactGoes(t *testing.T) {
	b := newStoringBench(t)
	active := b.s.Policy()
	b.s.Config.Policy = func() *policy.Bundle { return active }
	id, call := b.started()
	named := active
	elsewhere, err := policy.Overlay(policy.Builtin(), fstest.MapFS{"secrets.yaml": {Data: []byte(`secret_mappings:
  - {name: elsewhere, store: "vault://kv/{attempt_id}/{artifact_name}", environments: ["*"], job_types: [verification], actions: ["*"], policies: [write], token_role: role}
`)}})
	b.must(err)
	active = elsewhere
	b.intake.Policies = artifacts.NewPolicies(b.storage, active)
	then := b.inVault(id, "then", "content")
	now := then
	now.Name, now.Vault = "now", &artifacts.VaultPlace{Reference: fmt.Sprintf("vault://kv/%s/now?version=1", id), HMACSHA256: sha("x")}
	announce := func(n artifacts.Announcement) error {
		_, err := b.intake.Announce(t.Context(), meta(n.Name), call, n)
		return err
	}

	b.storage.setGet(errAway)
	if err := announce(now); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("while it cannot be read: %v", err)
	}
	b.storage.setGet(nil)
	if err := announce(then); codeOf(err) != policy.CodeSecretStoreNotAllowed {
		t.Errorf("it is not kept, and the active one does not allow it: %v", err)
	}
	b.must(announce(now))
	b.must(artifacts.NewPolicies(b.storage, named).Keep(t.Context(), named))
	b.must(announce(then))
	other := now
	other.Name, other.Vault = "other", &artifacts.VaultPlace{Reference: fmt.Sprintf("vault://kv/%s/other?version=1", id), HMACSHA256: sha("x")}
	if err := announce(other); codeOf(err) != policy.CodeSecretStoreNotAllowed {
		t.Errorf("the active one decided: %v", err)
	}
}

// An announcement whose answer was lost registers once.
func TestASecretArtifactIsRegisteredOnce(t *testing.T) {
	b := newStoringBench(t)
	id, call := b.started()
	n := b.inVault(id, "kubeconfig", "content")
	m := meta("announce")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.intake.Announce(cancelled, m, call, n); !errors.Is(err, context.Canceled) || len(b.artifactsOf(id)) != 0 {
		t.Fatalf("failed and not persisted: %v", err)
	}
	for range 3 {
		_, err := b.intake.Announce(t.Context(), m, call, n)
		b.must(err)
	}
	if got := b.artifactsOf(id); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
