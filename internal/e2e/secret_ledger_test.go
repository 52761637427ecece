package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

const storePolicy = `secret_mappings:
  - name: kubeconfigs
    store: vault://secret/kubeconfigs/{attempt_id}/{artifact_name}
    environments: [test]
    job_types: [verification]
    actions: ["*"]
    policies: [write]
    token_role: role
    readers: [operator]
`

// What a runner tells of its secrets outlives it: another of its pool ends what it
// left in Vault, and where its secret artifact lies is told to whom policy names,
// on the record.
func TestTheLedgerKnowsOfSecretsWhatARunnerLeft(t *testing.T) {
	t.Parallel()
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"stores.yaml": {Data: []byte(storePolicy)}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, setup{policy: b})
	s := w.startService()
	lost, helper := w.puppet(s.plane.URL(), 1), w.puppet(s.plane.URL(), 1)
	id := w.submit(s.control, tcp(openPort(t), func(j *domain.JobSpec) {
		j.Inputs.Secrets = []domain.SecretInput{{Name: "db", SecretRef: "vault://secret/dev/db#password"}}
	}))
	l, _ := lost.take()
	if err := lost.start(l); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.client.FingerprintKey(w.ctx, l); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.client.SendFingerprints(w.ctx, newKey(), l, 8, nil); err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(time.Hour).UTC()
	for _, f := range []wire.FactRequest{
		{SecretTokenIssued: &wire.TokenFact{Accessor: "reads", Role: "role", Policies: []string{"read"}, ExpiresAt: ends, Purpose: "read"}},
		{SecretResolved: &wire.SecretFact{Name: "db", Reference: "vault://secret/dev/db#password?version=2", Version: 2, Engine: "kv2", Mapping: "secret_mappings/dev-secrets", Accessor: "reads"}},
		{SecretTokenIssued: &wire.TokenFact{Accessor: "stores", Role: "role", Policies: []string{"write"}, ExpiresAt: ends, Purpose: "store"}},
	} {
		if _, err := lost.client.RecordFact(w.ctx, newKey(), l, f); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := wire.FactRequest{SecretResolved: &wire.SecretFact{Name: "db", Reference: "vault://secret/dev/other", Engine: "kv2", Mapping: "m", Accessor: "reads"}}
	if _, err := lost.client.RecordFact(w.ctx, newKey(), l, elsewhere); client.KindOf(err) != domain.KindInvalid {
		t.Errorf("a secret that the job did not ask for: %v", err)
	}
	reference := fmt.Sprintf("vault://secret/kubeconfigs/%s/kubeconfig?version=1", id)
	artifact := wire.ArtifactRequest{Name: "kubeconfig", Type: "kubeconfig", Sensitivity: "secret", Bytes: 10,
		Vault: &wire.VaultArtifact{Reference: reference, HMACSHA256: sha("keyed")}}
	announced, err := lost.client.Announce(w.ctx, newKey(), l, artifact)
	if err != nil || !announced.Stored {
		t.Fatalf("%+v, %v", announced, err)
	}

	if _, err := w.client(s.plane.URL(), w.operatorToken).ChangeRunner(w.ctx, newKey(), lost.id, "evict", "it burned"); err != nil {
		t.Fatal(err)
	}
	got, err := helper.client.Commands(w.ctx, newKey(), helper.id, wire.CommandsRequest{}, 20*time.Second)
	if err != nil || len(got.Revoke) != 1 || got.Revoke[0].AttemptID != id || !slices.Equal(got.Revoke[0].Accessors, []string{"reads", "stores"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := helper.client.Revoked(w.ctx, newKey(), helper.id, wire.RevokedRequest(got.Revoke[0])); err != nil {
		t.Fatal(err)
	}
	if n, err := w.desk.Reads.CountLeftTokens(w.ctx); n != 0 || err != nil {
		t.Errorf("%d are left, %v", n, err)
	}

	w.checkReaders(s, id, announced.ID, reference)
	if r := w.result(s.control, id); r.FailureCode != domain.CodeLeaseLost || len(r.Artifacts) != 1 || r.Artifacts[0].URI != "artifact://"+announced.ID.String() || r.Artifacts[0].Storage != "vault" {
		t.Errorf("%+v", r)
	}
}

// checkReaders asks as an operator, who may be told, and as a viewer, who may not.
func (w *world) checkReaders(s *replica, id domain.AttemptID, artifact domain.ArtifactID, reference string) {
	w.t.Helper()
	operator, viewer := w.client(s.plane.URL(), w.operatorToken), w.client(s.plane.URL(), w.token(domain.RoleViewer))
	for range 2 {
		if where, err := operator.SecretArtifact(w.ctx, id, artifact); err != nil || where.Reference != reference || where.Bytes != 10 || where.HMACSHA256 != sha("keyed") {
			w.t.Errorf("an operator: %+v, %v", where, err)
		}
		if where, err := viewer.SecretArtifact(w.ctx, id, artifact); client.KindOf(err) != domain.KindForbidden || where.Reference != "" {
			w.t.Errorf("a viewer: %+v, %v", where, err)
		}
	}
	listed, err := operator.Artifacts(w.ctx, id)
	if err != nil || len(listed) != 1 || listed[0].URI != "" || listed[0].Sensitivity != "secret" {
		w.t.Errorf("the list: %+v, %v", listed, err)
	}
	var told int
	if err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events WHERE strpos(convert_from(payload, 'UTF8'), $1) > 0", reference).Scan(&told); err != nil || told > 0 {
		w.t.Errorf("%d events tell the reference to whoever reads events: %v", told, err)
	}
	var kinds string
	if err := w.desk.Pool.QueryRow(w.ctx, `SELECT string_agg(DISTINCT type || ' by ' || actor_role, ', ' ORDER BY type || ' by ' || actor_role)
		FROM events WHERE starts_with(stream, 'access/')`).Scan(&kinds); err != nil {
		w.t.Fatal(err)
	}
	if want := "execution.access.denied by viewer, execution.access.granted by operator"; !strings.EqualFold(kinds, want) {
		w.t.Errorf("recorded %q, want %q", kinds, want)
	}
}
