package strictjson

import (
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"
)

// maxPointerName is the longest member name that an error repeats.
const maxPointerName = 256

// A step is one reference token; name is used when index is negative. Tokens
// are kept apart until an error needs them, as most bodies have none.
type step struct {
	name  string
	index int
}

type scanner struct {
	data     []byte
	pos      int
	path     []step
	depth    int
	maxDepth int
}

func (s *scanner) pointer() string {
	pointer := ""
	for _, st := range s.path {
		if st.index >= 0 {
			pointer = AppendPointer(pointer, strconv.Itoa(st.index))
			continue
		}
		pointer = AppendPointer(pointer, st.name)
	}
	return pointer
}

func (s *scanner) fail(code Code, format string, args ...any) *Error {
	return &Error{Pointer: s.pointer(), Code: code, Message: fmt.Sprintf(format, args...)}
}

func (s *scanner) failAt(name string, code Code, format string, args ...any) *Error {
	if len(name) <= maxPointerName {
		s.path = append(s.path, step{name: name, index: -1})
		defer func() { s.path = s.path[:len(s.path)-1] }()
	}
	return s.fail(code, format, args...)
}

func (s *scanner) unexpected(wanted string) *Error {
	if s.pos >= len(s.data) {
		return s.fail(CodeSyntax, "the body ends where %s is expected", wanted)
	}
	return s.fail(CodeSyntax, "%s is expected at byte %d", wanted, s.pos)
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end; a real 0 is never legal here.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) document(t reflect.Type) *Error {
	s.space()
	if err := s.value(t); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return s.fail(CodeTrailing, "something follows the value at byte %d", s.pos)
	}
	return nil
}

// value reads one value and compares it with t; a nil t allows anything.
func (s *scanner) value(t reflect.Type) *Error {
	start := s.pos
	want := shapeOf(t)
	switch c := s.peek(); {
	case c == '{':
		return s.container(want, start, kindObject, s.object)
	case c == '[':
		return s.container(want, start, kindArray, s.array)
	case c == '"':
		text, err := s.str()
		if err != nil {
			return err
		}
		return s.checkString(want, start, text)
	case c == '-' || '0' <= c && c <= '9':
		if err := s.number(); err != nil {
			return err
		}
		return s.checkNumber(want, start)
	case c == 't':
		return s.literal("true", want, start, kindBool)
	case c == 'f':
		return s.literal("false", want, start, kindBool)
	case c == 'n':
		return s.literal("null", want, start, kindNull)
	}
	return s.unexpected("a value")
}

func (s *scanner) container(want shape, start int, k jsonKind, read func(shape) *Error) *Error {
	if err := s.accept(want, k); err != nil {
		return err
	}
	s.depth++
	if s.depth > s.maxDepth {
		return s.fail(CodeTooDeep, "objects and arrays are nested more than %d deep", s.maxDepth)
	}
	if err := read(want); err != nil {
		return err
	}
	s.depth--
	return s.custom(want, start)
}

func (s *scanner) literal(word string, want shape, start int, k jsonKind) *Error {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.unexpected("a value")
	}
	s.pos += len(word)
	if err := s.accept(want, k); err != nil {
		return err
	}
	return s.custom(want, start)
}

func (s *scanner) object(want shape) *Error {
	var seen nameSet
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected("a member name")
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		if !seen.add(name) {
			return s.failAt(name, CodeDuplicate, "the name stands twice in one object")
		}
		elem, err := s.member(want, name)
		if err != nil {
			return err
		}
		s.space()
		if s.peek() != ':' {
			return s.unexpected("a colon")
		}
		s.pos++
		s.space()
		s.path = append(s.path, step{name: name, index: -1})
		if err := s.value(elem); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.pos++
			return nil
		default:
			return s.unexpected("a comma or a closing brace")
		}
	}
}

func (s *scanner) array(want shape) *Error {
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return s.checkLength(want, 0)
	}
	for i := 0; ; i++ {
		s.path = append(s.path, step{index: i})
		if err := s.value(want.elem); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case ']':
			s.pos++
			return s.checkLength(want, i+1)
		default:
			return s.unexpected("a comma or a closing bracket")
		}
	}
}

// number follows RFC 8259 to the letter and then limits the magnitude.
func (s *scanner) number() *Error {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
		if c := s.peek(); '0' <= c && c <= '9' {
			return s.fail(CodeSyntax, "a number must not begin with 0, at byte %d", start)
		}
	case '1' <= c && c <= '9':
		s.digits()
	default:
		return s.unexpected("a digit")
	}
	whole := true
	if s.peek() == '.' {
		whole = false
		s.pos++
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		whole = false
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.unexpected("a digit")
		}
	}
	if !exact(s.data[start:s.pos], whole) {
		return s.fail(CodeRange, "the number lies beyond ±2^53, where integers lose their last digits")
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}

// exact compares whole numbers as text, as a float would already have rounded
// them to the limit itself.
func exact(text []byte, whole bool) bool {
	const limit = 1 << 53
	if !whole {
		f, err := strconv.ParseFloat(string(text), 64)
		return err == nil && -limit < f && f < limit
	}
	if text[0] == '-' {
		text = text[1:]
	}
	if len(text) > len("9007199254740992") {
		return false
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	return err == nil && n <= limit
}

// nameSet is a slice while it is small, as most objects are.
type nameSet struct {
	few  []string
	many map[string]struct{}
}

func (n *nameSet) add(name string) bool {
	if n.many != nil {
		if _, ok := n.many[name]; ok {
			return false
		}
		n.many[name] = struct{}{}
		return true
	}
	for _, old := range n.few {
		if old == name {
			return false
		}
	}
	n.few = append(n.few, name)
	if len(n.few) == 16 {
		n.many = make(map[string]struct{}, 64)
		for _, old := range n.few {
			n.many[old] = struct{}{}
		}
	}
	return true
}

// str reads a string and returns its text. Errors inside a member's name are
// reported at the object, as such a name cannot be repeated.
func (s *scanner) str() (string, *Error) {
	s.pos++
	start := s.pos
	var buf []byte // used from the first escape on
	for s.pos < len(s.data) {
		c := s.data[s.pos]
		switch {
		case c == '"':
			text := s.data[start:s.pos]
			if buf != nil {
				text = buf
			}
			s.pos++
			return string(text), nil
		case c == '\\':
			if buf == nil {
				buf = append(make([]byte, 0, 2*(s.pos-start)+16), s.data[start:s.pos]...)
			}
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
			continue
		case c == 0:
			return "", s.fail(CodeNUL, "a string contains a NUL character at byte %d", s.pos)
		case c < 0x20:
			return "", s.fail(CodeSyntax, "a control character in a string must be escaped, at byte %d", s.pos)
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRune(s.data[s.pos:]); r == utf8.RuneError && size == 1 {
				return "", s.fail(CodeUTF8, "a string is not valid UTF-8 at byte %d", s.pos)
			}
		}
		if buf != nil {
			buf = append(buf, s.data[s.pos:s.pos+size]...)
		}
		s.pos += size
	}
	return "", s.unexpected("the end of a string")
}
