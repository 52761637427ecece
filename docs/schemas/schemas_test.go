package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/platform-core/execution-plane-service/docs/schemas"
	"github.com/platform-core/execution-plane-service/domain"
)

var update = flag.Bool("update", false, "write what is generated")

func file(r schemas.Ref) string {
	return filepath.Join("events", r.Type, fmt.Sprint(r.Schema)+".json")
}

// TestGeneratedSchemas compares the committed files with what would be generated.
func TestGeneratedSchemas(t *testing.T) {
	for ref, want := range generate(t) {
		same(t, file(ref), want)
	}
}

// same compares a file with what it is to hold, or writes it.
func same(t *testing.T, path string, want []byte) {
	t.Helper()
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if bytes.Equal(have, want) {
		return
	}
	if !*update {
		t.Errorf("%s is not what would be generated; run: go test ./docs/schemas -run TestGenerated -update", path)
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// goldens gives a payload of every event and schema number that was ever written.
func goldens(t *testing.T) map[schemas.Ref][]byte {
	t.Helper()
	files, err := filepath.Glob("../../domain/testdata/events/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden events: %v", err)
	}
	out := map[schemas.Ref][]byte{}
	for _, path := range files {
		name, number, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".json"), ".v")
		ref := schemas.Ref{Type: name}
		if _, err := fmt.Sscan(number, &ref.Schema); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if out[ref], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// compiled is the schema of an event, with formats asserted.
func compiled(t *testing.T, ref schemas.Ref) *jsonschema.Schema {
	t.Helper()
	raw, ok := schemas.Schema(ref.Type, ref.Schema)
	if !ok {
		t.Fatalf("there is no schema %s", ref.URN())
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(ref.URN(), doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(ref.URN())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, payload []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// Every event that was ever written has its schema, and there is no other one.
func TestEveryEventHasItsSchema(t *testing.T) {
	want := goldens(t)
	for _, ref := range schemas.All() {
		if _, ok := want[ref]; !ok {
			t.Errorf("%s is the schema of no event; remove it", file(ref))
		}
	}
	if all := schemas.All(); len(all) != len(want) || !slices.IsSortedFunc(all, func(a, b schemas.Ref) int { return strings.Compare(a.URN(), b.URN()) }) {
		t.Errorf("%d schemas for %d payloads, or out of order", len(all), len(want))
	}
	for _, name := range domain.EventTypes() {
		if _, ok := schemas.Schema(name, domain.EventSchema(name)); !ok {
			t.Errorf("%s has no schema; run: go test ./docs/schemas -run TestGenerated -update", name)
		}
	}
	for _, ref := range []schemas.Ref{{"execution.attempt.created", 0}, {"no.such.event", 1}, {"", 1}, {"..", 1}, {"../events/artifact.created", 1}, {"artifact.created/..", 1}, {`artifact.created\..`, 1}} {
		if _, ok := schemas.Schema(ref.Type, ref.Schema); ok {
			t.Errorf("there is a schema of %q, %d", ref.Type, ref.Schema)
		}
	}
}

func TestGoldenEventsAreValid(t *testing.T) {
	for ref, payload := range goldens(t) {
		if err := valid(t, compiled(t, ref), payload); err != nil {
			t.Errorf("%s: %v", ref.URN(), err)
		}
	}
}

// Every defect of one kind at every place of every golden event is refused: a
// member too many, one that must be there missing, and one of another type.
func TestDefectsAreRefused(t *testing.T) {
	for ref, payload := range goldens(t) {
		t.Run(ref.Type, func(t *testing.T) {
			s, tried := compiled(t, ref), 0
			refused := func(what string, v any) {
				t.Helper()
				tried++
				if s.Validate(v) == nil {
					t.Errorf("%s is taken", what)
				}
			}
			golden, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
			if err != nil {
				t.Fatal(err)
			}
			plant(golden, s, "", func(what string) { refused(what, golden) })
			refused("null", nil)
			refused("a list", []any{golden})
			if tried < 3 {
				t.Errorf("only %d defects were tried", tried)
			}
		})
	}
}

// plant changes v at one place after the other, calls try, and takes each change
// back. It looks at the schema for nothing but which members must be there, which
// TestRequiredIsWhatIsAlwaysWritten holds, and where any JSON may stand.
func plant(v any, s *jsonschema.Schema, at string, try func(what string)) {
	switch v := v.(type) {
	case map[string]any:
		if s.AdditionalProperties != false { // names are data
			v["planted"] = true
			try(at + "/planted of another type")
			delete(v, "planted")
			return
		}
		v["planted"] = "x"
		try(at + "/planted")
		delete(v, "planted")
		for _, name := range slices.Sorted(maps.Keys(v)) {
			was, below, path := v[name], s.Properties[name], at+"/"+name
			if slices.Contains(s.Required, name) {
				delete(v, name)
				try(path + " missing")
			}
			if below.Types != nil { // not any JSON
				for _, other := range otherTypes(was) {
					v[name] = other
					try(fmt.Sprintf("%s as %v", path, other))
				}
				plant(was, below, path, try)
			}
			v[name] = was
		}
	case []any:
		for i, was := range v {
			path := fmt.Sprintf("%s/%d", at, i)
			for _, other := range otherTypes(was) {
				v[i] = other
				try(fmt.Sprintf("%s as %v", path, other))
			}
			v[i] = was
			plant(was, s.Items2020, path, try)
		}
	}
}

// otherTypes are values that no place takes which holds v.
func otherTypes(v any) []any {
	out := []any{[]any{map[string]any{}}, map[string]any{"x": true}, json.Number("1.5")}
	if _, is := v.(bool); !is {
		out = append(out, true)
	}
	if _, is := v.(string); !is {
		out = append(out, "x")
	}
	return out
}

// What must be there is what the encoder writes of an event with no field set.
func TestRequiredIsWhatIsAlwaysWritten(t *testing.T) {
	for _, name := range domain.EventTypes() {
		ref := schemas.Ref{Type: name, Schema: domain.EventSchema(name)}
		zero, err := domain.DecodeEvent(ref.Type, ref.Schema, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, _, payload, err := domain.EncodeEvent(zero)
		if err != nil {
			t.Fatal(err)
		}
		var written map[string]json.RawMessage
		if err := json.Unmarshal(payload, &written); err != nil {
			t.Fatal(err)
		}
		required := slices.Sorted(slices.Values(compiled(t, ref).Required))
		if diff := cmp.Diff(slices.Sorted(maps.Keys(written)), required, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: always written, and required: %s", name, diff)
		}
	}
}
