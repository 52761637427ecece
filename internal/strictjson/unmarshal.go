package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Limits that hold when no option changes them.
const (
	DefaultMaxBytes = 1 << 20
	DefaultMaxDepth = 32
)

type limits struct {
	bytes int
	depth int
}

// Option changes one limit.
type Option func(*limits)

// MaxBytes sets how many bytes a body may have.
func MaxBytes(n int) Option { return func(l *limits) { l.bytes = n } }

// MaxDepth sets how many objects and arrays may stand inside one another; the
// outermost counts as one.
func MaxDepth(n int) Option { return func(l *limits) { l.depth = n } }

func limitsOf(opts []Option) limits {
	l := limits{bytes: DefaultMaxBytes, depth: DefaultMaxDepth}
	for _, o := range opts {
		o(&l)
	}
	return l
}

// Unmarshal checks data against the rules and against the type of v, a
// non-nil pointer to a zero value, and then fills v. Whatever the body does
// wrong comes back as *Error, and v is then untouched. Any other error is a
// mistake of the caller.
func Unmarshal(data []byte, v any, opts ...Option) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("strictjson: Unmarshal needs a non-nil pointer, got %T", v)
	}
	if err := check(data, target.Type().Elem(), limitsOf(opts)); err != nil {
		return err
	}
	// The names were compared exactly before, so the decoder's tolerance has
	// nothing left to tolerate.
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fromDecoder(err)
	}
	return nil
}

// Decode reads r to its end and does what Unmarshal does. It reads at most one
// byte more than the limit. An error of r comes back wrapped and is no *Error.
func Decode(r io.Reader, v any, opts ...Option) error {
	l := limitsOf(opts)
	data, err := io.ReadAll(io.LimitReader(r, int64(l.bytes)+1))
	if err != nil {
		return fmt.Errorf("reading a JSON body: %w", err)
	}
	return Unmarshal(data, v, opts...)
}

// Check applies every rule that needs no type. It serves bytes that are kept
// as they came, for example before their RFC 8785 digest is taken.
func Check(data []byte, opts ...Option) error {
	return check(data, nil, limitsOf(opts))
}

func check(data []byte, t reflect.Type, l limits) error {
	if len(data) > l.bytes {
		return &Error{Code: CodeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", l.bytes)}
	}
	s := &scanner{data: data, maxDepth: l.depth}
	if err := s.document(t); err != nil {
		return err
	}
	return nil
}

// fromDecoder covers what only the standard decoder can refuse, such as a
// string option or a field it cannot set.
func fromDecoder(err error) error {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		pointer := ""
		if typeErr.Field != "" {
			pointer = "/" + strings.ReplaceAll(typeErr.Field, ".", "/")
		}
		return &Error{Pointer: pointer, Code: CodeType, Message: fmt.Sprintf("a JSON %s does not fit here", typeErr.Value)}
	}
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	return &Error{Code: CodeInvalid, Message: err.Error()}
}
