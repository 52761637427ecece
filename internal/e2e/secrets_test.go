package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/policy"
)

// vaulted is a deployment with a Vault, and the secrets in it.
type vaulted struct {
	*world
	vault  *vaulttest.Process
	setup  vaulttest.Setup
	values []string
}

// secretPolicy maps what the tests read.
const secretPolicy = `
secret_mappings:
  - name: tests
    reference: vault://kv2/**
    environments: [test]
    job_types: [verification]
    actions: ["*"]
    policies: [read-kv2]
    token_role: attempts
  - name: accounts
    reference: vault://accounts/**
    environments: [test]
    job_types: [verification]
    actions: ["*"]
    policies: [read-accounts]
    token_role: attempts
`

func secretBundle(t *testing.T) *policy.Bundle {
	t.Helper()
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"mapped.yaml": &fstest.MapFile{Data: []byte(secretPolicy)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// random is a value that nothing else in the world contains, with characters that
// every kind of quoting changes.
//
// What is the same in each has fewer bytes than the hunt's window in every form.
func random() string {
	var b strings.Builder
	for _, special := range []string{"+/", "\"<", "&\\", "= ", ""} {
		b.WriteString(rand.Text()[:6] + special)
	}
	return b.String()
}

func newVaulted(t *testing.T) *vaulted {
	t.Helper()
	return newVaultedIn(t, func(s setup) *world { return newWorld(t, s) })
}

// newVaultedIn is newVaulted in a world of the caller's making.
func newVaultedIn(t *testing.T, make func(setup) *world) *vaulted {
	t.Helper()
	v := &vaulted{vault: vaulttest.Server(t)}
	v.setup = v.vault.Standard()
	v.world = make(setup{policy: secretBundle(t), profile: quick()})
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Join([]string{rand.Text() + rand.Text(), rand.Text() + rand.Text()}, "\n") + "\n-----END PRIVATE KEY-----\n"
	password, inner := random(), random()
	v.vault.Put("kv2", "app/db", map[string]any{"password": password})
	v.vault.Put("kv2", "app/key", map[string]any{"pem": key})
	v.vault.Put("kv2", "app/creds", map[string]any{"user": "app-user", "token": inner})
	body := strings.Split(key, "\n")
	v.values = []string{password, inner, body[1], body[2]}
	return v
}

// leaks is a job for the leaker.
func leaks(how int, change ...func(*domain.JobSpec)) *domain.JobSpec {
	s := probe("verify.tcp.connect", 1, fmt.Sprintf(`"deadline_seconds":%g,%s`, float64(how)/10, openTCP))
	s.OutputContract = domain.OutputContract{Artifacts: []string{"db-text"}}
	s.Inputs.Secrets = []domain.SecretInput{
		{Name: "db", SecretRef: "vault://kv2/app/db#password"}, {Name: "key", SecretRef: "vault://kv2/app/key#pem"}, {Name: "creds", SecretRef: "vault://kv2/app/creds"},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func (v *vaulted) leaker(url string) *child {
	v.t.Helper()
	return startChild(v.t, verbRunner, "", childConfig{
		URL: url, Enrolment: v.enrolment(), StateDir: filepath.Join(v.t.TempDir(), "runner"), Slots: 4, Executor: verbLeaker,
		Vault: v.vault.Address, RoleID: v.setup.RoleID, SecretIDFile: v.setup.SecretIDFile,
	})
}

// A secret is nowhere after a run, whatever the executor did with it and however it
// ended: not in a table, the bucket, the runner's folders, its tmpfs, a log, a core
// file, a topic of Kafka, or a callback. Its processes never show it in their arguments or environment.
func TestSecretsAreFoundNowhere(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Server(t)
	var d *delivered
	v := newVaultedIn(t, func(s setup) *world {
		d = newDelivered(t, s, broker)
		return d.world
	})
	s := d.serve()
	k := v.leaker(s.plane.URL())
	h := newHunt(t, v.values...)

	type run struct {
		how    int
		id     domain.AttemptID
		status domain.Status
		code   domain.FailureCode
	}
	runs := []run{
		{how: leakerExits, status: domain.StatusSucceeded}, {how: leakerFails, status: domain.StatusFailed, code: domain.CodeTaskFailed},
		{how: leakerCrashes, status: domain.StatusFailed, code: domain.CodeExecutorCrashed}, {how: leakerHangs, status: domain.StatusCancelled, code: domain.CodeCancelled},
	}
	for i := range runs {
		runs[i].id = v.submit(s.control, leaks(runs[i].how))
	}
	hangs := runs[3].id
	v.wantHanging(s, hangs)
	h.processes()
	if _, err := s.control.Cancel(v.ctx, newKey(), hangs, "enough was seen"); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		res := v.result(s.control, r.id)
		if res.Status != r.status || res.FailureCode != r.code || res.RawOutputBundle.State == domain.BundleQuarantined {
			t.Errorf("how %d: %+v", r.how, res)
		}
		v.wantScanned(r.id, domain.ScanPassed{}.EventType())
		for _, stream := range []string{"stdout", "stderr"} {
			h.look("log", stream, []byte(v.readLog(s.control, r.id, stream)))
		}
		if n := strings.Count(v.readLog(s.control, r.id, "stdout"), "raw "); n != 3 {
			t.Errorf("how %d: %d of three secrets were shown, so nothing was tried", r.how, n)
		}
	}
	v.wantVersions(runs[0].id)
	v.wantRevoked(runs[0].id, runs[1].id, runs[2].id, runs[3].id)
	h.database(v.world)
	h.bucket(v.world)
	h.folder("runner's file", k.config.StateDir)
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm"} {
		if dir != "" {
			h.folder("tmpfs file", dir)
		}
	}
	h.look("log of", "the runner", []byte(k.log.String()))
	h.look("log of", "the service", []byte(v.log.String()))
	d.arrived()
	h.delivered(d)
	h.wantLooked("table", "bytes", "object", "process", "log", "log of", "record", "received file")
}

// wantVersions says that the bundle tells which version of each secret was read.
func (v *vaulted) wantVersions(id domain.AttemptID) {
	v.t.Helper()
	for _, o := range v.checkBundle(id).Objects {
		if o.Name != "environment.json" {
			continue
		}
		raw, err := v.object(v.ctx, o.Key)
		if err != nil {
			v.t.Fatal(err)
		}
		var e struct {
			Secrets []struct {
				SecretRef string `json:"secret_ref"`
				Read      *struct {
					Version int    `json:"version"`
					Mapping string `json:"mapping"`
				} `json:"read"`
			} `json:"secrets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			v.t.Fatal(err)
		}
		if len(e.Secrets) != 3 || e.Secrets[2].SecretRef != "vault://kv2/app/creds" || e.Secrets[2].Read == nil || e.Secrets[2].Read.Version != 1 || e.Secrets[2].Read.Mapping != "secret_mappings/tests" {
			v.t.Errorf("the bundle's environment says %s", raw)
		}
		return
	}
	v.t.Error("the bundle has no environment")
}

// wantHanging waits until a leaker has shown everything and hangs.
func (v *vaulted) wantHanging(s *replica, id domain.AttemptID) {
	v.t.Helper()
	v.eventually("a leaker hangs", func() bool {
		p, err := v.desk.Reads.Attempt(v.ctx, id)
		if err == nil && p.FinishedAt != nil {
			v.t.Fatalf("the leaker ended: %+v\n%s", v.result(s.control, id), v.readLog(s.control, id, "events"))
		}
		return err == nil && p.ProgressPhase != nil && *p.ProgressPhase == "hangs"
	})
}

// wantScanned says that the attempt's scan ended so, between seal and end.
func (v *vaulted) wantScanned(id domain.AttemptID, verdict string) {
	v.t.Helper()
	got := v.events(id)
	if n := len(got); n < 3 || got[n-3] != (domain.Sealed{}).EventType() || got[n-2] != verdict {
		v.t.Errorf("the stream does not end with sealed, %s and the end: %v", verdict, got)
	}
}

// wantRevoked says that no token which the ledger names for the attempts lives.
func (v *vaulted) wantRevoked(ids ...domain.AttemptID) {
	v.t.Helper()
	for _, id := range ids {
		accessors := v.accessors(id)
		if len(accessors) == 0 {
			v.t.Errorf("the ledger names no token of %s", id)
		}
		v.eventually("the tokens of "+id.String()+" are revoked", func() bool {
			return !slices.ContainsFunc(accessors, v.vault.TokenAlive)
		})
	}
}

func (v *vaulted) accessors(id domain.AttemptID) []string {
	v.t.Helper()
	var out []string
	for _, e := range v.stream(id) {
		if e.Type != (domain.SecretTokenIssued{}).EventType() {
			continue
		}
		var d domain.SecretTokenIssued
		if err := json.Unmarshal(e.Payload, &d); err != nil {
			v.t.Fatal(err)
		}
		out = append(out, d.Accessor)
	}
	return out
}

// What the masker does not rewrite, the scan finds: a binary file with a secret in
// it puts the bundle into quarantine, and the result goes out as always.
func TestBinaryFileWithASecret(t *testing.T) {
	t.Parallel()
	v := newVaulted(t)
	s := v.startService()
	v.leaker(s.plane.URL())
	id := v.submit(s.control, leaks(leakerBinary))
	res := v.result(s.control, id)
	if res.Status != domain.StatusSucceeded || res.RawOutputBundle.State != domain.BundleQuarantined {
		t.Errorf("result %+v", res)
	}
	v.wantScanned(id, domain.ScanFailed{}.EventType())
	if _, err := s.control.Log(v.ctx, id, "stdout", 0, 0); err == nil || !strings.Contains(err.Error(), "bundle_quarantined") {
		t.Errorf("the log of a quarantined bundle: %v", err)
	}
	h := newHunt(t, v.values...)
	h.database(v.world)
	h.wantLooked("table", "bytes")
}

// The agent is killed while its executor has secrets: the next one ends what is
// left, removes the files, and the tokens are revoked.
func TestAgentDiesWithSecrets(t *testing.T) {
	t.Parallel()
	v := newVaulted(t)
	s := v.startService()
	k := v.leaker(s.plane.URL())
	id := v.submit(s.control, leaks(leakerHangs))
	v.wantHanging(s, id)
	k.kill()
	k = startChild(t, verbRunner, "", k.config) // on the same folder
	if res := v.result(s.control, id); res.Status != domain.StatusFailed {
		t.Errorf("result %+v", res)
	}
	v.wantRevoked(id)
	h := newHunt(t, v.values...)
	h.database(v.world)
	h.bucket(v.world)
	h.folder("runner's file", k.config.StateDir)
	for _, dir := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm"} {
		if dir != "" {
			h.folder("tmpfs file", dir)
		}
	}
	h.wantLooked("table", "object")
}

// The runner dies for good: another one of its pool revokes what it left in Vault.
func TestAnotherRunnerRevokes(t *testing.T) {
	t.Parallel()
	v := newVaulted(t)
	s := v.startService()
	k := v.leaker(s.plane.URL())
	id := v.submit(s.control, leaks(leakerHangs))
	v.wantHanging(s, id)
	gone := v.state(id).Lease.RunnerID
	k.kill()
	v.leaker(s.plane.URL())
	if _, err := s.operator.ChangeRunner(v.ctx, newKey(), gone, "evict", "its host is gone"); err != nil {
		t.Fatal(err)
	}
	v.wantRevoked(id)
	if res := v.result(s.control, id); res.FailureCode != domain.CodeLeaseLost {
		t.Errorf("result %+v", res)
	}
}

// Every way in which a secret cannot be had ends the attempt before its executor
// starts, with a code of its own, and nothing repeats a value.
func TestSecretsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	v := newVaulted(t)
	for path, value := range map[string]any{"app/short": "ab", "app/one": "x", "app/blank": "  \n ", "app/empty": "", "app/null": nil} {
		v.vault.Put("kv2", path, map[string]any{"v": value})
	}
	v.vault.Put("kv2", "app/gone", map[string]any{"v": "was once here"})
	v.vault.Root().Logical().DeleteWithContext(v.ctx, "kv2/data/app/gone")
	s := v.startService()
	v.leaker(s.plane.URL())
	denied := domain.CodeSecretDenied
	for ref, want := range map[string]domain.FailureCode{
		"vault://kv2/app/short#v": denied, "vault://kv2/app/one#v": denied, "vault://kv2/app/blank#v": denied, "vault://kv2/app/empty#v": denied,
		"vault://kv2/app/null#v": denied, "vault://kv2/app/gone#v": denied, "vault://kv2/app/db#nothing": denied, "vault://kv2/app/none#v": denied,
		"vault://kv2/app/db#password?version=9": denied, "vault://kv1/app/db#password": domain.CodePolicyDenied,
	} {
		t.Run(ref, func(t *testing.T) {
			id := v.submit(s.control, leaks(leakerExits, func(j *domain.JobSpec) { j.Inputs.Secrets = []domain.SecretInput{{Name: "db", SecretRef: ref}} }))
			res := v.result(s.control, id)
			if res.Status != domain.StatusFailed || res.FailureCode != want || res.SideEffects != "none" || res.ExitSummary.Category != domain.CategoryPolicy {
				t.Errorf("result %+v", res)
			}
		})
	}
	v.vault.Seal()
	began := time.Now()
	id := v.submit(s.control, leaks(leakerExits))
	if res := v.result(s.control, id); res.FailureCode != domain.CodeVaultUnavailable || res.SideEffects != "none" {
		t.Errorf("sealed, after %s: %+v", time.Since(began), res)
	}
}
