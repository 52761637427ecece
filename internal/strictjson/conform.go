package strictjson

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// accept compares kinds only.
func (s *scanner) accept(want shape, k jsonKind) *Error {
	switch {
	case k == kindNull && want.nullable, k == want.kind, want.kind == kindAny && k != kindNull:
		return nil
	case k == kindNull:
		return s.fail(CodeNull, "null is not allowed here, leave the member out or give %s", want.kind)
	}
	return s.fail(CodeType, "%s is expected, found %s", want.kind, k)
}

// custom lets a type that decodes itself judge the raw text on a throw-away
// value, as only here its place is known.
func (s *scanner) custom(want shape, start int) *Error {
	if want.own != ownJSON || want.pointer && string(s.data[start:s.pos]) == "null" {
		return nil
	}
	v, ok := reflect.New(want.typ).Interface().(json.Unmarshaler)
	if !ok {
		return nil
	}
	err := v.UnmarshalJSON(s.data[start:s.pos])
	if err != nil && want.typ == typeTime {
		return s.fail(CodeInvalid, "must be a time in the form of RFC 3339")
	}
	return s.judged(err)
}

func (s *scanner) judged(err error) *Error {
	if err == nil {
		return nil
	}
	if inner, ok := errors.AsType[*Error](err); ok {
		return &Error{Pointer: s.pointer() + inner.Pointer, Code: inner.Code, Message: inner.Message}
	}
	return s.fail(CodeInvalid, "%s", err)
}

func (s *scanner) checkString(want shape, start int, text string) *Error {
	if err := s.accept(want, kindString); err != nil {
		return err
	}
	switch want.own {
	case ownUUID:
		_, err := ParseUUID(text)
		return s.judged(err)
	case ownText:
		return s.judged(reflect.New(want.typ).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)))
	case ownBase64:
		if _, err := base64.StdEncoding.Strict().DecodeString(text); err != nil || strings.ContainsAny(text, "\r\n") {
			return s.fail(CodeInvalid, "must be base64 in the standard alphabet, padded, without line breaks")
		}
		return nil
	}
	return s.custom(want, start)
}

func (s *scanner) checkNumber(want shape, start int) *Error {
	if err := s.accept(want, kindNumber); err != nil {
		return err
	}
	if want.kind == kindAny || want.typ == typeNumber {
		return s.custom(want, start)
	}
	text := string(s.data[start:s.pos])
	zero := reflect.Zero(want.typ)
	switch {
	case zero.CanFloat():
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || zero.OverflowFloat(f) {
			return s.fail(CodeRange, "the number does not fit")
		}
		return nil
	case strings.ContainsAny(text, ".eE"):
		return s.fail(CodeType, "an integer is expected, without a fraction or an exponent")
	case zero.CanInt():
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || zero.OverflowInt(n) {
			return s.fail(CodeRange, "the number does not fit into %d bits", want.typ.Bits())
		}
		return nil
	case zero.CanUint():
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || zero.OverflowUint(n) {
			return s.fail(CodeRange, "the number must not be negative and must fit into %d bits", want.typ.Bits())
		}
		return nil
	}
	return s.fail(CodeType, "a number does not fit here")
}

func (s *scanner) checkLength(want shape, n int) *Error {
	if want.length >= 0 && n != want.length {
		return s.fail(CodeInvalid, "an array of %d elements is expected, found %d", want.length, n)
	}
	return nil
}

// member returns the type that the member's value must have.
func (s *scanner) member(want shape, name string) (reflect.Type, *Error) {
	if want.kind != kindObject {
		return nil, nil
	}
	if want.typ.Kind() == reflect.Map {
		if err := checkKey(want.typ.Key(), name); err != nil {
			return nil, s.failAt(name, CodeInvalid, "the name %s", err)
		}
		return want.elem, nil
	}
	known := fieldsOf(want.typ)
	if f, ok := known[name]; ok {
		return f, nil
	}
	for other := range known {
		if strings.EqualFold(other, name) {
			return nil, s.failAt(name, CodeCase, "the name must be spelled %q", other)
		}
	}
	return nil, s.failAt(name, CodeUnknown, "the name is not known here")
}

func checkKey(t reflect.Type, name string) error {
	switch {
	case t == typeUUID:
		_, err := ParseUUID(name)
		return err
	case reflect.PointerTo(t).Implements(ifaceText):
		return reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(name))
	case t.Kind() == reflect.String:
		return nil
	}
	zero := reflect.Zero(t)
	if zero.CanInt() {
		n, err := strconv.ParseInt(name, 10, 64)
		if err == nil && !zero.OverflowInt(n) && strconv.FormatInt(n, 10) == name {
			return nil
		}
	}
	if zero.CanUint() {
		n, err := strconv.ParseUint(name, 10, 64)
		if err == nil && !zero.OverflowUint(n) && strconv.FormatUint(n, 10) == name {
			return nil
		}
	}
	return errors.New("must be an integer in plain decimal digits that fits")
}
