package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

func leaseHeaders() []string {
	return []string{wire.HeaderIdempotencyKey, uuid.NewString(), wire.HeaderLeaseToken, leaseToken, wire.HeaderLeaseEpoch, "1"}
}

const (
	tokenFact   = `{"secret_token_issued":{"accessor":"hmac-1","role":"execution-plane","policies":["read"],"expires_at":"2030-01-02T03:04:05.123456789+01:00","purpose":"read"}}`
	secretFact  = `{"secret_resolved":{"index":0,"name":"db","reference":"vault://kv/db#password","version":3,"engine":"kv2","mapping":"secret_mappings/db","accessor":"hmac-1","lease_id":"database/creds/app/1","unmasked":true,"weak":["port: too short"]}}`
	revokedFact = `{"secret_revoked":{"accessors":["hmac-1","hmac-2"]}}`
)

func TestFactsOfSecretsReachTheLedger(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleRunner, nil)
	for _, body := range []string{tokenFact, secretFact, revokedFact} {
		if resp, got := ask(t, srv, "POST", "/v1/leases/"+leaseID.String()+"/facts", token, body, leaseHeaders()...); resp.StatusCode != 200 {
			t.Fatalf("%d: %s", resp.StatusCode, got)
		}
	}
	want := []domain.Event{
		domain.SecretTokenIssued{Accessor: "hmac-1", Role: "execution-plane", Policies: []string{"read"}, ExpiresAt: time.Date(2030, 1, 2, 2, 4, 5, 123456000, time.UTC), Purpose: "read"},
		domain.SecretResolved{Name: "db", Reference: "vault://kv/db#password", Version: 3, Engine: "kv2", Mapping: "secret_mappings/db", Accessor: "hmac-1", LeaseID: "database/creds/app/1", Unmasked: true, Weak: []string{"port: too short"}},
		domain.SecretRevoked{Accessors: []string{"hmac-1", "hmac-2"}},
	}
	if d := cmp.Diff(want, w.facts); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What a fact about a secret may not say is refused at its place, and is not said
// again.
func TestRefusedFactsOfSecrets(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleRunner, nil)
	long := strings.Repeat("hunter2", 200)
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 51), ",")
	for _, c := range []struct{ fact, old, with, pointer string }{
		{tokenFact, `{"secret_token_issued":`, revokedFact[:len(revokedFact)-1] + `,"secret_token_issued":`, ""},
		{`{}`, "", "", ""},
		{tokenFact, `"hmac-1"`, `""`, "/secret_token_issued/accessor"},
		{tokenFact, `"hmac-1"`, `"` + long + `"`, "/secret_token_issued/accessor"},
		{tokenFact, `"hmac-1"`, `"hunter2\n"`, "/secret_token_issued/accessor"},
		{tokenFact, `"hmac-1"`, `"my hunter2"`, "/secret_token_issued/accessor"},
		{tokenFact, `"hmac-1"`, `"hvs.hunter2"`, "/secret_token_issued/accessor"},
		{secretFact, `"hmac-1"`, `"s.hunter2"`, "/secret_resolved/accessor"},
		{revokedFact, `"hmac-2"`, `"hvb.hunter2"`, "/secret_revoked/accessors"},
		{tokenFact, `"execution-plane"`, `""`, "/secret_token_issued/role"},
		{tokenFact, `["read"]`, `["` + long + `"]`, "/secret_token_issued/policies"},
		{tokenFact, `["read"]`, `[` + many + `]`, "/secret_token_issued/policies"},
		{tokenFact, `,"expires_at":"2030-01-02T03:04:05.123456789+01:00"`, ``, "/secret_token_issued/expires_at"},
		{tokenFact, `"read"}`, `"hunter2"}`, "/secret_token_issued/purpose"},
		{secretFact, `"index":0`, `"index":-1`, "/secret_resolved/index"},
		{secretFact, `"index":0`, `"index":100`, "/secret_resolved/index"},
		{secretFact, `"name":"db"`, `"name":"` + long + `"`, "/secret_resolved/name"},
		{secretFact, `"vault://kv/db#password"`, `"hunter2"`, "/secret_resolved/reference"},
		{secretFact, `"vault://kv/db#password"`, `"vault://kv/hunter2 hunter2"`, "/secret_resolved/reference"},
		{secretFact, `"vault://kv/db#password"`, `"vault://kv/` + long + `"`, "/secret_resolved/reference"},
		{secretFact, `"version":3`, `"version":-3`, "/secret_resolved/version"},
		{secretFact, `"engine":"kv2"`, `"engine":""`, "/secret_resolved/engine"},
		{secretFact, `"mapping":"secret_mappings/db"`, `"mapping":"` + long + `"`, "/secret_resolved/mapping"},
		{secretFact, `"hmac-1"`, `""`, "/secret_resolved/accessor"},
		{secretFact, `"database/creds/app/1"`, `"` + long + `"`, "/secret_resolved/lease_id"},
		{secretFact, `["port: too short"]`, `["` + long + `"]`, "/secret_resolved/weak"},
		{secretFact, `["port: too short"]`, `[` + many + `]`, "/secret_resolved/weak"},
		{revokedFact, `["hmac-1","hmac-2"]`, `[]`, "/secret_revoked/accessors"},
		{revokedFact, `["hmac-1","hmac-2"]`, `[` + many + `]`, "/secret_revoked/accessors"},
		{revokedFact, `"hmac-2"`, `"hunter2\u007f"`, "/secret_revoked/accessors"},
	} {
		body := strings.Replace(c.fact, c.old, c.with, 1)
		resp, got := ask(t, srv, "POST", "/v1/leases/"+leaseID.String()+"/facts", token, body, leaseHeaders()...)
		p := problemIn(t, resp, got)
		if resp.StatusCode != http.StatusUnprocessableEntity || len(p.Violations) != 1 || p.Violations[0].Pointer != c.pointer {
			t.Errorf("%.300s: %d %s", body, resp.StatusCode, got)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("the text is said again: %s", got)
		}
	}
	if len(w.facts) > 0 {
		t.Errorf("recorded: %v", w.facts)
	}
}

func TestTheAnnouncementOfASecretArtifact(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	body := fmt.Sprintf(`{"name":"kubeconfig","type":"kubeconfig","sensitivity":"secret","bytes":10,"sha256":"","inline":null,
		"vault":{"reference":"vault://kv/a?version=1","hmac_sha256":"%s","object_bytes":38,"object_sha256":"%s"}}`, hash64, hash64)
	if resp, got := ask(t, srv, "POST", "/v1/leases/"+leaseID.String()+"/artifacts", w.token(domain.RoleRunner, nil), body, leaseHeaders()...); resp.StatusCode != 200 {
		t.Fatalf("%d: %s", resp.StatusCode, got)
	}
	want := []artifacts.Announcement{{Name: "kubeconfig", Type: "kubeconfig", Sensitivity: "secret", Bytes: 10,
		Vault: &artifacts.VaultPlace{Reference: "vault://kv/a?version=1", HMACSHA256: hash64, ObjectBytes: 38, ObjectSHA256: hash64}}}
	if d := cmp.Diff(want, w.announced); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Where a secret artifact lies is told by one route alone, after it was recorded.
func TestWhereASecretArtifactLies(t *testing.T) {
	const reference = "vault://kv/execution/kubeconfig?version=1"
	w := newWorld()
	var asked []commands.SecretRead
	var answer error
	w.readSecret = func(actor eventstore.Actor, r commands.SecretRead) error {
		if actor.ID != "the "+r.Role {
			t.Errorf("%+v asks as %s", actor, r.Role)
		}
		asked = append(asked, r)
		return answer
	}
	srv := w.serve(t, nil)
	token := w.token(domain.RoleAuditor, nil)
	base := "/v1/attempts/" + attemptID.String() + "/artifacts"
	if resp, body := ask(t, srv, "GET", base, token, ""); resp.StatusCode != 200 || strings.Contains(body, reference) || !strings.Contains(body, `"kubeconfig"`) {
		t.Errorf("the list: %d %s", resp.StatusCode, body)
	}
	if len(asked) != 0 {
		t.Errorf("a list is no read: %v", asked)
	}
	path := base + "/" + secretArtifact.String() + "/secret"
	resp, body := ask(t, srv, "GET", path, token, "")
	got := decode[wire.SecretArtifact](t, body)
	if resp.StatusCode != 200 || got != (wire.SecretArtifact{Reference: reference, Bytes: 10, HMACSHA256: hash64}) || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s, %v", resp.StatusCode, body, resp.Header)
	}
	if want := []commands.SecretRead{{AttemptID: attemptID, Artifact: "kubeconfig", Role: domain.RoleAuditor}}; !slices.Equal(asked, want) {
		t.Errorf("recorded %+v", asked)
	}
	for status, err := range map[int]error{
		403: &domain.Error{Kind: domain.KindForbidden, Code: "secret_reader_not_allowed", Message: "no"},
		503: &domain.Error{Kind: domain.KindUnavailable, Code: "access_not_recorded", Message: "not recorded"},
	} {
		answer = err
		if resp, body := ask(t, srv, "GET", path, token, ""); resp.StatusCode != status || strings.Contains(body, reference) {
			t.Errorf("%v: %d %s", err, resp.StatusCode, body)
		}
	}
	n := len(asked)
	for _, other := range []string{
		base + "/" + uuid.NewString() + "/secret",
		"/v1/attempts/" + uuid.NewString() + "/artifacts/" + secretArtifact.String() + "/secret",
	} {
		if resp, body := ask(t, srv, "GET", other, token, ""); resp.StatusCode != 404 || len(asked) != n {
			t.Errorf("%s: %d %s", other, resp.StatusCode, body)
		}
	}
	if resp, _ := ask(t, srv, "GET", base+"/kubeconfig/secret", token, ""); resp.StatusCode != 400 {
		t.Errorf("by name: %d", resp.StatusCode)
	}
}

func TestWhatIsLeftIsToldAndTaken(t *testing.T) {
	w := newWorld()
	w.next = func(_ context.Context, r dispatch.NextRequest, _ time.Duration) (dispatch.Next, error) {
		if !slices.Equal(r.Known, []string{"revoke/" + attemptID.String()}) {
			t.Errorf("known: %v", r.Known)
		}
		return dispatch.Next{Revoke: []dispatch.Revoke{{AttemptID: attemptID, Accessors: []string{"a", "b"}}}}, nil
	}
	srv := w.serve(t, nil)
	token := w.token(domain.RoleRunner, nil)
	key := []string{wire.HeaderIdempotencyKey, uuid.NewString()}
	resp, body := ask(t, srv, "POST", "/v1/runners/"+runnerID.String()+"/commands", token,
		`{"free_slots":0,"token_sha256":[],"known":["revoke/`+attemptID.String()+`"]}`, key...)
	got := decode[wire.Commands](t, body)
	if resp.StatusCode != 200 || len(got.Revoke) != 1 || got.Revoke[0].AttemptID != attemptID || !slices.Equal(got.Revoke[0].Accessors, []string{"a", "b"}) {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	path := "/v1/runners/" + runnerID.String() + "/revoked"
	for body, pointer := range map[string]string{
		`{"attempt_id":"` + attemptID.String() + `","accessors":[]}`:      "/accessors",
		`{"attempt_id":"` + attemptID.String() + `","accessors":[""]}`:    "/accessors",
		`{"attempt_id":"` + attemptID.String() + `","accessors":["a\n"]}`: "/accessors",
		`{"accessors":["a"]}`: "/attempt_id",
	} {
		resp, got := ask(t, srv, "POST", path, token, body, key...)
		if p := problemIn(t, resp, got); resp.StatusCode != 422 || p.Violations[0].Pointer != pointer {
			t.Errorf("%s: %d %s", body, resp.StatusCode, got)
		}
	}
	if resp, body := ask(t, srv, "POST", path, token, `{"attempt_id":"`+attemptID.String()+`","accessors":["a"]}`, key...); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	other := w.token(domain.RoleRunner, func(v *projections.TokenView) { u := otherRunner.UUID(); v.RunnerID = &u })
	if resp, body := ask(t, srv, "POST", path, other, `{"attempt_id":"`+attemptID.String()+`","accessors":["a"]}`, key...); resp.StatusCode != 403 {
		t.Errorf("as another runner: %d %s", resp.StatusCode, body)
	}
}
