package eventstore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// vector is a test vector of docs/events.md.
type vector struct {
	PrevHash      string              `json:"prev_hash"`
	EventID       uuid.UUID           `json:"event_id"`
	Stream        eventstore.StreamID `json:"stream"`
	Version       int64               `json:"version"`
	Type          string              `json:"type"`
	Schema        int                 `json:"schema"`
	Time          string              `json:"time"`
	CommandID     uuid.UUID           `json:"command_id"`
	CommandDigest string              `json:"command_digest"`
	Cause         uuid.UUID           `json:"cause"`
	Actor         eventstore.Actor    `json:"actor"`
	OperationID   string              `json:"operation_id"`
	PlanNodeID    string              `json:"plan_node_id"`
	TraceParent   string              `json:"traceparent"`
	Payload       string              `json:"payload"`
	HashedBytes   string              `json:"hashed_bytes"`
	Hash          string              `json:"hash"`
}

// vectors reads the JSON blocks of the section "The hash".
func vectors(t *testing.T) []vector {
	t.Helper()
	page, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## The hash\n")
	if !found {
		t.Fatal("docs/events.md has no section \"The hash\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out []vector
	for i, block := range strings.Split(section, "```json\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var v vector
		d := json.NewDecoder(strings.NewReader(block))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("vector %d: %v", i, err)
		}
		out = append(out, v)
	}
	if len(out) < 2 {
		t.Fatalf("docs/events.md has %d test vectors, want at least 2", len(out))
	}
	return out
}

func digest(t *testing.T, s string) eventstore.Digest {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != 32 {
		t.Fatalf("digest %q: %v", s, err)
	}
	return eventstore.Digest(b)
}

func (v vector) envelope(t *testing.T) eventstore.Envelope {
	t.Helper()
	at, err := time.Parse(eventstore.TimeLayout, v.Time)
	if err != nil {
		t.Fatal(err)
	}
	return eventstore.Envelope{
		EventID: v.EventID, Stream: v.Stream, Version: v.Version, Type: v.Type, Schema: v.Schema, Time: at,
		CommandID: v.CommandID, CommandDigest: digest(t, v.CommandDigest), Cause: v.Cause, Actor: v.Actor,
		OperationID: v.OperationID, PlanNodeID: v.PlanNodeID, TraceParent: v.TraceParent,
	}
}

func TestHashIsAsDocumented(t *testing.T) {
	var prev eventstore.Digest
	for i, v := range vectors(t) {
		if digest(t, v.PrevHash) != prev {
			t.Errorf("vector %d does not follow the one before", i)
		}
		hashed, err := hex.DecodeString(v.HashedBytes)
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(hashed) != digest(t, v.Hash) {
			t.Errorf("vector %d: the documented bytes do not hash to the documented hash", i)
		}
		if !bytes.HasPrefix(hashed, []byte("execution-plane/event/v1\x00")) {
			t.Errorf("vector %d does not begin with the domain", i)
		}
		if got := eventstore.HashEvent(prev, v.envelope(t), []byte(v.Payload)); got != digest(t, v.Hash) {
			t.Errorf("vector %d: HashEvent gives %x, documented is %s", i, got, v.Hash)
		}
		for _, i := range []int{0, 1, 9, 10, 123456} {
			if got, want := eventstore.EventID(v.CommandID, i), uuid.NewSHA1(v.CommandID, []byte(strconv.Itoa(i))); got != want {
				t.Errorf("event %d of %s is %s, want %s", i, v.CommandID, got, want)
			}
		}
		if got := eventstore.EventID(v.CommandID, 0); got != v.EventID {
			t.Errorf("vector %d: EventID gives %s, documented is %s", i, got, v.EventID)
		}
		prev = digest(t, v.Hash)
	}
}

// TestEveryFieldIsHashed changes each field of a vector in turn.
func TestEveryFieldIsHashed(t *testing.T) {
	v := vectors(t)[0]
	base, prev := v.envelope(t), digest(t, v.PrevHash)
	want := eventstore.HashEvent(prev, base, []byte(v.Payload))
	for name, change := range map[string]func(*eventstore.Envelope){
		"event id":       func(e *eventstore.Envelope) { e.EventID[15]++ },
		"stream":         func(e *eventstore.Envelope) { e.Stream += "x" },
		"version":        func(e *eventstore.Envelope) { e.Version++ },
		"type":           func(e *eventstore.Envelope) { e.Type += "x" },
		"schema":         func(e *eventstore.Envelope) { e.Schema++ },
		"time":           func(e *eventstore.Envelope) { e.Time = e.Time.Add(time.Microsecond) },
		"command id":     func(e *eventstore.Envelope) { e.CommandID[0]++ },
		"command digest": func(e *eventstore.Envelope) { e.CommandDigest[0]++ },
		"cause":          func(e *eventstore.Envelope) { e.Cause[0]++ },
		"actor kind":     func(e *eventstore.Envelope) { e.Actor.Kind += "x" },
		"actor id":       func(e *eventstore.Envelope) { e.Actor.ID += "x" },
		"actor role":     func(e *eventstore.Envelope) { e.Actor.Role += "x" },
		"actor auth":     func(e *eventstore.Envelope) { e.Actor.Auth += "x" },
		"operation id":   func(e *eventstore.Envelope) { e.OperationID += "x" },
		"plan node id":   func(e *eventstore.Envelope) { e.PlanNodeID += "x" },
		"traceparent":    func(e *eventstore.Envelope) { e.TraceParent += "x" },
		"a moved border": func(e *eventstore.Envelope) {
			e.Actor.Kind, e.Actor.ID = e.Actor.Kind+e.Actor.ID[:1], e.Actor.ID[1:]
		},
	} {
		e := base
		change(&e)
		if eventstore.HashEvent(prev, e, []byte(v.Payload)) == want {
			t.Errorf("%s is not hashed", name)
		}
	}
	if eventstore.HashEvent(prev, base, []byte(v.Payload+" ")) == want {
		t.Error("the payload is not hashed")
	}
	prev[31]++
	if eventstore.HashEvent(prev, base, []byte(v.Payload)) == want {
		t.Error("the previous hash is not hashed")
	}
}

// TestTimeZoneIsNotHashed: the same instant has one hash.
func TestTimeZoneIsNotHashed(t *testing.T) {
	v := vectors(t)[0]
	e := v.envelope(t)
	e.Time = e.Time.In(time.FixedZone("x", 7200))
	if eventstore.HashEvent(eventstore.Digest{}, e, []byte(v.Payload)) != digest(t, v.Hash) {
		t.Error("the hash depends on the time zone")
	}
}

func TestCursorText(t *testing.T) {
	for _, c := range []eventstore.Cursor{{}, {Generation: 1, Seq: 42}, {Generation: 3, Seq: 1 << 60}} {
		if got, err := eventstore.ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%v reads back as %v (%v)", c, got, err)
		}
	}
	if got, err := eventstore.ParseCursor(""); err != nil || got != (eventstore.Cursor{}) {
		t.Errorf("no cursor reads as %v (%v), want the zero cursor", got, err)
	}
	for _, s := range []string{"1", "1.", ".1", "-1.2", "1.-2", "01.2", "1.2.3", "1.2 ", "1,2", "1.99999999999999999999"} {
		if got, err := eventstore.ParseCursor(s); err == nil {
			t.Errorf("cursor %q reads as %v, want an error", s, got)
		}
	}
}
