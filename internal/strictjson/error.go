package strictjson

import (
	"fmt"
	"strings"
)

// Code says which rule was broken. The list is append-only: clients may
// compare codes, never messages.
type Code string

// The rules, in the order in which the package documentation explains them.
const (
	CodeSyntax    Code = "syntax"         // not JSON
	CodeTrailing  Code = "trailing_data"  // more than one value
	CodeTooLarge  Code = "too_large"      // more bytes than allowed
	CodeTooDeep   Code = "too_deep"       // nested deeper than allowed
	CodeUTF8      Code = "invalid_utf8"   // a string is not UTF-8
	CodeSurrogate Code = "lone_surrogate" // half of a surrogate pair
	CodeNUL       Code = "nul_character"  // U+0000, raw or escaped
	CodeDuplicate Code = "duplicate_name" // one name twice in an object
	CodeUnknown   Code = "unknown_name"   // a name that the type does not have
	CodeCase      Code = "wrong_case"     // a known name in other letters' case
	CodeRange     Code = "number_range"   // beyond ±2^53, or beyond the field's type
	CodeType      Code = "wrong_type"     // for example a string where a number belongs
	CodeNull      Code = "null_value"     // null where the type has no null
	CodeInvalid   Code = "invalid_value"  // refused by the value's own type
)

// Error is the only error that a body can cause.
type Error struct {
	// Pointer is the RFC 6901 pointer of the value or member at fault; empty
	// for the whole body. A member whose name is itself unprintable or longer
	// than 256 bytes is reported at the object that holds it.
	Pointer string
	Code    Code
	// Message is one English sentence for a person. It repeats no value of
	// the body, so it may be logged; the text of a CodeInvalid comes from the
	// value's own type, which must keep to the same.
	Message string
}

func (e *Error) Error() string {
	if e.Pointer == "" {
		return "JSON body: " + e.Message
	}
	return fmt.Sprintf("JSON body at %s: %s", e.Pointer, e.Message)
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// AppendPointer adds one reference token to an RFC 6901 pointer.
func AppendPointer(pointer, token string) string {
	return pointer + "/" + pointerEscaper.Replace(token)
}
