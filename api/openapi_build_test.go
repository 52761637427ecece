package api_test

import (
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// openAPI builds the document from the route table, the types behind it, and the
// comments and constants that stand beside them in the source.
type openAPI struct {
	t        *testing.T
	comments map[string]string   // "Type" and "Type.Field"
	enums    map[string][]string // values of a string type's constants
	schemas  map[string]yaml.MapSlice
	owners   map[string]reflect.Type
	closed   map[reflect.Type]bool // types that a caller sends, and the two contracts
}

func newOpenAPI(t *testing.T) *openAPI {
	o := &openAPI{t: t, comments: map[string]string{}, enums: map[string][]string{}, schemas: map[string]yaml.MapSlice{},
		owners: map[string]reflect.Type{}, closed: map[reflect.Type]bool{}}
	for _, dir := range []string{"wire", "../domain"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				o.readSource(f, filepath.Base(dir))
			}
		}
	}
	for _, r := range api.Routes() {
		if r.Request != nil {
			o.close(reflect.TypeOf(r.Request))
		}
	}
	o.close(reflect.TypeFor[domain.ExecutionResult]())
	return o
}

func (o *openAPI) readSource(file, pkg string) {
	src, err := os.ReadFile(file)
	if err != nil {
		o.t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ParseComments)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				doc := s.Doc
				if doc == nil {
					doc = g.Doc
				}
				o.comments[pkg+"."+s.Name.Name] = sentence(doc)
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						text := sentence(field.Doc)
						if text == "" {
							text = sentence(field.Comment)
						}
						for _, n := range field.Names {
							o.comments[pkg+"."+s.Name.Name+"."+n.Name] = text
						}
					}
				}
			case *ast.ValueSpec:
				o.readConstants(s, pkg)
			}
		}
	}
}

func (o *openAPI) readConstants(s *ast.ValueSpec, pkg string) {
	typ, ok := s.Type.(*ast.Ident)
	if !ok {
		return
	}
	for _, v := range s.Values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				o.t.Fatal(err)
			}
			if text != "" {
				o.enums[pkg+"."+typ.Name] = append(o.enums[pkg+"."+typ.Name], text)
			}
		}
	}
}

func sentence(c *ast.CommentGroup) string {
	return strings.Join(strings.Fields(c.Text()), " ")
}

// close marks a type, and what it holds, as one that takes no unknown field.
func (o *openAPI) close(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		o.close(t.Elem())
	case reflect.Struct:
		if o.closed[t] || isText(t) {
			return
		}
		o.closed[t] = true
		for f := range t.Fields() {
			o.close(f.Type)
		}
	}
}

var (
	rawType  = reflect.TypeFor[json.RawMessage]()
	timeType = reflect.TypeFor[time.Time]()
)

func isText(t reflect.Type) bool {
	return t == timeType || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// schemaName is the name of a type in the document.
func schemaName(v any) string { return nameOf(reflect.TypeOf(v)) }

func nameOf(t reflect.Type) string {
	base, arg, generic := strings.Cut(t.Name(), "[")
	if generic {
		return strings.TrimSuffix(arg[strings.LastIndexAny(arg, "./")+1:], "]") + base
	}
	return base
}

func (o *openAPI) key(t reflect.Type) string {
	name, _, _ := strings.Cut(t.Name(), "[")
	return filepath.Base(t.PkgPath()) + "." + name
}

func item(k string, v any) yaml.MapItem { return yaml.MapItem{Key: k, Value: v} }

// schemaOf describes a type; structs and named texts become components.
func (o *openAPI) schemaOf(t reflect.Type) yaml.MapSlice {
	switch {
	case t == rawType:
		return yaml.MapSlice{}
	case t == reflect.TypeFor[domain.Attempt]():
		// The fold is the ledger's own; it follows from the events and is no contract.
		return yaml.MapSlice{item("type", "object")}
	case t == timeType:
		return yaml.MapSlice{item("type", "string"), item("format", "date-time")}
	case t.Kind() == reflect.Struct && isText(t):
		return yaml.MapSlice{item("type", "string"), item("format", "uuid"), item("pattern", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return o.schemaOf(t.Elem())
	case reflect.String:
		if values := o.enums[o.key(t)]; len(values) > 0 && t.PkgPath() != "" {
			o.component(t, func() yaml.MapSlice { return yaml.MapSlice{item("type", "string"), item("enum", values)} })
			return ref(nameOf(t))
		}
		return yaml.MapSlice{item("type", "string")}
	case reflect.Bool:
		return yaml.MapSlice{item("type", "boolean")}
	case reflect.Int, reflect.Int64:
		return yaml.MapSlice{item("type", "integer")}
	case reflect.Interface:
		return yaml.MapSlice{}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return yaml.MapSlice{item("type", "string"), item("contentEncoding", "base64")}
		}
		return yaml.MapSlice{item("type", "array"), item("items", o.schemaOf(t.Elem()))}
	case reflect.Map:
		return yaml.MapSlice{item("type", "object"), item("additionalProperties", o.schemaOf(t.Elem()))}
	case reflect.Struct:
		o.component(t, func() yaml.MapSlice { return o.object(t) })
		return ref(nameOf(t))
	}
	o.t.Fatalf("the wire holds a %s, which has no JSON form here", t)
	return nil
}

func ref(name string) yaml.MapSlice {
	return yaml.MapSlice{item("$ref", "#/components/schemas/"+name)}
}

func (o *openAPI) component(t reflect.Type, build func() yaml.MapSlice) {
	name := nameOf(t)
	if owner, ok := o.owners[name]; ok {
		if owner != t {
			o.t.Fatalf("two types are called %s: %s and %s", name, owner, t)
		}
		return
	}
	o.owners[name] = t
	s := build()
	if text := o.comments[o.key(t)]; text != "" {
		s = append(yaml.MapSlice{item("description", text)}, s...)
	}
	o.schemas[name] = s
}

func (o *openAPI) object(t reflect.Type) yaml.MapSlice {
	properties, required := o.fields(t)
	s := yaml.MapSlice{item("type", "object")}
	if len(required) > 0 {
		s = append(s, item("required", required))
	}
	s = append(s, item("properties", properties))
	if o.closed[t] {
		s = append(s, item("additionalProperties", false))
	}
	return s
}

// optional are fields without omitempty that a caller may leave out all the same.
var optional = []string{"JobSpec.inputs", "JobSpec.output_contract", "Target.resources", "EvidenceRequest.source", "ArtifactRequest.bytes", "ArtifactRequest.sha256",
	"CompleteRequest.code", "Registration.binary_sha256", "Registration.version"}

func (o *openAPI) fields(t reflect.Type) (properties yaml.MapSlice, required []string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if f.Anonymous && name == "" {
			p, r := o.fields(f.Type)
			properties, required = append(properties, p...), append(required, r...)
			continue
		}
		s := o.schemaOf(f.Type)
		may := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		if f.Type.Kind() == reflect.Pointer && !may {
			s = orNull(s)
		}
		if !may && !slices.Contains(optional, nameOf(t)+"."+name) {
			required = append(required, name)
		}
		if text := o.comments[o.key(t)+"."+f.Name]; text != "" {
			s = append(yaml.MapSlice{item("description", text)}, s...)
		}
		properties = append(properties, item(name, s))
	}
	return properties, required
}

func orNull(s yaml.MapSlice) yaml.MapSlice {
	for i, m := range s {
		if m.Key == "type" {
			s[i].Value = []string{m.Value.(string), "null"}
			return s
		}
	}
	return yaml.MapSlice{item("anyOf", []yaml.MapSlice{s, {item("type", "null")}})}
}

func (o *openAPI) document() yaml.MapSlice {
	paths := yaml.MapSlice{}
	byPath := map[string]int{}
	for _, r := range api.Routes() {
		i, ok := byPath[r.Path]
		if !ok {
			i = len(paths)
			byPath[r.Path] = i
			paths = append(paths, item(r.Path, yaml.MapSlice{}))
		}
		paths[i].Value = append(paths[i].Value.(yaml.MapSlice), item(strings.ToLower(r.Method), o.operation(r)))
	}
	o.schemaOf(reflect.TypeFor[wire.Problem]())
	o.schemaOf(reflect.TypeFor[wire.Pending]())
	o.schemaOf(reflect.TypeFor[wire.Event]())
	o.schemaOf(reflect.TypeFor[wire.LogEnd]())
	names := make([]string, 0, len(o.schemas))
	for n := range o.schemas {
		names = append(names, n)
	}
	sort.Strings(names)
	schemas := yaml.MapSlice{}
	for _, n := range names {
		schemas = append(schemas, item(n, o.schemas[n]))
	}
	return yaml.MapSlice{
		item("openapi", "3.1.0"),
		item("info", yaml.MapSlice{item("title", "execution-plane-service"), item("version", "1"),
			item("description", "Attempts, leases, runners, logs and results. docs/api.md says the same for people.")}),
		item("servers", []yaml.MapSlice{{item("url", "/")}}),
		item("paths", paths),
		item("components", yaml.MapSlice{
			item("securitySchemes", yaml.MapSlice{
				item("bearer", yaml.MapSlice{item("type", "http"), item("scheme", "bearer"), item("description", "ep_<token id>_<secret>; a role goes with it.")}),
				item("enrolment", yaml.MapSlice{item("type", "http"), item("scheme", "bearer"), item("description", "ee_<enrolment id>_<secret>; good for one runner.")}),
			}),
			item("responses", yaml.MapSlice{item("Problem", yaml.MapSlice{item("description", "A refusal with a stable code and the next step."),
				item("content", yaml.MapSlice{item("application/problem+json", yaml.MapSlice{item("schema", ref("Problem"))})})})}),
			item("schemas", schemas),
		}),
	}
}

func (o *openAPI) operation(r api.Route) yaml.MapSlice {
	op := yaml.MapSlice{item("operationId", operationName(r)), item("summary", r.Summary)}
	if r.Public() {
		op = append(op, item("security", []yaml.MapSlice{}))
	} else {
		security := []yaml.MapSlice{{item("bearer", []string{})}}
		if r.Enrolment {
			security = append(security, yaml.MapSlice{item("enrolment", []string{})})
		}
		op = append(op, item("x-roles", r.Roles), item("security", security))
	}
	if p := o.parameters(r); len(p) > 0 {
		op = append(op, item("parameters", p))
	}
	if r.HasBody() {
		media, schema := r.RequestMedia, yaml.MapSlice{}
		if r.Request != nil {
			media, schema = "application/json", o.schemaOf(reflect.TypeOf(r.Request))
		}
		op = append(op, item("requestBody", yaml.MapSlice{item("required", true),
			item("content", yaml.MapSlice{item(media, yaml.MapSlice{item("schema", schema)})})}))
	}
	return append(op, item("responses", o.responses(r)))
}

func camel(part string) string {
	part = strings.Trim(part, "{}")
	part = strings.ReplaceAll(part, ".", "_")
	return strings.ToUpper(part[:1]) + part[1:]
}

func operationName(r api.Route) string {
	out := strings.ToLower(r.Method)
	for _, part := range strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.Path, "/v1"), "/"), "/") {
		out += camel(part)
	}
	return out
}

// queryDocs describe the query parameters: type and meaning.
var queryDocs = map[string][2]string{
	"privileged":   {"boolean", "May only be true, which it is without it."},
	"dry_run":      {"boolean", "Say what would come of it and write nothing."},
	"wait":         {"integer", "Seconds that the request may be held, 0 to 30."},
	"after":        {"string", "Go on after this cursor, or version, of an earlier answer."},
	"limit":        {"integer", "At most so many."},
	"version":      {"integer", "Fold up to this version."},
	"at":           {"string", "Fold up to this moment (RFC 3339)."},
	"stream":       {"string", "stdout, stderr or events."},
	"offset":       {"integer", "Content bytes to pass over."},
	"certain":      {"integer", "The shortest leak that the prints cannot miss, in bytes."},
	"follow":       {"boolean", "Answer with an event stream that goes on as the log grows."},
	"operation_id": {"string", "Attempts of this operation."},
	"plan_node_id": {"string", "Attempts of this plan node."},
	"status":       {"string", "queued, leased, running, finalizing, or a final status."},
	"failure_code": {"string", "Attempts that ended with this failure code."},
	"runner_id":    {"string", "Attempts of this runner."},
	"job_type":     {"string", "Attempts of this job type."},
	"action":       {"string", "Attempts of this action."},
	"environment":  {"string", "Attempts in this environment."},
	"resource_id":  {"string", "Attempts on this resource."},
	"requested_by": {"string", "Attempts requested by the principal with this id."},
	"id_prefix":    {"string", "Attempts whose id begins so."},
	"since":        {"string", "Created at or after this moment (RFC 3339)."},
	"until":        {"string", "Created before this moment (RFC 3339)."},
	"sensitivity":  {"string", "public or internal (default); a secret belongs into Vault."},
	"endpoint":     {"string", "Callbacks to this endpoint."},
	"state":        {"string", "pending, delivered or exhausted."},
	"attempt_id":   {"string", "Callbacks of this attempt."},
}

func (o *openAPI) parameters(r api.Route) []yaml.MapSlice {
	var out []yaml.MapSlice
	add := func(in, name, typ, format, text string, required bool) {
		s := yaml.MapSlice{item("type", typ)}
		if format != "" {
			s = append(s, item("format", format))
		}
		p := yaml.MapSlice{item("name", name), item("in", in)}
		if required {
			p = append(p, item("required", true))
		}
		if text != "" {
			p = append(p, item("description", text))
		}
		out = append(out, append(p, item("schema", s)))
	}
	for _, part := range strings.Split(r.Path, "/") {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		format := ""
		if part == "{id}" {
			format = "uuid"
		}
		add("path", strings.Trim(part, "{}"), "string", format, "", true)
	}
	for _, name := range r.Query {
		d, ok := queryDocs[name]
		if !ok {
			o.t.Fatalf("the query parameter %s of %s is not described: add it to queryDocs", name, r.Path)
		}
		required := r.Lease && (name == "stream" || name == "offset" || name == "certain")
		add("query", name, d[0], "", d[1], required)
	}
	switch r.Key {
	case api.KeyRequired, api.KeyOptional:
		add("header", wire.HeaderIdempotencyKey, "string", "uuid", "Names the request: the same key again has one effect.", r.Key == api.KeyRequired)
	case api.KeyInBody:
		add("header", wire.HeaderIdempotencyKey, "string", "uuid", "Is the JobSpec's attempt_id; may be left out.", false)
	}
	if r.Streamed {
		add("header", wire.HeaderContentSHA256, "string", "", "Hex SHA-256 of the body, which is then checked.", false)
	}
	if r.Lease {
		add("header", wire.HeaderLeaseToken, "string", "", "The token whose SHA-256 the offer named.", true)
		add("header", wire.HeaderLeaseEpoch, "integer", "", "The epoch of the offer.", true)
	}
	return out
}

func (o *openAPI) responses(r api.Route) yaml.MapSlice {
	texts := map[int]string{}
	var order []int
	for _, k := range r.Refusals() {
		s := api.StatusOf(k)
		if texts[s] == "" {
			order = append(order, s)
		}
		texts[s] = string(k)
	}
	out := yaml.MapSlice{}
	for _, s := range r.Success {
		out = append(out, item(strconv.Itoa(s), o.success(r, s)))
	}
	sort.Ints(order)
	for _, s := range order {
		if !slices.Contains(r.Success, s) {
			out = append(out, item(strconv.Itoa(s), refResponse("Problem")))
		}
	}
	return out
}

func refResponse(name string) yaml.MapSlice {
	return yaml.MapSlice{item("$ref", "#/components/responses/"+name)}
}

func (o *openAPI) success(r api.Route, status int) yaml.MapSlice {
	content := yaml.MapSlice{}
	header := func(typ, text string) yaml.MapSlice {
		return yaml.MapSlice{item("description", text), item("schema", yaml.MapSlice{item("type", typ)})}
	}
	switch {
	case status == 307:
		return yaml.MapSlice{item("description", "Where the bytes are, for some minutes and for whoever asks there."),
			item("headers", yaml.MapSlice{item("Location", header("string", "To be read by GET, without this service's token.")),
				item(wire.HeaderContentSHA256, header("string", "Hex SHA-256 of the bytes.")), item(wire.HeaderBytes, header("integer", "How many they are, where that is known."))})}
	case status == 304:
		return yaml.MapSlice{item("description", "What the caller has is still right.")}
	case status == 202:
		content = append(content, item("application/json", yaml.MapSlice{item("schema", ref("Pending"))}))
		return yaml.MapSlice{item("description", "Not yet."), item("content", content)}
	case r.ResponseMedia != "":
		content = append(content, item(r.ResponseMedia, yaml.MapSlice{item("schema", yaml.MapSlice{})}))
	case r.Key == api.KeyInBody && status == 200: // a repeated submit, or a dry run
		either := []yaml.MapSlice{o.schemaOf(reflect.TypeOf(r.Response)), o.schemaOf(reflect.TypeFor[wire.DryRun]())}
		content = append(content, item("application/json", yaml.MapSlice{item("schema", yaml.MapSlice{item("anyOf", either)})}))
	default:
		content = append(content, item("application/json", yaml.MapSlice{item("schema", o.schemaOf(reflect.TypeOf(r.Response)))}))
	}
	if strings.HasSuffix(r.Path, "/events") || (r.Method == "GET" && strings.HasSuffix(r.Path, "/log")) {
		content = append(content, item("text/event-stream", yaml.MapSlice{item("schema", yaml.MapSlice{item("type", "string")})}))
	}
	words := map[int]string{200: "Done.", 201: "Made.", 503: "Not ready."}
	out := yaml.MapSlice{item("description", words[status])}
	if r.Method == "GET" && strings.HasSuffix(r.Path, "/log") {
		out = append(out, item("headers", yaml.MapSlice{item("Log-Offset", header("integer", "Content offset after the bytes.")),
			item("Log-Complete", header("boolean", "The attempt has ended and nothing follows."))}))
	}
	return append(out, item("content", content))
}
