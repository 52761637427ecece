package runners

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Violation is one thing wrong with the parameters of a job.
type Violation struct {
	Pointer string // RFC 6901, from the parameters' root; "" is the root
	Keyword string // of JSON Schema; uniqueName and known for our own rules
	Message string // never repeats a value of the parameters
}

// maxViolations bounds an answer; nobody repairs more at once.
const maxViolations = 100

// ValidateParameters checks inputs.parameters against the action's schema and
// the rules that a schema cannot say. It gives every violation, sorted by
// pointer. An unknown action is one violation; an extension action has no
// schema and passes.
func (c *Catalog) ValidateParameters(action string, params json.RawMessage) []Violation {
	schema, ok := c.schemas[action]
	if !ok {
		if IsExtension(action) {
			return nil
		}
		return []Violation{{Keyword: "known", Message: "the action is unknown: GET /v1/actions lists those there are"}}
	}
	if len(bytes.TrimSpace(params)) == 0 {
		params = json.RawMessage("{}")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(params))
	if err != nil {
		return []Violation{{Keyword: "type", Message: "the parameters are no valid JSON"}}
	}
	if out := hugeNumbers(doc, "", nil); len(out) > 0 {
		return out
	}
	var out []Violation
	if err := schema.Validate(doc); err != nil {
		var failed *jsonschema.ValidationError
		if !errors.As(err, &failed) {
			return []Violation{{Keyword: "schema", Message: "the parameters cannot be checked"}}
		}
		out = flatten(failed, out)
	}
	out = append(out, repeatedNames(doc)...)
	slices.SortFunc(out, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Keyword, b.Keyword), cmp.Compare(a.Message, b.Message))
	})
	out = slices.Compact(out)
	return out[:min(len(out), maxViolations)]
}

// flatten turns the tree of errors into the list of its leaves. A choice
// (anyOf) is one violation: what each alternative missed would confuse.
func flatten(e *jsonschema.ValidationError, out []Violation) []Violation {
	pointer := pointerOf(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		return append(out, Violation{pointer, "anyOf", choiceMessage(e)})
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return append(out, Violation{pointer, "oneOf", "has more than one of the forms that exclude one another: see the action's schema"})
		}
		return append(out, Violation{pointer, "anyOf", choiceMessage(e)})
	case *kind.PropertyNames:
		at := ownerOfNames(e) + "/" + escapePointer(k.Property)
		for _, cause := range e.Causes {
			out = append(out, Violation{at, "propertyNames", "the name of this field " + message(cause.ErrorKind)})
		}
		return out
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			out = append(out, Violation{pointer + "/" + escapePointer(name), "additionalProperties", "unknown field"})
		}
		return out
	case *kind.Required:
		for _, name := range k.Missing {
			out = append(out, Violation{pointer, "required", fmt.Sprintf("field %q is missing", name)})
		}
		return out
	}
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			out = flatten(cause, out)
		}
		return out
	}
	return append(out, Violation{pointer, keywordOf(e.ErrorKind), message(e.ErrorKind)})
}

// ownerOfNames is the pointer of the object that has a name it must not have. The
// library gives the place of this one kind of error in memory that it goes on using, so
// it is told from the schema's place, where only properties lead to such names.
func ownerOfNames(e *jsonschema.ValidationError) string {
	_, place, _ := strings.Cut(e.SchemaURL, "#")
	steps := strings.Split(strings.TrimSuffix(strings.TrimPrefix(place, "/"), "propertyNames"), "/")
	var out strings.Builder
	for len(steps) > 1 && steps[0] == "properties" {
		out.WriteString("/" + steps[1])
		steps = steps[2:]
	}
	if len(steps) == 1 && steps[0] == "" {
		return out.String()
	}
	return pointerOf(e.InstanceLocation)
}

func choiceMessage(e *jsonschema.ValidationError) string {
	var names []string
	for _, cause := range e.Causes {
		missing, ok := cause.ErrorKind.(*kind.Required)
		if !ok {
			return "has none of the forms allowed here: see the action's schema"
		}
		names = append(names, missing.Missing...)
	}
	return "needs at least one of: " + strings.Join(names, ", ")
}

func keywordOf(k jsonschema.ErrorKind) string {
	switch k.(type) {
	case *kind.FalseSchema, *kind.Not:
		return "not"
	}
	if path := k.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return "schema"
}

// message words an error without the value that caused it, which the library's
// own texts repeat.
func message(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ")
	case *kind.FalseSchema:
		return "is not allowed here"
	case *kind.Not:
		return "has fields that exclude one another: see the action's schema"
	case *kind.DependentRequired:
		return fmt.Sprintf("with field %q it also needs: %s", k.Prop, strings.Join(k.Missing, ", "))
	case *kind.UniqueItems:
		return "must not hold the same entry twice"
	case *kind.Enum:
		return "must be one of " + list(k.Want)
	case *kind.Const:
		return "must be " + list([]any{k.Want})
	case *kind.Format:
		if hint, ok := formatHints[k.Want]; ok {
			return hint
		}
		return "must be a " + k.Want
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d entries", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d entries", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d fields", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d fields", k.Want)
	case *kind.Minimum:
		return "must be at least " + decimal(k.Want)
	case *kind.Maximum:
		return "must be at most " + decimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + decimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + decimal(k.Want)
	default:
		return "does not fit the action's schema"
	}
}

func decimal(r *big.Rat) string {
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func list(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		data, err := json.Marshal(v)
		if err != nil {
			data = []byte("?")
		}
		words[i] = string(data)
	}
	return strings.Join(words, ", ")
}

// hugeNumbers finds numbers that no double holds. They must not reach the
// schema's exact arithmetic, which writes 1e999999999 out in full.
func hugeNumbers(v any, pointer string, out []Violation) []Violation {
	switch x := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			out = hugeNumbers(x[name], pointer+"/"+escapePointer(name), out)
		}
	case []any:
		for i, item := range x {
			out = hugeNumbers(item, pointer+"/"+strconv.Itoa(i), out)
		}
	case json.Number:
		// A tiny number is as long to write out as a huge one, and a double
		// calls it 0 without an error.
		f, err := x.Float64()
		if err != nil || (f == 0 && strings.Trim(x.String(), "-0.") != "") || len(x) > 400 {
			out = append(out, Violation{pointer, "number", "must be a number that a double can hold"})
		}
	}
	return out
}

// repeatedNames finds two expectations of one name: their evidence could not
// be told apart.
func repeatedNames(doc any) []Violation {
	object, _ := doc.(map[string]any)
	expect, _ := object["expect"].([]any)
	seen := map[string]bool{}
	var out []Violation
	for i, item := range expect {
		entry, _ := item.(map[string]any)
		name, ok := entry["name"].(string)
		if ok && seen[name] {
			out = append(out, Violation{"/expect/" + strconv.Itoa(i) + "/name", "uniqueName", "another expectation has this name"})
		}
		seen[name] = true
	}
	return out
}

func pointerOf(location []string) string {
	var b strings.Builder
	for _, part := range location {
		b.WriteByte('/')
		b.WriteString(escapePointer(part))
	}
	return b.String()
}

func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}
