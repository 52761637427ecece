package domain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
)

// Event is something that happened. Its name and schema number are constants on
// disk: renaming a Go type changes nothing.
type Event interface {
	EventType() string
}

// registration ties a stored name and schema to a Go type.
type registration struct {
	schema int
	plain  func([]byte) (Event, bool) // the short way, where it can be gone
	decode func([]byte) (Event, error)
}

// registry holds what is written now.
var registry = map[string]registration{}

// upcasters turn a payload of an older schema into today's event, by name and
// schema. Each is pure; an entry is added when a schema number is raised.
var upcasters = map[string]map[int]func([]byte) (Event, error){}

func register[E Event](schema int) {
	var zero E
	read := readerOf(reflect.TypeFor[E]())
	plainly := func(b []byte) (Event, bool) {
		e := new(E)
		if !readPlain(b, read, reflect.ValueOf(e).Elem()) {
			return nil, false
		}
		return *e, true
	}
	registry[zero.EventType()] = registration{schema: schema, plain: plainly, decode: func(b []byte) (Event, error) {
		var e E
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("decode %s: %w", zero.EventType(), err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("decode %s: something follows the payload", zero.EventType())
		}
		return e, nil
	}}
}

// EncodeEvent returns an event's stored name, schema number and payload bytes.
func EncodeEvent(e Event) (name string, schema int, payload []byte, err error) {
	r, ok := registry[e.EventType()]
	if !ok {
		return "", 0, nil, fmt.Errorf("event %s is not registered", e.EventType())
	}
	payload, err = json.Marshal(e)
	if err != nil {
		return "", 0, nil, fmt.Errorf("encode %s: %w", e.EventType(), err)
	}
	return e.EventType(), r.schema, payload, nil
}

// UnknownEventError stops a reader that meets an event it does not know: it says
// so, and never skips.
type UnknownEventError struct {
	Type   string
	Schema int
}

func (e *UnknownEventError) Error() string {
	return fmt.Sprintf("event %s with schema %d is not known to this release; upgrade before reading on", e.Type, e.Schema)
}

// DecodeEvent reads a stored event.
func DecodeEvent(name string, schema int, payload []byte) (Event, error) {
	r, ok := registry[name]
	if ok && schema == r.schema {
		if e, ok := r.plain(payload); ok {
			return e, nil
		}
		return r.decode(payload)
	}
	if up, ok := upcasters[name][schema]; ok {
		return up(payload)
	}
	return nil, &UnknownEventError{Type: name, Schema: schema}
}

// EventTypes lists the registered names, sorted.
func EventTypes() []string {
	out := make([]string, 0, len(registry))
	for n := range registry {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// EventSchema returns the schema number that is written now for a name, 0 if unknown.
func EventSchema(name string) int { return registry[name].schema }
