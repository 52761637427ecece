package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

func readDocs(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docs/api.md has a row for each route, with its roles and statuses, and none
// for a route that does not exist.
func TestDocsHaveEveryRoute(t *testing.T) {
	docs := readDocs(t)
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| ([^|]*) \\| ([^|]*) \\| ([^|]*) ?\\|$").FindAllStringSubmatch(docs, -1) {
		rows[m[1]] = m[2:]
	}
	for _, r := range api.Routes() {
		name := r.Method + " " + r.Path
		row := rows[name]
		delete(rows, name)
		if row == nil {
			t.Errorf("docs/api.md has no row for %s", name)
			continue
		}
		if want := rolesInWords(r); row[0] != want {
			t.Errorf("docs/api.md says that %s is for %q, the table says %q", name, row[0], want)
		}
		for _, s := range r.Success {
			if !strings.Contains(row[1], fmt.Sprint(s)) {
				t.Errorf("docs/api.md does not say that %s answers %d", name, s)
			}
		}
		for _, k := range r.Errors {
			if k == domain.KindConflict && r.Key != api.KeyNone && !r.Lease {
				continue // a key that was used for another request: said once for all
			}
			if s := fmt.Sprint(api.StatusOf(k)); !strings.Contains(row[1], s) {
				t.Errorf("docs/api.md does not say that %s answers %s", name, s)
			}
		}
		key := map[api.KeyRule]string{api.KeyRequired: "required", api.KeyOptional: "optional", api.KeyInBody: "attempt_id"}[r.Key]
		if strings.TrimSpace(row[2]) != key {
			t.Errorf("docs/api.md says of %s's key %q, the table says %q", name, row[2], key)
		}
		for _, q := range r.Query {
			if !strings.Contains(docs, q) {
				t.Errorf("docs/api.md does not name the query parameter %s of %s", q, name)
			}
		}
	}
	for name := range rows {
		t.Errorf("docs/api.md describes %s, which does not exist", name)
	}
}

func rolesInWords(r api.Route) string {
	all := domain.Roles()
	missing := slices.DeleteFunc(slices.Clone(all), func(role string) bool { return slices.Contains(r.Roles, role) })
	words := strings.Join(r.Roles, ", ")
	switch {
	case r.Public():
		return "nobody asks"
	case len(missing) == 0:
		return "every role"
	case slices.Equal(missing, []string{domain.RoleRunner}):
		return "all but runner"
	case r.Enrolment:
		return words + ", enrolment token"
	case r.Own:
		return words + " (itself)"
	case r.Lease:
		return words + " (holder)"
	}
	return words
}

// Every code that a caller can meet is in docs/api.md: those of attempts, and
// those of problems as the source writes them.
func TestDocsHaveEveryCode(t *testing.T) {
	docs := readDocs(t)
	o := newOpenAPI(t)
	for _, name := range []string{"domain.FailureCode", "domain.Status", "domain.Category", "domain.StopReason", "domain.StopProof"} {
		if len(o.enums[name]) == 0 {
			t.Fatalf("no constants of %s were found", name)
		}
		for _, code := range o.enums[name] {
			if !regexp.MustCompile(`\b` + code + `\b`).MatchString(docs) {
				t.Errorf("docs/api.md does not name %s of %s", code, name)
			}
		}
	}
	patterns := []*regexp.Regexp{
		regexp.MustCompile(`Kind: (?:domain\.)?Kind\w+, Code: "(\w+)"`),
		regexp.MustCompile(`malformed\("(\w+)"`),
		regexp.MustCompile(`codeToken\w+ += "(\w+)"`),
		regexp.MustCompile(`Code\w+ +Code = "(\w+)"`), // strictjson
	}
	found := 0
	for _, dir := range []string{".", "../commands", "../domain", "../artifacts", "../dispatch", "../projections", "../internal/strictjson"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range patterns {
				for _, m := range p.FindAllStringSubmatch(string(src), -1) {
					found++
					if !strings.Contains(docs, "`"+m[1]+"`") {
						t.Errorf("docs/api.md does not name the code %s of %s", m[1], f)
					}
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d codes were found in the source; do the patterns still fit?", found)
	}
}

// The examples of docs/api.md are what the service takes.
func TestDocsExampleIsAJobSpec(t *testing.T) {
	docs := readDocs(t)
	_, rest, ok := strings.Cut(docs, "A JobSpec:\n\n```json\n")
	body, _, end := strings.Cut(rest, "\n```")
	if !ok || !end {
		t.Fatal("docs/api.md has no example of a JobSpec")
	}
	w := newWorld()
	srv := w.serve(t, nil)
	if resp, answer := ask(t, srv, "POST", "/v1/attempts", w.token(domain.RoleControlPlane, nil), body); resp.StatusCode != 201 {
		t.Errorf("status %d: %s", resp.StatusCode, answer)
	}
	spec := decode[domain.JobSpec](t, body)
	if v := spec.Validate(domain.DefaultControlLimits()); len(v) > 0 {
		t.Errorf("the example breaks rules: %+v", v)
	}
	if v := runners.Catalogue().ValidateParameters(spec.Action, spec.Inputs.Parameters); len(v) > 0 {
		t.Errorf("the example's parameters break the action's schema: %+v", v)
	}
}
