package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

const someOperation = "b0000000-0000-4000-8000-000000000001"

func putAnswer() wire.PutArtifact {
	return wire.PutArtifact{ArtifactID: domain.ArtifactIDOf(someAttempt, "plan"), Name: "site/vars.yml", SHA256: strings.Repeat("ab", 32), Bytes: 5, Sensitivity: "public"}
}

func TestArtifactPut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vars.yml")
	if err := os.WriteFile(file, []byte("a: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, putAnswer())
	code, out, errOut := s.run(t, "artifact", "put", someOperation, "site/vars.yml", file, "--sensitivity", "public")
	if code != 0 || !strings.Contains(out, putAnswer().ArtifactID.String()) {
		t.Errorf("%d: %s%s", code, out, errOut)
	}
	if want := "PUT /v1/operations/" + someOperation + "/artifacts/site%2Fvars.yml?sensitivity=public a: 1"; len(s.asked) != 1 || s.asked[0] != want || s.keys[0] == "" {
		t.Errorf("asked %q with %q", s.asked, s.keys)
	}
	code, out, _ = s.run(t, "artifact", "put", someOperation, "site/vars.yml", file, "-o", "json")
	var got wire.PutArtifact
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got != putAnswer() {
		t.Errorf("%d: %s, %v", code, out, err)
	}
	for name, args := range map[string][]string{
		"no operation":      {"artifact", "put", "operation-1", "plan", file},
		"a name of no use":  {"artifact", "put", someOperation, "a plan", file},
		"no file":           {"artifact", "put", someOperation, "plan", file + ".gone"},
		"a secret":          {"artifact", "put", someOperation, "plan", file, "--sensitivity", "secret"},
		"list of no id":     {"artifact", "list", "operation-1"},
		"put without names": {"artifact", "put", someOperation},
	} {
		asked := len(s.asked)
		if code, out, errOut := s.run(t, args...); code != exitUsage || len(s.asked) != asked || errOut == "" {
			t.Errorf("%s: %d, %s%s", name, code, out, errOut)
		}
	}
	refused := newService(t, wire.Problem{Status: 422, Code: "operation_full", Detail: "the operation has 1000 artifacts", Next: "put the files into one archive"})
	if code, _, errOut := refused.run(t, "artifact", "put", someOperation, "plan", file); code != exitUsage || !strings.Contains(errOut, "into one archive") {
		t.Errorf("refused: %d, %s", code, errOut)
	}
}

func TestArtifactList(t *testing.T) {
	s := newService(t, wire.Page[wire.OperationArtifact]{Items: []wire.OperationArtifact{{PutArtifact: putAnswer(), CreatedAt: someTime}}})
	code, out, errOut := s.run(t, "artifact", "list", someOperation)
	if code != 0 || !strings.Contains(out, "site/vars.yml") || !strings.Contains(out, "2026-01-02 03:04:05") || s.asked[0] != "GET /v1/operations/"+someOperation+"/artifacts" {
		t.Errorf("%d: %s%s, asked %q", code, out, errOut, s.asked)
	}
	if code, out, _ := newService(t, wire.Page[wire.OperationArtifact]{}).run(t, "artifact", "list", someOperation); code != 0 || !strings.Contains(out, "Nothing was put") {
		t.Errorf("%d: %s", code, out)
	}
}
