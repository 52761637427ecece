package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a message or task.
const maxDepth = 32

// strict decodes one JSON value and nothing after it. Unknown fields, repeated
// fields at any depth, field names in another case, invalid UTF-8 and deep
// nesting are errors.
func strict(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not valid UTF-8")
	}
	if err := noRepeats(data); err != nil {
		return err
	}
	if err := exactNames(data, reflect.TypeOf(v).Elem(), ""); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// noRepeats walks the tokens: encoding/json takes the last of two equal keys
// in silence, and two readers could then see two different messages.
func noRepeats(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := walk(dec, 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func walk(dec *json.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d", maxDepth)
	}
	tok, err := dec.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	open, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if seen[name] {
				return fmt.Errorf("field %q stands twice", name)
			}
			seen[name] = true
		}
		if err := walk(dec, depth+1); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

// exactNames compares the names of objects with the struct that they go into.
// encoding/json would take a name in any case.
func exactNames(data []byte, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == rawMessage:
		return nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		var items []json.RawMessage
		if err := json.Unmarshal(data, &items); err != nil {
			return fmt.Errorf("%s: a list is expected", at(path))
		}
		for i, item := range items {
			if err := exactNames(item, t.Elem(), fmt.Sprintf("%s/%d", path, i)); err != nil {
				return err
			}
		}
		return nil
	case t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshaler):
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return fmt.Errorf("%s: an object is expected", at(path))
	}
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = t.Field(i).Type
	}
	for name, value := range fields {
		ft, ok := known[name]
		if !ok {
			return fmt.Errorf("unknown field %q", path+"/"+name)
		}
		if err := exactNames(value, ft, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func at(path string) string {
	if path == "" {
		return "the message"
	}
	return path
}
