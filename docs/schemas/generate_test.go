package schemas_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/docs/schemas"
	"github.com/platform-core/execution-plane-service/domain"
)

const (
	uuidPattern   = `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	sha256Pattern = `^[0-9a-f]{64}$`
	timePattern   = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$`
)

// What a field is beyond its Go type, by the struct that declares it and its name
// in JSON.
var (
	// closed fields take the values that the row of docs/events.md names and no
	// other.
	closed = set(`Access.object ArtifactCreated.sensitivity ArtifactCreated.storage Created.job_type EndpointStopped.cause
		Ended.bundle_state Ended.category Ended.side_effects EvidenceRecorded.result EvidenceRecorded.type ForwarderParked.reason LeaseExpired.cause
		LeaseReleased.reason LogStored.stream
		PolicyDecided.at PolicyDecided.verdict PrivilegesGranted.at PrivilegesGranted.privileges Principal.kind ProcessTreeReaped.method ScanFailed.reason ScrubFailed.problem
		Sealed.state SecretTokenIssued.purpose ServiceResumed.reason Started.isolation StopRequested.reason StopSummary.proof
		TokenCreated.role`)
	// open fields take others beside those that their row names.
	open = set(`CallbackExhausted.reason CallbackFailed.error_class Claim.result ScanFailed.found`)
	// empty are closed fields and digests that may also be "".
	empty = set(`SealedLog.sha256 StopSummary.proof`)
	// asTold fields are kept as a runner said them, without a bound.
	asTold = set(`Claim.code ClaimedLog.sha256 Ended.code Progressed.done Progressed.total RunnerRegistered.binary_sha256`)
	uuids  = set(`Sealed.bundle_id`)
	// fromOne are counts that begin at one.
	fromOne = set(`epoch incarnation round try version`)
	most    = map[string]int{"Created.priority": 9}
)

func set(names string) map[string]bool {
	out := map[string]bool{}
	for _, n := range strings.Fields(names) {
		out[n] = true
	}
	return out
}

// generator makes the schema of one event.
type generator struct {
	t       *testing.T
	words   catalogue
	section section // where the fields at hand are described
	used    map[string]bool
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	refType  = reflect.TypeFor[domain.TextRef]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// generate gives the schema files of all events that are written now, by path.
func generate(t *testing.T) map[schemas.Ref][]byte {
	t.Helper()
	g := generator{t: t, words: readCatalogue(t), used: map[string]bool{}}
	out := map[schemas.Ref][]byte{}
	for _, name := range domain.EventTypes() {
		ref := schemas.Ref{Type: name, Schema: domain.EventSchema(name)}
		zero, err := domain.DecodeEvent(ref.Type, ref.Schema, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		s, ok := g.words.events[name]
		if !ok || s.about == "" {
			t.Errorf("docs/events.md does not describe %s", name)
			continue
		}
		g.section = s
		schema := object{
			{"$schema", "https://json-schema.org/draft/2020-12/schema"},
			{"$id", ref.URN()},
			{"title", name},
			{"description", plain(s.about)},
		}
		out[ref] = render(append(schema, g.object(reflect.TypeOf(zero), "")...))
	}
	for _, m := range []map[string]bool{closed, open, empty, asTold, uuids} {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !g.used[key] {
				t.Errorf("%s is said to be special and is in no event", key)
			}
		}
	}
	return out
}

// object is the schema of a struct. Within is the row that describes the field
// which holds it: a struct without a table of its own is described there.
func (g *generator) object(t reflect.Type, within string) object {
	var properties object
	required := []string{}
	g.members(t, func(f reflect.StructField, owner string) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		optional := strings.Contains(options, "omit")
		if !optional {
			required = append(required, name)
		}
		properties = append(properties, member{name, g.property(f.Type, owner, name, within, optional)})
	})
	if properties == nil {
		properties = object{}
	}
	return object{{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}}
}

// members walks over the fields of a struct as encoding/json writes them.
func (g *generator) members(t reflect.Type, visit func(f reflect.StructField, owner string)) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			g.members(f.Type, visit)
			continue
		}
		if f.Tag.Get("json") == "" {
			g.t.Fatalf("%s.%s has no name in JSON", t, f.Name)
		}
		visit(f, t.Name())
	}
}

// described is what the catalogue says of a field.
type described struct {
	meaning string
	own     bool // in a row of its own, not in that of what holds it
}

func (g *generator) property(t reflect.Type, owner, name, within string, optional bool) object {
	var out object
	says := described{meaning: within}
	if within == "" || seeLink.MatchString(within) {
		r, ok := g.words.row(g.section, name)
		if !ok {
			g.t.Errorf("docs/events.md does not describe %s of %s", name, owner)
		}
		says = described{r.meaning, true}
		out = object{{"description", plain(r.meaning)}}
	}
	nullable := false
	if t.Kind() == reflect.Pointer {
		t, nullable = t.Elem(), !optional
	} else if t.Kind() == reflect.Slice && t != rawType {
		nullable = !optional // a nil list is written so
	}
	value := g.value(t, owner, name, says)
	if nullable && len(value) > 0 && value[0].key == "type" {
		value[0].value = []string{value[0].value.(string), "null"}
	}
	return append(out, value...)
}

// value is the schema of a value, "type" first.
func (g *generator) value(t reflect.Type, owner, name string, says described) object {
	key := owner + "." + name
	for _, m := range []map[string]bool{closed, open, empty, asTold, uuids} {
		g.used[key] = g.used[key] || m[key]
	}
	switch {
	case t == timeType:
		return object{{"type", "string"}, {"format", "date-time"}, {"pattern", timePattern}}
	case t == rawType:
		return object{}
	case uuids[key], t.Implements(textType):
		return object{{"type", "string"}, {"format", "uuid"}, {"pattern", uuidPattern}}
	case t == refType:
		return object{{"type", "string"}, {"pattern", sha256Pattern}}
	}
	switch t.Kind() {
	case reflect.String:
		return g.text(key, name, says)
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return number(key, name)
	case reflect.Slice:
		return object{{"type", "array"}, {"items", g.value(t.Elem(), owner, name, says)}}
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", g.value(t.Elem(), owner, name, described{})}}
	case reflect.Struct:
		return g.nested(t, says.meaning)
	}
	g.t.Fatalf("%s is a %s, which no payload holds", key, t)
	return nil
}

// nested is a struct inside a payload.
func (g *generator) nested(t reflect.Type, meaning string) object {
	outer := g.section
	defer func() { g.section = outer }()
	if m := seeLink.FindStringSubmatch(meaning); m != nil {
		g.section = g.words.shared[m[1]]
	}
	return g.object(t, meaning)
}

func number(key, name string) object {
	n := object{{"type", "integer"}}
	switch {
	case asTold[key]:
		return n
	case fromOne[name]:
		n = append(n, member{"minimum", 1})
	default:
		n = append(n, member{"minimum", 0})
	}
	if high, ok := most[key]; ok {
		n = append(n, member{"maximum", high})
	}
	return n
}

func (g *generator) text(key, name string, says described) object {
	s := object{{"type", "string"}}
	var values []string
	if says.own {
		values = words(says.meaning)
	} else if m := regexp.MustCompile("`" + name + "` \\(([^)]*)\\)").FindStringSubmatch(says.meaning); m != nil {
		values = words(m[1]) // what holds it tells it: `kind` (`user`, `service`)
	}
	switch {
	case closed[key]:
		if len(values) == 0 {
			g.t.Errorf("docs/events.md names no value of %s", key)
		}
		if empty[key] {
			values = append(values, "")
		}
		return append(s, member{"enum", values})
	case asTold[key], open[key]:
		return s
	case len(values) > 1:
		g.t.Errorf("docs/events.md names %v for %s: say in this file whether these are all", values, key)
	case strings.HasSuffix(name, "sha256") || strings.HasSuffix(name, "_digest"):
		pattern := sha256Pattern
		if empty[key] {
			pattern = `^([0-9a-f]{64})?$`
		}
		return append(s, member{"pattern", pattern})
	}
	return s
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

// render writes a schema, indented by two spaces.
func render(o object) []byte {
	var b strings.Builder
	write(&b, o, "\n")
	return []byte(b.String() + "\n")
}

func write(b *strings.Builder, v any, newline string) {
	switch v := v.(type) {
	case object:
		b.WriteString("{")
		for i, m := range v {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(newline + "  ")
			write(b, m.key, "")
			b.WriteString(": ")
			write(b, m.value, newline+"  ")
		}
		if len(v) > 0 {
			b.WriteString(newline)
		}
		b.WriteString("}")
	case []string:
		b.WriteString("[")
		for i, text := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			write(b, text, "")
		}
		b.WriteString("]")
	default:
		var line strings.Builder
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			panic(fmt.Errorf("write %v: %w", v, err))
		}
		b.WriteString(strings.TrimSuffix(line.String(), "\n"))
	}
}
