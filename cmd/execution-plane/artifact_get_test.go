package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// paths is a service and its object storage: what a path answers, as JSON; text as it
// is, and by a link where it begins with "bytes:".
type paths map[string]any

func (p paths) start(t *testing.T) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, stored := strings.CutPrefix(r.URL.Path, "/store")
		answer, ok := p[name]
		if q := r.URL.Query().Get("id_prefix"); q != "" {
			answer, ok = p["prefix "+q]
		}
		text, isText := answer.(string)
		body, behind := strings.CutPrefix(text, "bytes:")
		problem, refused := answer.(wire.Problem)
		switch {
		case !ok:
			http.NotFound(w, r)
		case stored && r.Header.Get("Authorization") != "":
			http.Error(w, "the token came along", http.StatusBadRequest)
		case stored:
			fmt.Fprint(w, strings.TrimPrefix(body, "changed "))
		case behind:
			w.Header().Set("Location", srv.URL+"/store"+r.URL.Path)
			w.Header().Set(wire.HeaderContentSHA256, bundle.Sum([]byte(body)).String())
			w.Header().Set(wire.HeaderBytes, fmt.Sprint(len(body)))
			w.WriteHeader(http.StatusTemporaryRedirect)
		case isText:
			fmt.Fprint(w, text)
		case refused:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(problem.Status)
			_ = json.NewEncoder(w).Encode(problem)
		default:
			_ = json.NewEncoder(w).Encode(answer)
		}
	})
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestArtifactGet(t *testing.T) {
	plan := domain.ArtifactIDOf(someAttempt, "plan")
	changed := domain.ArtifactIDOf(someAttempt, "changed")
	url := paths{
		"/v1/attempts/" + someAttempt.String() + "/artifacts": wire.Page[wire.Artifact]{Items: []wire.Artifact{{ArtifactRef: domain.ArtifactRef{ID: plan, Name: "plan"}}, {ArtifactRef: domain.ArtifactRef{ID: changed, Name: "changed"}}}},
		"/v1/artifacts/" + plan.String():                      "bytes:a plan\n",
		"/v1/artifacts/" + changed.String():                   "bytes:changed on disk",
	}.start(t)
	get := func(args ...string) (int, string, string) {
		return cliRun(t, "", append(append([]string{"artifact", "get"}, args...), "--url", url, "--token", "t")...)
	}
	for name, args := range map[string][]string{"by name": {someAttempt.String(), "plan"}, "by id": {plan.String()}, "by reference": {"artifact://" + plan.String()}} {
		if code, out, errOut := get(args...); code != 0 || out != "a plan\n" {
			t.Errorf("%s: %d %q %s", name, code, out, errOut)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "plan")
	code, out, errOut := get(plan.String(), "-f", file, "-o", "json")
	var got gotArtifact
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.ArtifactID != plan || got.Bytes != 7 {
		t.Errorf("%d: %s%s, %v", code, out, errOut, err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "a plan\n" {
		t.Errorf("%q, %v", b, err)
	}
	// What differs from the ledger never becomes a file, and nothing is replaced.
	if code, _, errOut := get(changed.String(), "-f", filepath.Join(dir, "changed")); code != exitInfra || !strings.Contains(errOut, "not those that the ledger names") {
		t.Errorf("%d: %s", code, errOut)
	}
	if code, _, errOut := get(changed.String()); code != exitInfra || !strings.Contains(errOut, "do not use them") {
		t.Errorf("%d: %s", code, errOut)
	}
	if code, _, errOut := get(plan.String(), "-f", file); code != exitUsage || !strings.Contains(errOut, "is there already") {
		t.Errorf("%d: %s", code, errOut)
	}
	for want, args := range map[string][]string{
		"it has plan changed": {someAttempt.String(), "report"}, "artifact get ATTEMPT NAME": {"plan"}, "name a file": {plan.String(), "-o", "json"},
	} {
		if code, _, errOut := get(args...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: %d: %s", args, code, errOut)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
