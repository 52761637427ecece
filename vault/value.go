package vault

import (
	"fmt"
	"io"
	"log/slog"
)

const hidden = "[secret]"

// Value holds the bytes of one value and shows them to nobody who does not ask for
// Bytes: printing, logging and encoding give a placeholder. They lie behind a
// function, so that printing a struct with a Value in it does not show them either:
// fmt does not ask the methods of a field that is not exported.
type Value struct{ held func() *[]byte }

func newValue(b []byte) Value { return Value{held: func() *[]byte { return &b }} }

// Bytes is the value itself, not a copy: Wipe clears it. Empty after Wipe.
func (v Value) Bytes() []byte {
	if v.held == nil {
		return nil
	}
	return *v.held()
}

// Len is the number of bytes.
func (v Value) Len() int { return len(v.Bytes()) }

// Wipe overwrites the bytes. What the transport and TLS buffered while the value
// came in is beyond its reach.
func (v Value) Wipe() {
	if v.held == nil {
		return
	}
	b := v.held()
	clear(*b)
	*b = nil
}

// String hides the value.
func (Value) String() string { return hidden }

// GoString hides the value.
func (Value) GoString() string { return hidden }

// Format hides the value under every verb.
func (Value) Format(s fmt.State, _ rune) {
	// A writer that fails has nothing to be told.
	_, _ = io.WriteString(s, hidden)
}

// MarshalText hides the value, in JSON too.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the value.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }

// Field is one named value of a secret.
type Field struct {
	Name  string
	Value Value

	scalar bool // a string or a number
}

// Secret is what a reference stands for, and what the ledger may know of it: all
// but the fields.
type Secret struct {
	Reference     Reference
	Engine        string // the mount's type: kv, database, ssh, pki, ...
	Version       int    // of KV version 2; 0 elsewhere
	Accessor      string // of the token that read it
	LeaseID       string // of a dynamic secret; may be empty
	LeaseDuration int64  // seconds, as granted; 0 without a lease
	Fields        []Field
}

// Field finds a value by its name.
func (s *Secret) Field(name string) (Value, bool) {
	for _, f := range s.Fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return Value{}, false
}

// Wipe overwrites every value.
func (s *Secret) Wipe() {
	if s == nil {
		return
	}
	for _, f := range s.Fields {
		f.Value.Wipe()
	}
}
