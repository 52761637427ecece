package strictjson

import (
	"reflect"
	"strings"
	"sync"
)

// fieldCache holds map[string]reflect.Type by struct type: the exact names
// that encoding/json would fill, and what each holds. A field with the string
// option stands as a string; what the string says only the decoder judges, and
// its error is not located.
var fieldCache sync.Map

type candidate struct {
	typ    reflect.Type
	depth  int
	tagged bool
}

func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := fieldCache.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	found := map[string][]candidate{}
	collect(t, 0, map[reflect.Type]bool{}, found)
	fields := make(map[string]reflect.Type, len(found))
	for name, all := range found {
		if c, ok := dominant(all); ok {
			fields[name] = c.typ
		}
	}
	known, _ := fieldCache.LoadOrStore(t, fields)
	return known.(map[string]reflect.Type)
}

func collect(t reflect.Type, depth int, above map[reflect.Type]bool, found map[string][]candidate) {
	if above[t] {
		return
	}
	above[t] = true
	defer delete(above, t)
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if f.Anonymous && name == "" && inner.Kind() == reflect.Struct {
			collect(inner, depth+1, above, found)
			continue
		}
		if !f.IsExported() {
			continue
		}
		c := candidate{typ: f.Type, depth: depth, tagged: name != ""}
		if name == "" {
			name = f.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			if option == "string" {
				c.typ = reflect.TypeFor[string]()
			}
		}
		found[name] = append(found[name], c)
	}
}

// dominant follows Go's rules for embedded fields as encoding/json applies
// them: the shallowest wins, then a tagged one, and a tie hides them all.
func dominant(all []candidate) (candidate, bool) {
	best, ties := all[0], 0
	for _, c := range all[1:] {
		switch {
		case c.depth < best.depth, c.depth == best.depth && c.tagged && !best.tagged:
			best, ties = c, 0
		case c.depth == best.depth && c.tagged == best.tagged:
			ties++
		}
	}
	return best, ties == 0
}
