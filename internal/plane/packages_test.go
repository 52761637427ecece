package plane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/packages"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// packed is a package of one playbook.
func packed(t *testing.T) (file, digest string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"package.yaml": "name: web-base\nversion: 1.4.0\nplaybooks: [site.yml]\n", "site.yml": "- hosts: all\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(t.TempDir(), "web-base.tar.zst")
	b, err := packages.BuildFile(dir, file, packages.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return file, b.SHA256
}

// approving is a policy that lets test jobs run the playbook of a package.
func approving(t *testing.T, digests ...string) *policy.Bundle {
	t.Helper()
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"packages.yaml": &fstest.MapFile{Data: fmt.Appendf(nil, `packages:
  - id: web
    name: web-base
    sha256: [%s]
    actions: ["ansible.*"]
    environments: ["*"]
    playbooks: ["site.yml"]
    connections: [local, ssh]
`, strings.Join(digests, ", "))}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func playbook(digest string) *domain.JobSpec {
	spec := tcp(newOperation())
	spec.JobType, spec.Action = "ansible", "ansible.playbook.run"
	spec.Inputs.Parameters = json.RawMessage(`{"package":"web-base@sha256:` + digest + `","playbook":"site.yml","known_hosts":"hosts"}`)
	return spec
}

func TestPushPackage(t *testing.T) {
	t.Parallel()
	file, digest := packed(t)
	w := newWorld(t, policy.BuiltinDev())
	raw, err := os.ReadFile(file)
	w.must(err)
	push := func(body string, sum string) (wire.Package, bool, error) {
		return w.operator.PushPackage(t.Context(), newKey(), client.File{Body: strings.NewReader(body), Bytes: int64(len(body)), SHA256: sum})
	}
	cut := string(raw[:len(raw)-5])
	for name, c := range map[string]struct{ body, sum, code string }{
		"another digest": {string(raw), sha("else"), "digest_mismatch"},
		"no package":     {"text", sha("text"), "package_refused"},
		"cut off":        {cut, sha(cut), "package_refused"},
	} {
		if _, _, err := push(c.body, c.sum); client.CodeOf(err) != c.code || !client.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.bucket.Stat(t.Context(), "package/"+c.sum); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("%s: it is stored: %v", name, err)
		}
	}
	if _, _, err := w.control.PushPackage(t.Context(), newKey(), client.File{Body: strings.NewReader("x"), Bytes: 1, SHA256: sha("x")}); !client.IsForbidden(err) {
		t.Errorf("by another role: %v", err)
	}
	if status, code := w.send(http.MethodPut, "/v1/packages/"+strings.ToUpper(digest), w.controlToken, strings.NewReader("x")); status != http.StatusForbidden || code != "role_refused" {
		t.Errorf("%d %s", status, code)
	}
	if n := w.events(commands.PackageStream(digest)); n != 0 {
		t.Errorf("%d events", n)
	}
	want := wire.Package{SHA256: digest, Name: "web-base", Version: "1.4.0", Bytes: int64(len(raw))}
	for i := range 2 {
		if got, created, err := push(string(raw), digest); err != nil || got != want || created != (i == 0) {
			t.Errorf("push %d: %v, %+v, %v", i+1, created, got, err)
		}
	}
	events, err := w.p.Store.ReadStream(t.Context(), commands.PackageStream(digest), 0, 10)
	if err != nil || len(events) != 1 || events[0].Actor.Role != domain.RoleOperator {
		t.Errorf("%+v, %v", events, err)
	}
	items, err := w.viewer.Packages(t.Context())
	if err != nil || len(items) != 1 || items[0].Package != want || items[0].PushedAt.IsZero() {
		t.Errorf("the list: %+v, %v", items, err)
	}
	at, err := w.control.PackageLocation(t.Context(), digest)
	if err != nil || at.SHA256 != digest || at.Bytes != want.Bytes || w.fetch(at.URL) != string(raw) {
		t.Errorf("the package: %+v, %v", at, err)
	}
	if _, err := w.control.PackageLocation(t.Context(), sha("else")); client.CodeOf(err) != "package_unknown" {
		t.Errorf("one that was not pushed: %v", err)
	}
	r, err := projections.Check(t.Context(), w.p.Pool, nil)
	if err != nil || len(r.Differences) > 0 {
		t.Errorf("the read models: %v, %v", r.Differences, err)
	}
}

// Bytes that were stored and not recorded do no harm, and the push again records them.
func TestPushPackageHeals(t *testing.T) {
	t.Parallel()
	file, digest := packed(t)
	w := newWorld(t, policy.BuiltinDev())
	raw, err := os.ReadFile(file)
	w.must(err)
	key := newKey()
	push := func() (wire.Package, bool, error) {
		return w.operator.PushPackage(t.Context(), key, client.File{Body: strings.NewReader(string(raw)), Bytes: -1, SHA256: digest})
	}
	w.broken.prefix = "package/"
	if _, _, err := push(); !client.IsUnavailable(err) {
		t.Fatalf("the append failed: %v", err)
	}
	if err := w.bucket.Verify(t.Context(), "package/"+digest, int64(len(raw)), bundle.Sum(raw)); err != nil {
		t.Error(err)
	}
	if items, err := w.viewer.Packages(t.Context()); err != nil || len(items) != 0 {
		t.Errorf("%+v, %v", items, err)
	}
	if _, created, err := push(); err != nil || !created {
		t.Errorf("again: %v, %v", created, err)
	}
}

// A package that policy approves and nobody pushed is told at submit; one that policy
// does not approve is a refusal by policy. The runner gets the one that its job names.
func TestJobsAndTheirPackage(t *testing.T) {
	t.Parallel()
	file, digest := packed(t)
	w := newWorld(t, approving(t, digest, sha("never pushed")))
	known := domain.ArtifactInput{Name: "hosts", ArtifactRef: "artifact://operation/hosts"}
	job := func(digest string) *domain.JobSpec {
		spec := playbook(digest)
		spec.Target.Resources[0].Binding.Port, spec.Target.Resources[0].Binding.User = 22, "deploy"
		spec.Inputs.Artifacts = []domain.ArtifactInput{known}
		w.put(spec.OperationID, "hosts", "127.0.0.1 ssh-ed25519 AAAA")
		return spec
	}
	for _, sum := range []string{digest, sha("never pushed")} {
		d, err := w.control.DryRun(t.Context(), encode(t, job(sum)))
		if err != nil || d.Valid || len(d.Violations) != 1 || d.Violations[0].Code != "package_unknown" || d.Violations[0].Pointer != "/inputs/parameters/package" {
			t.Fatalf("dry run: %+v, %v", d, err)
		}
		if _, _, err := w.control.SubmitSpec(t.Context(), job(sum)); client.CodeOf(err) != "job_spec_invalid" {
			t.Errorf("submit: %v", err)
		}
	}
	d, err := w.control.DryRun(t.Context(), encode(t, job(sha("not approved"))))
	if err != nil || !d.Valid || d.Policy == nil || d.Policy.Verdict != "deny" {
		t.Errorf("a package that is not approved: %+v, %v", d, err)
	}
	raw, err := os.ReadFile(file)
	w.must(err)
	_, _, err = w.operator.PushPackage(t.Context(), newKey(), client.File{Body: strings.NewReader(string(raw)), Bytes: int64(len(raw)), SHA256: digest})
	w.must(err)
	spec := job(digest)
	lease := w.started(spec)
	at, err := w.runner.Input(t.Context(), lease, "package:"+digest)
	if err != nil || at.SHA256 != digest || w.fetch(at.URL) != string(raw) {
		t.Errorf("the package: %+v, %v", at, err)
	}
	if _, err := w.runner.Input(t.Context(), lease, "package:"+sha("never pushed")); client.CodeOf(err) != "input_unknown" {
		t.Errorf("another package: %v", err)
	}
}

// A runner decides with the bundle that its attempt was offered under, and is given
// the package that this one makes a probe with, whatever became active meanwhile.
func TestPackageOfAProbeAfterAnotherPolicy(t *testing.T) {
	t.Parallel()
	file, digest := packed(t)
	b, err := policy.Overlay(approving(t, digest), fstest.MapFS{"probes.yaml": &fstest.MapFile{Data: []byte(`probes:
  - name: drift
    environments: ["*"]
    check: ansible
    package: web-base@sha256:` + digest + `
    playbook: site.yml
    assert: sample.changed == 0
packages:
  - id: web-probe
    name: web-base
    sha256: [` + digest + `]
    actions: [verify.custom.probe]
    environments: ["*"]
    playbooks: ["site.yml"]
`)}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, b)
	raw, err := os.ReadFile(file)
	w.must(err)
	_, _, err = w.operator.PushPackage(t.Context(), newKey(), client.File{Body: strings.NewReader(string(raw)), Bytes: int64(len(raw)), SHA256: digest})
	w.must(err)
	spec := tcp(newOperation())
	spec.Action, spec.Inputs.Parameters = "verify.custom.probe", json.RawMessage(`{"probe":"drift"}`)
	spec.Target.Resources[0].Binding.Port, spec.Target.Resources[0].Binding.User = 22, "deploy"
	lease := w.started(spec)
	other := policy.BuiltinDev()
	_, err = w.operator.PutPolicyBundle(t.Context(), newKey(), other.Digest(), other.Bytes())
	w.must(err)
	_, err = w.operator.ActivatePolicy(t.Context(), newKey(), wire.ActivatePolicyRequest{BundleDigest: other.Digest(), Reason: "no probes"})
	w.must(err)
	// The replica that answered decides with it.
	d, err := w.control.DryRun(t.Context(), encode(t, tcp(newOperation())))
	if err != nil || d.Policy == nil || d.Policy.BundleDigest != other.Digest() {
		t.Fatalf("after another bundle became active: %+v, %v", d, err)
	}
	at, err := w.runner.Input(t.Context(), lease, "package:"+digest)
	if err != nil || at.SHA256 != digest {
		t.Errorf("the package: %+v, %v", at, err)
	}
}
