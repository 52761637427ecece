package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "../docs/policy.schema.json"

func readSchema(t *testing.T) (map[string]any, *jsonschema.Schema) {
	t.Helper()
	data, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any), s
}

func texts(v any) []string {
	out := []string{}
	list, _ := v.([]any)
	for _, x := range list {
		out = append(out, x.(string))
	}
	slices.Sort(out)
	return out
}

// The schema knows the very fields that the reader knows, and wants those that it
// wants.
func TestSchemaHasTheReadersFields(t *testing.T) {
	type shape struct{ Fields, Required []string }
	read := map[string]shape{}
	for _, name := range []string{"runners", "packages", "commands", "hosts", "isolation", "probes"} {
		data, err := os.ReadFile("testdata/bundles/whole/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		d := &document{file: name, told: func(what string, known, required []string) {
			read[what] = shape{known, append([]string{}, slices.Sorted(slices.Values(required))...)}
		}}
		b, err := build(nil)
		if err != nil {
			t.Fatal(err)
		}
		b.late = newLateChecks()
		d.read(d.parse(data), b)
		if len(d.mistakes) > 0 {
			t.Fatalf("mistakes: %v", d.mistakes)
		}
	}
	doc, _ := readSchema(t)
	told := map[string]shape{}
	add := func(v any) {
		m := v.(map[string]any)
		if m["additionalProperties"] != false {
			t.Errorf("%s takes any field", m["title"])
		}
		told[m["title"].(string)] = shape{sortedKeys(m["properties"].(map[string]any)), texts(m["required"])}
	}
	add(doc)
	for _, v := range doc["$defs"].(map[string]any) {
		add(v)
	}
	if diff := cmp.Diff(read, told); diff != "" {
		t.Errorf("fields (-reader +schema):\n%s", diff)
	}
}

func asJSON(t *testing.T, data []byte) any {
	t.Helper()
	j, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What the reader takes, the schema takes.
func TestBundlesFollowTheSchema(t *testing.T) {
	_, schema := readSchema(t)
	var files []string
	for _, pattern := range []string{"builtin/*.yaml", "dev/*.yaml", "local/*.yaml", "testdata/bundles/*/*.yaml", "../examples/policy/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(asJSON(t, data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	_, schema := readSchema(t)
	for _, content := range []string{
		"package: []", "packages: [{name: p}]", "packages: {}", "runners: [{name: r, job_types: [ssh], environments: ['*']}]",
		"commands: [{name: s, templates: [{name: t, argv: [ls], sudo: {}}]}]", "commands: [{name: s, templates: [{name: t, argv: []}]}]",
		"commands: [{name: s, templates: [{name: t, argv: [ls], arguments: {x: {type: path}}}]}]",
		"isolation: [{actions: ['*'], environments: ['*'], at_least: vm}]", "images: [{name: i, digest: sha256:x, reference: r}]", "images: [{name: i}]",
		"probes: [{name: p, environments: ['*'], check: icmp, assert: 'true'}]",
		"secret_mappings: [{name: m, job_types: [ssh], actions: ['*'], environments: ['*'], policies: [p], token_role: r}]",
	} {
		if schema.Validate(asJSON(t, []byte(content))) == nil {
			t.Errorf("the schema takes %s", content)
		}
		if _, err := build(map[string][]byte{"x.yaml": []byte(strings.TrimSpace(content) + "\n")}); !IsMistake(err) {
			t.Errorf("the reader takes %s", content)
		}
	}
}
