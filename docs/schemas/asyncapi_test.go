package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/platform-core/execution-plane-service/docs/schemas"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
)

// channel is one topic.
type channel struct {
	Key, Address, Title, Description string
	Messages                         []message
}

type message struct{ Key, Type, Summary, URN, Schema string }

// header is one header of a record.
type header struct {
	Name, Description      string
	Always                 bool
	Const, Format, Pattern string // quoted for YAML
}

const (
	hex64   = `^[0-9a-f]{64}$`
	ordinal = `^[1-9][0-9]*$`
)

func headers() []header {
	return []header{
		{Name: "content-type", Always: true, Const: "application/json", Description: "The payload's."},
		{Name: "ce_specversion", Always: true, Const: `"1.0"`, Description: "Version of CloudEvents."},
		{Name: "ce_id", Always: true, Format: "uuid", Description: "The event's id; what comes again has the same."},
		{Name: "ce_source", Always: true, Format: "uri-reference", Pattern: `^[^ ]+$`, Description: "Which ledger; configurable, urn:execution-plane unless it is."},
		{Name: "ce_type", Always: true, Description: "The event's type."},
		{Name: "ce_subject", Always: true, Description: "The event's stream."},
		{Name: "ce_time", Always: true, Format: "date-time", Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$`, Description: "When it happened, by the database's clock; always six digits, as they are hashed."},
		{Name: "ce_dataschema", Always: true, Format: "uri", Description: "Id of the payload's JSON Schema."},
		{Name: "ce_streamversion", Always: true, Pattern: ordinal, Description: "Its version in its stream, from 1, without a gap."},
		{Name: "ce_previntopic", Always: true, Pattern: `^(0|[1-9][0-9]*)$`, Description: "Version of the stream's event before it in the same topic, 0 if there is none."},
		{Name: "ce_position", Always: true, Pattern: ordinal, Description: "Order of insertion in this copy of the ledger; not hashed."},
		{Name: "ce_cursor", Always: true, Pattern: `^[0-9]+\.[0-9]+$`, Description: "Place in the feed, generation and sequence; not hashed. GET /v1/events goes on from it."},
		{Name: "ce_ledgerhash", Always: true, Pattern: hex64, Description: "The event's hash."},
		{Name: "ce_prevhash", Always: true, Pattern: hex64, Description: "Hash of the event before it in its stream; 64 zeros at version 1."},
		{Name: "ce_schemaversion", Always: true, Pattern: ordinal, Description: "Number of the payload's shape."},
		{Name: "ce_commandid", Always: true, Format: "uuid", Description: "The command that it came of."},
		{Name: "ce_commanddigest", Always: true, Pattern: hex64, Description: "Digest of the command's request."},
		{Name: "ce_causeid", Format: "uuid", Description: "The event that led to it; left out if none."},
		{Name: "ce_actorkind", Description: "Who caused it, see the API's roles; left out when empty."},
		{Name: "ce_actorid", Description: "Which one; left out when empty."},
		{Name: "ce_actorrole", Description: "In which role; left out when empty."},
		{Name: "ce_actorauth", Description: "How that was established; left out when empty."},
		{Name: "ce_operationid", Description: "Operation of the attempt; left out elsewhere."},
		{Name: "ce_plannodeid", Description: "Node of its plan; left out elsewhere."},
		{Name: "ce_traceparent", Description: "W3C trace context; left out when empty."},
		{Name: "ce_replayed", Const: `"true"`, Description: "History that was asked for again; left out otherwise."},
	}
}

// channels are the topics with the events of each, by the streams that the
// catalogue names.
func channels(t *testing.T) []*channel {
	t.Helper()
	out := []*channel{
		{Key: "attempts", Address: "execution.attempts", Title: "Attempts", Description: "Streams of attempts without their heartbeats, of bundles and of operations. The key is the attempt's id, or the operation's."},
		{Key: "heartbeats", Address: "execution.heartbeats", Title: "Heartbeats", Description: "Heartbeats of attempts. The key is the attempt's id."},
		{Key: "runners", Address: "execution.runners", Title: "Runners", Description: "Streams of runners. The key is the runner's id."},
		{Key: "callbacks", Address: "execution.callbacks", Title: "Callbacks", Description: "Streams of callbacks, keyed by the attempt's id, and of endpoints, keyed by their names."},
		{Key: "audit", Address: "execution.audit", Title: "Audit", Description: "Streams of reads, tokens, enrolments, packages, the service and the forwarder. The key is the token's or the enrolment's id, the replica, the package's digest, service, or the key that was parked."},
	}
	catalogue := readCatalogue(t)
	for _, ref := range schemas.All() {
		at := slices.IndexFunc(out, func(c *channel) bool { return c.Address == topicOf(t, ref.Type, catalogue.events[ref.Type].stream) })
		first, _, _ := strings.Cut(plain(catalogue.events[ref.Type].about), ". ")
		number := strings.TrimPrefix(ref.URN(), "urn:execution-plane:event:"+ref.Type+":")
		out[at].Messages = append(out[at].Messages, message{Key: ref.Type + ".v" + number, Type: ref.Type, Schema: number, URN: ref.URN(), Summary: quoted(strings.TrimSuffix(first, ".") + ".")})
	}
	return out
}

// topicOf is the topic of an event by its type and the pattern of its stream.
func topicOf(t *testing.T, eventType, stream string) string {
	t.Helper()
	kind, _, _ := strings.Cut(stream, "/")
	switch {
	case eventType == "execution.attempt.heartbeat":
		return "execution.heartbeats"
	case slices.Contains([]string{"attempt", "bundle", "operation"}, kind):
		return "execution.attempts"
	case kind == "runner":
		return "execution.runners"
	case slices.Contains([]string{"callback", "endpoint"}, kind):
		return "execution.callbacks"
	case slices.Contains([]string{"access", "token", "enrolment", "package", "service", "forwarder"}, kind):
		return "execution.audit"
	}
	t.Fatalf("the stream %q of %s belongs to no topic", stream, eventType)
	return ""
}

// quoted writes a text as YAML takes every text: JSON is YAML.
func quoted(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(text); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

func TestGeneratedAsyncAPI(t *testing.T) {
	page, err := template.ParseFiles("testdata/asyncapi.yaml.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	all := headers()
	for i := range all {
		all[i].Description = quoted(all[i].Description)
		if all[i].Pattern != "" {
			all[i].Pattern = "'" + all[i].Pattern + "'"
		}
	}
	var b bytes.Buffer
	if err := page.Execute(&b, map[string]any{"Channels": channels(t), "Headers": all}); err != nil {
		t.Fatal(err)
	}
	same(t, "../asyncapi.yaml", b.Bytes())
}

func readAsyncAPI(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile("../asyncapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	// As JSON has it, with its kinds of numbers and keys.
	again, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(again))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

// TestAsyncAPIIsOne holds the document to the JSON Schema of AsyncAPI 3.0.0.
func TestAsyncAPIIsOne(t *testing.T) {
	raw, err := os.ReadFile("testdata/asyncapi-3.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("asyncapi", spec); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("asyncapi")
	if err != nil {
		t.Fatal(err)
	}
	doc := readAsyncAPI(t)
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
	// Each of these would be noticed.
	for _, path := range []string{"asyncapi", "info/title", "channels/attempts/address", "channels/attempts/bindings/kafka/topic", "operations/sendAttempts/action", "operations/sendAttempts/channel"} {
		parent, name, was := find(t, doc, path)
		parent[name] = true
		if s.Validate(doc) == nil {
			t.Errorf("%s: true is taken", path)
		}
		parent[name] = was
	}
}

// find gives what stands at a path of member names, and what holds it.
func find(t *testing.T, doc map[string]any, path string) (parent map[string]any, name string, value any) {
	t.Helper()
	value = doc
	for name = range strings.SplitSeq(path, "/") {
		holder, ok := value.(map[string]any)
		if !ok || holder[name] == nil {
			t.Fatalf("there is no %s", path)
		}
		parent, value = holder, holder[name]
	}
	return parent, name, value
}

// TestEveryEventHasOneChannel looks at what is committed, not at what would be
// generated: each event and schema number in one channel, as one message whose
// payload is its schema, and no other message.
func TestEveryEventHasOneChannel(t *testing.T) {
	doc := readAsyncAPI(t)
	_, _, all := find(t, doc, "channels")
	seen := map[string]int{}
	for name, c := range all.(map[string]any) {
		if name == "results" {
			continue
		}
		_, _, messages := find(t, c.(map[string]any), "messages")
		for key, m := range messages.(map[string]any) {
			ref := m.(map[string]any)["$ref"].(string)
			seen[ref]++
			if ref != "#/components/messages/"+key {
				t.Errorf("%s of %s is %s", key, name, ref)
			}
		}
	}
	for _, ref := range schemas.All() {
		_, number, _ := strings.Cut(ref.URN(), ref.Type+":")
		key := ref.Type + ".v" + number
		if n := seen["#/components/messages/"+key]; n != 1 {
			t.Errorf("%s stands in %d channels", key, n)
		}
		delete(seen, "#/components/messages/"+key)
		_, _, payload := find(t, doc, "components/messages/"+key+"/payload/$ref")
		if want := "./schemas/events/" + ref.Type + "/" + number + ".json"; payload != want {
			t.Errorf("the payload of %s is %s", key, payload)
		} else if _, err := os.Stat("../" + want); err != nil {
			t.Error(err)
		}
	}
	if len(seen) > 0 {
		t.Errorf("no events: %v", seen)
	}
}

// The table of docs/events.md names every header, and the record that it shows is
// what the document says of headers; with any of its values changed to one that
// nothing can be, or one of those that are always there taken away, it is not.
func TestHeadersAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## On Kafka\n")
	if !ok {
		t.Fatal("docs/events.md has no section On Kafka")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, shown, _ := strings.Cut(section, "\ncontent-type: ")
	shown, _, ok = strings.Cut("content-type: "+shown, "\n\n")
	record := map[string]any{}
	for line := range strings.SplitSeq(shown, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		record[name] = value
	}
	s := headersSchema(t)
	if err := s.Validate(record); err != nil || !ok {
		t.Errorf("the record shown: %v", err)
	}
	for _, h := range headers() {
		was, has := record[h.Name]
		if delete(record, h.Name); (s.Validate(record) != nil) != h.Always {
			t.Errorf("without %s: %v", h.Name, s.Validate(record))
		}
		if record[h.Name] = "  "; h.Const+h.Format+h.Pattern != "" && s.Validate(record) == nil {
			t.Errorf("%s is taken as two spaces", h.Name)
		}
		if record[h.Name] = was; !has {
			delete(record, h.Name)
		}
		if !strings.Contains(section, "`"+h.Name+"`") {
			t.Errorf("docs/events.md does not describe %s", h.Name)
		}
	}
}

// The document and the forwarder send every event to the same topic.
func TestTopicsAreTheForwarders(t *testing.T) {
	catalogue, topics := readCatalogue(t), forwarder.DefaultTopics()
	for _, ref := range schemas.All() {
		stream := catalogue.events[ref.Type].stream
		want := topicOf(t, ref.Type, stream)
		if got, _ := topics.Route(eventstore.StreamID(stream), ref.Type); got != want {
			t.Errorf("%s goes to %s, the document says %s", ref.Type, got, want)
		}
	}
}

// headersSchema is the document's schema of a record's headers.
func headersSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("urn:asyncapi", readAsyncAPI(t)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("urn:asyncapi#/components/schemas/headers")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
