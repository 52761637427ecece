package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/uuid"
)

type jsonKind int

const (
	kindAny jsonKind = iota
	kindObject
	kindArray
	kindString
	kindNumber
	kindBool
	kindNull
)

func (k jsonKind) String() string {
	return [...]string{"any value", "an object", "an array", "a string", "a number", "true or false", "null"}[k]
}

// A shape is what a Go type expects of the JSON at its place.
type shape struct {
	kind     jsonKind
	nullable bool
	pointer  bool         // null becomes a nil pointer, and no one is asked
	typ      reflect.Type // without pointers; nil if anything goes
	elem     reflect.Type // of an array's or map's elements; nil if anything goes
	length   int          // of a Go array, else -1
	own      ownKind      // who judges the value beyond its kind
}

type ownKind int

const (
	ownNone ownKind = iota
	ownUUID
	ownText
	ownJSON
	ownBase64
)

var (
	typeRaw    = reflect.TypeFor[json.RawMessage]()
	typeNumber = reflect.TypeFor[json.Number]()
	typeTime   = reflect.TypeFor[time.Time]()
	typeUUID   = reflect.TypeFor[uuid.UUID]()
	ifaceJSON  = reflect.TypeFor[json.Unmarshaler]()
	ifaceText  = reflect.TypeFor[encoding.TextUnmarshaler]()
)

var anything = shape{kind: kindAny, nullable: true, length: -1}

func shapeOf(t reflect.Type) shape {
	if t == nil {
		return anything
	}
	sh := shape{length: -1}
	for t.Kind() == reflect.Pointer {
		sh.nullable, sh.pointer = true, true
		t = t.Elem()
	}
	sh.typ = t
	switch pt := reflect.PointerTo(t); {
	case t == typeRaw:
		return anything
	case t == typeNumber:
		sh.kind = kindNumber
		return sh
	case t == typeUUID:
		sh.kind, sh.own = kindString, ownUUID
		return sh
	case t == typeTime:
		// Its own UnmarshalJSON lets null pass without a word.
		sh.kind, sh.own = kindString, ownJSON
		return sh
	case pt.Implements(ifaceJSON):
		sh.kind, sh.own, sh.nullable = kindAny, ownJSON, true
		return sh
	case pt.Implements(ifaceText):
		sh.kind, sh.own = kindString, ownText
		return sh
	}
	return shapeOfKind(t, sh)
}

func shapeOfKind(t reflect.Type, sh shape) shape {
	switch t.Kind() {
	case reflect.Struct:
		sh.kind = kindObject
	case reflect.Map:
		sh.kind, sh.nullable, sh.elem = kindObject, true, t.Elem()
	case reflect.Slice:
		sh.kind, sh.nullable, sh.elem = kindArray, true, t.Elem()
		if t.Elem().Kind() == reflect.Uint8 && !selfJudged(t.Elem()) {
			sh.kind, sh.own, sh.elem = kindString, ownBase64, nil
		}
	case reflect.Array:
		sh.kind, sh.elem, sh.length = kindArray, t.Elem(), t.Len()
	case reflect.String:
		sh.kind = kindString
	case reflect.Bool:
		sh.kind = kindBool
	case reflect.Interface:
		return anything
	default:
		sh.kind = kindNumber
	}
	return sh
}

func selfJudged(t reflect.Type) bool {
	pt := reflect.PointerTo(t)
	return pt.Implements(ifaceJSON) || pt.Implements(ifaceText)
}
