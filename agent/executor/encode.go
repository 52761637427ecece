package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxLine bounds one message, its newline included, in bytes.
const MaxLine = 64 << 10

// EncodeMessage gives the message as one line, newline included. Fields that
// say nothing are left out. What DecodeMessage would refuse is an error.
func EncodeMessage(m Message) ([]byte, error) {
	kind := m.Kind()
	if kind == "" {
		return nil, errors.New("encode a message: it is empty")
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode a message: %s: %w", kind, err)
	}
	body, err := marshal(m.body())
	if err != nil {
		return nil, fmt.Errorf("encode a message: %s: %w", kind, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("encode a message: %s: %w", kind, err)
	}
	for name, value := range fields {
		if s := string(value); s == "null" || s == `""` {
			delete(fields, name)
		}
	}
	fields["type"] = json.RawMessage(`"` + kind + `"`)
	line, err := marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode a message: %s: %w", kind, err)
	}
	if len(line)+1 > MaxLine {
		return nil, fmt.Errorf("encode a message: %s: %d bytes, the limit is %d; put it into an artifact", kind, len(line)+1, MaxLine)
	}
	return append(line, '\n'), nil
}

// marshal leaves <, > and & as they are: escaping makes six bytes of one, and
// what was within the limits must stay so.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// MarshalJSON gives the message as on the wire, with its type.
func (m Message) MarshalJSON() ([]byte, error) {
	line, err := EncodeMessage(m)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON gives, as strictly as DecodeMessage.
func (m *Message) UnmarshalJSON(b []byte) error {
	got, err := DecodeMessage(b)
	if err == nil {
		*m = got
	}
	return err
}
