package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
)

// openapi.yaml is what the route table and the wire's types give, no more and
// no less.
func TestOpenAPIIsTheRouteTable(t *testing.T) {
	doc := newOpenAPI(t).document()
	b, err := yaml.MarshalWithOptions(doc, yaml.IndentSequence(true), yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.yaml", b, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(b)); d != "" {
		t.Errorf("openapi.yaml is stale; run go test ./api -run TestOpenAPI -update (-file +table):\n%s", d)
	}
}

type openAPIDocument struct {
	OpenAPI string                               `json:"openapi"`
	Paths   map[string]map[string]map[string]any `json:"paths"`
	Parts   struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

func readOpenAPI(t *testing.T) (openAPIDocument, []byte) {
	t.Helper()
	b, err := api.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var d openAPIDocument
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d, b
}

func TestOpenAPIHasExactlyTheRoutes(t *testing.T) {
	if *update {
		return // the document in the binary is the one before
	}
	d, _ := readOpenAPI(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("the version is %s", d.OpenAPI)
	}
	var got, want, names []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
			responses, _ := op["responses"].(map[string]any)
			names = append(names, fmt.Sprint(op["operationId"]))
			for _, r := range api.Routes() {
				if r.Path != path || !strings.EqualFold(r.Method, method) {
					continue
				}
				for _, s := range r.Success {
					if responses[fmt.Sprint(s)] == nil {
						t.Errorf("%s %s lacks its success %d", method, path, s)
					}
				}
				for _, k := range r.Refusals() {
					if responses[fmt.Sprint(api.StatusOf(k))] == nil {
						t.Errorf("%s %s lacks its refusal %s", method, path, k)
					}
				}
			}
		}
	}
	for _, r := range api.Routes() {
		want = append(want, r.Method+" "+r.Path)
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("routes (-table +document):\n%s", d)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(api.Routes()) {
		t.Error("two operations have one operationId")
	}
	if len(slices.Compact(want)) != len(api.Routes()) {
		t.Error("a route stands twice in the table")
	}
}

// schemasOf reads the document once: it is the same for all of its schemas.
var schemasOf = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	b, err := api.OpenAPI()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	return c, c.AddResource("urn:openapi", doc)
})

// compileSchema makes one of the document's schemas usable, which also shows that
// every reference leads somewhere.
func compileSchema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c, err := schemasOf()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:openapi#/components/schemas/" + name)
	if err != nil {
		t.Fatalf("schema %s: %v", name, err)
	}
	return s
}

func TestOpenAPISchemasHoldTogether(t *testing.T) {
	if *update {
		return // the document in the binary is the one before
	}
	d, _ := readOpenAPI(t)
	for name := range d.Parts.Schemas {
		compileSchema(t, name)
	}
}

// What the service takes and sends fits the document.
func TestOpenAPISchemasFitTheSamples(t *testing.T) {
	if *update {
		return // the document in the binary is the one before
	}
	fits := func(schema, what, body string) {
		t.Helper()
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := compileSchema(t, schema).Validate(v); err != nil {
			t.Errorf("%s does not fit %s: %v", what, schema, err)
		}
	}
	w := newWorld()
	srv := w.serve(t, nil)
	for _, r := range api.Routes() {
		q := sampleOf(t, r)
		if r.Request != nil {
			fits(schemaName(r.Request), r.Method+" "+r.Path, q.body)
		}
		resp, body := ask(t, srv, q.method, q.path, w.token(roleFor(r), nil), q.body, q.header...)
		if _, raw := r.Response.(json.RawMessage); r.Response == nil || raw {
			continue
		}
		name := schemaName(r.Response)
		if resp.StatusCode == 202 {
			name = "Pending"
		}
		fits(name, "the answer of "+r.Method+" "+r.Path, body)
	}
	w.end()
	_, body := ask(t, srv, "GET", "/v1/attempts/"+attemptID.String()+"/events", w.token("viewer", nil), "")
	for _, e := range decode[wire.Page[json.RawMessage]](t, body).Items {
		fits("Event", "an event", string(e))
	}
	resp, problem := ask(t, srv, "GET", "/v1/attempts", "", "")
	if resp.StatusCode != 401 {
		t.Fatal(problem)
	}
	fits("Problem", "a problem", problem)
}
