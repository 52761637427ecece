package domain

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// A payload as EncodeEvent writes it is read in one pass. Whatever differs from
// that in the least (a space, a member twice, an unknown one, a null) is left to
// encoding/json, which alone decides what is right: the short way only ever gives
// what the long one would.

// plain reads JSON in that one spelling.
type plain struct {
	text string
	at   int
}

// reader reads a value into v; false where it is not for the short way.
type reader func(p *plain, v reflect.Value) bool

var (
	timeOf        = reflect.TypeFor[time.Time]()
	textReader    = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonReader    = reflect.TypeFor[json.Unmarshaler]()
	listOfStrings = reflect.TypeFor[[]string]()
	mapOfStrings  = reflect.TypeFor[map[string]string]()
)

// readPlain reads a payload by the reader of its type.
func readPlain(payload []byte, read reader, v reflect.Value) bool {
	p := plain{text: string(payload)}
	return read(&p, v) && p.at == len(p.text)
}

// readerOf makes the reader of a type that does not hold itself.
func readerOf(t reflect.Type) reader {
	switch {
	case t == timeOf:
		return readTime
	case reflect.PointerTo(t).Implements(jsonReader):
		return never
	case reflect.PointerTo(t).Implements(textReader):
		return readText
	case t == listOfStrings:
		return readStrings
	case t == mapOfStrings:
		return readMap
	}
	switch t.Kind() {
	case reflect.String:
		return readString
	case reflect.Bool:
		return readBool
	case reflect.Int, reflect.Int32, reflect.Int64:
		return readInt
	case reflect.Pointer:
		return readerOfPointer(t)
	case reflect.Slice:
		return readerOfSlice(t)
	case reflect.Struct:
		return readerOfStruct(t)
	}
	return never
}

func never(*plain, reflect.Value) bool { return false }

// next takes one byte.
func (p *plain) next(c byte) bool {
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

// str reads a string.
func (p *plain) str() (string, bool) {
	if !p.next('"') {
		return "", false
	}
	for i := p.at; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '"':
			s := p.text[p.at:i]
			p.at = i + 1
			return s, true
		case c < ' ' || c > '~' || c == '\\':
			return p.odd(i)
		}
	}
	return "", false
}

// odd reads the rest of a string with escapes or more than printable ASCII.
func (p *plain) odd(i int) (s string, ok bool) {
	for ; i < len(p.text) && p.text[i] != '"'; i++ {
		if p.text[i] == '\\' {
			i++
		}
	}
	if i >= len(p.text) {
		return "", false
	}
	err := json.Unmarshal([]byte(p.text[p.at-1:i+1]), &s)
	p.at = i + 1
	return s, err == nil
}

func readString(p *plain, v reflect.Value) bool {
	s, ok := p.str()
	v.SetString(s)
	return ok
}

func readText(p *plain, v reflect.Value) bool {
	s, ok := p.str()
	return ok && v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)) == nil
}

func readTime(p *plain, v reflect.Value) bool {
	begin := p.at
	if _, ok := p.str(); !ok {
		return false
	}
	return v.Addr().Interface().(*time.Time).UnmarshalJSON([]byte(p.text[begin:p.at])) == nil
}

func readBool(p *plain, v reflect.Value) bool {
	is := p.word("true")
	v.SetBool(is)
	return is || p.word("false")
}

// word takes a word.
func (p *plain) word(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// longestInt is how many digits always fit.
const longestInt = 18

func readInt(p *plain, v reflect.Value) bool {
	negative := p.next('-')
	begin, n := p.at, int64(0)
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		n = n*10 + int64(p.text[p.at]-'0')
		if p.at++; p.at-begin > longestInt {
			return false
		}
	}
	if p.at == begin || p.text[begin] == '0' && (p.at-begin > 1 || negative) {
		return false
	}
	if negative {
		n = -n
	}
	if v.OverflowInt(n) {
		return false
	}
	v.SetInt(n)
	return true // a fraction or an exponent that follows fits no reader
}

func readStrings(p *plain, v reflect.Value) bool {
	list := []string{}
	ok := p.list(func() bool {
		s, ok := p.str()
		list = append(list, s)
		return ok
	})
	v.Set(reflect.ValueOf(list))
	return ok
}

// list reads a list, element by element.
func (p *plain) list(element func() bool) bool {
	if !p.next('[') {
		return false
	}
	if p.next(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if p.next(']') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

// object reads an object, member by member.
func (p *plain) object(member func(name string) bool) bool {
	if !p.next('{') {
		return false
	}
	if p.next('}') {
		return true
	}
	for {
		name, ok := p.str()
		if !ok || !p.next(':') || !member(name) {
			return false
		}
		if p.next('}') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

func readMap(p *plain, v reflect.Value) bool {
	m := map[string]string{}
	ok := p.object(func(name string) bool {
		s, ok := p.str()
		if _, twice := m[name]; twice {
			return false
		}
		m[name] = s
		return ok
	})
	v.Set(reflect.ValueOf(m))
	return ok
}

func readerOfPointer(t reflect.Type) reader {
	read, element := readerOf(t.Elem()), t.Elem()
	return func(p *plain, v reflect.Value) bool {
		if p.word("null") {
			return true
		}
		to := reflect.New(element)
		v.Set(to)
		return read(p, to.Elem())
	}
}

func readerOfSlice(t reflect.Type) reader {
	if t.Elem().Kind() == reflect.Uint8 { // base64
		return never
	}
	read, zero := readerOf(t.Elem()), reflect.Zero(t.Elem())
	return func(p *plain, v reflect.Value) bool {
		v.Set(reflect.MakeSlice(t, 0, 0))
		return p.list(func() bool {
			v.Set(reflect.Append(v, zero))
			return read(p, v.Index(v.Len()-1))
		})
	}
}

// member is a field of a struct by its name in JSON.
type member struct {
	name  string
	index []int
	read  reader
}

// maxMembers is how many members can be ticked off.
const maxMembers = 64

func readerOfStruct(t reflect.Type) reader {
	members, ok := membersOf(t, nil)
	if !ok || len(members) > maxMembers {
		return never
	}
	return func(p *plain, v reflect.Value) bool {
		var seen uint64
		next := 0 // they mostly come in the order of their fields
		return p.object(func(name string) bool {
			i := next
			for n := 0; ; n++ {
				if n == len(members) {
					return false
				}
				if i == len(members) {
					i = 0
				}
				if members[i].name == name {
					break
				}
				i++
			}
			if seen&(1<<i) != 0 {
				return false
			}
			seen |= 1 << i
			next = i + 1
			m := &members[i]
			if len(m.index) == 1 {
				return m.read(p, v.Field(m.index[0]))
			}
			return m.read(p, v.FieldByIndex(m.index))
		})
	}
}

// membersOf lists the members of a struct, with those of embedded ones; false
// where encoding/json has rules that are not known here.
func membersOf(t reflect.Type, path []int) (out []member, ok bool) {
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(append([]int(nil), path...), i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		var more []member
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			if more, ok = membersOf(f.Type, index); !ok {
				return nil, false
			}
		case name == "" || name == "-" || !f.IsExported() || strings.Contains(options, "string"):
			return nil, false
		default:
			more = []member{{name, index, readerOf(f.Type)}}
		}
		for _, m := range more {
			if names[strings.ToLower(m.name)] {
				return nil, false
			}
			names[strings.ToLower(m.name)] = true
			out = append(out, m)
		}
	}
	return out, true
}
