package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

var update = flag.Bool("update", false, "write the files that are derived from the route table")

// The verdicts of the whole matrix, read by a person once and frozen since: a
// change of the table shows here.
const matrixFile = "testdata/authorisation.txt"

func TestAuthorisationMatrix(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	past := time.Now().Add(-time.Minute)
	identities := []struct{ name, token string }{
		{"none", ""},
		{"garbage", "ep_nobody_knows_this"},
		{"unknown", "ep_" + uuid.NewString() + "_" + secret},
		{"wrong-secret", strings.TrimSuffix(w.token(domain.RoleOperator, nil), "v") + "w"},
		{"revoked", w.token(domain.RoleOperator, func(v *projections.TokenView) { v.RevokedAt = &past })},
		{"expired", w.token(domain.RoleOperator, func(v *projections.TokenView) { v.ExpiresAt = &past })},
		{"revoked-runner", w.token(domain.RoleRunner, func(v *projections.TokenView) { v.RevokedAt = &past })},
		{"enrolment", "ee_" + uuid.NewString() + "_" + secret},
		{"control-plane", w.token(domain.RoleControlPlane, nil)},
		{"auditor", w.token(domain.RoleAuditor, nil)},
		{"viewer", w.token(domain.RoleViewer, nil)},
		{"operator", w.token(domain.RoleOperator, nil)},
		{"runner", w.token(domain.RoleRunner, nil)},
		{"foreign-runner", w.token(domain.RoleRunner, func(v *projections.TokenView) { u := otherRunner.UUID(); v.RunnerID = &u })},
		{"runner-of-nobody", w.token(domain.RoleRunner, func(v *projections.TokenView) { v.RunnerID = nil })},
	}
	var got strings.Builder
	for _, r := range api.Routes() {
		fmt.Fprintf(&got, "%s %s\n", r.Method, r.Path)
		for _, who := range identities {
			q := sampleOf(t, r)
			resp, body := ask(t, srv, q.method, q.path, who.token, q.body, q.header...)
			verdict := fmt.Sprint(resp.StatusCode)
			if resp.StatusCode >= 400 {
				var p wire.Problem
				if err := json.Unmarshal([]byte(body), &p); err != nil {
					t.Errorf("%s as %s: status %d without a problem: %q", r.Path, who.name, resp.StatusCode, body)
				}
				verdict += " " + p.Code
			}
			fmt.Fprintf(&got, "  %-16s %s\n", who.name, verdict)
			if want := wanted(r, who.name); !slices.Contains(want, resp.StatusCode) {
				t.Errorf("%s %s as %s: status %d, the table says %v: %s", r.Method, r.Path, who.name, resp.StatusCode, want, body)
			}
			if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
				t.Errorf("%s %s as %s: 401 without a challenge", r.Method, r.Path, who.name)
			}
		}
	}
	compareFile(t, matrixFile, got.String())
}

// wanted are the statuses that follow from the table alone.
func wanted(r api.Route, who string) []int {
	switch {
	case r.Public():
		return r.Success
	case slices.Contains([]string{"none", "garbage", "unknown", "wrong-secret", "revoked", "expired", "revoked-runner"}, who):
		return []int{http.StatusUnauthorized}
	case who == "enrolment" && r.Enrolment:
		return r.Success
	case who == "foreign-runner" && (r.Own || r.Lease || r.Enrolment), who == "runner-of-nobody", who == "enrolment":
		return []int{http.StatusForbidden}
	case who == "foreign-runner":
		who = domain.RoleRunner
	}
	if slices.Contains(r.Roles, who) {
		return r.Success
	}
	return []int{http.StatusForbidden}
}

// compareFile compares with a file of the repository, or writes it with -update.
func compareFile(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not what the route table gives; if the change is meant, run go test ./api -update and read the difference (-file +table):\n%s", name, d)
	}
}
