package schemas

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:generate go test . -run TestGenerated -update

//go:embed events
var files embed.FS

// Ref names one schema: an event's type and the number of its payload's shape.
type Ref struct {
	Type   string
	Schema int
}

// URN is the id of a schema, as `$id` and as ce_dataschema of a Kafka record.
func (r Ref) URN() string { return fmt.Sprintf("urn:execution-plane:event:%s:%d", r.Type, r.Schema) }

func (r Ref) path() string { return path.Join("events", r.Type, strconv.Itoa(r.Schema)+".json") }

// Schema gives the JSON Schema (draft 2020-12) of an event's payload; false where
// there is none. The bytes are the caller's own.
func Schema(eventType string, schema int) ([]byte, bool) {
	if strings.ContainsAny(eventType, `/\`) {
		return nil, false
	}
	b, err := files.ReadFile(Ref{eventType, schema}.path())
	return b, err == nil
}

// All lists every schema that there is, sorted by type and number.
func All() []Ref {
	found, err := fs.Glob(files, "events/*/*.json")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var out []Ref
	for _, name := range found {
		n, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".json"))
		if err != nil {
			panic(fmt.Errorf("%s is not called <schema>.json", name))
		}
		out = append(out, Ref{Type: path.Base(path.Dir(name)), Schema: n})
	}
	slices.SortFunc(out, func(a, b Ref) int {
		return cmp.Or(strings.Compare(a.Type, b.Type), a.Schema-b.Schema)
	})
	return out
}
