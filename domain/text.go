package domain

import (
	"reflect"
	"sync"
)

var (
	textRefType = reflect.TypeFor[TextRef]()
	holdsTexts  sync.Map // reflect.Type → bool, for types that do not hold themselves
)

// EachText calls fn for every text that an event refers to, however deep the member:
// a new event needs no entry anywhere. The URI of a secret artifact is the one place
// that is no TextRef by its type.
func EachText(e Event, fn func(TextRef)) {
	if a, ok := e.(ArtifactCreated); ok && a.Storage == StorageVault {
		if ref := SecretReference(a.URI); ref != "" {
			fn(ref)
		}
	}
	eachText(reflect.ValueOf(e), fn)
}

func eachText(v reflect.Value, fn func(TextRef)) {
	if !v.IsValid() || !mayHoldText(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.String() != "" {
			fn(TextRef(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		eachText(v.Elem(), fn)
	case reflect.Struct:
		for i := range v.NumField() {
			eachText(v.Field(i), fn)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachText(v.Index(i), fn)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			eachText(it.Value(), fn)
		}
	}
}

// mayHoldText reports whether a value of the type can refer to a text.
func mayHoldText(t reflect.Type) bool {
	if known, ok := holdsTexts.Load(t); ok {
		return known.(bool)
	}
	holds := false
	switch t.Kind() {
	case reflect.String:
		holds = t == textRefType
	case reflect.Interface:
		holds = true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		holds = mayHoldText(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			holds = holds || mayHoldText(t.Field(i).Type)
		}
	}
	holdsTexts.Store(t, holds)
	return holds
}
