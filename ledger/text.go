package ledger

import (
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"sync"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// references are the texts that the events of a page name.
type references struct {
	digests []eventstore.Digest
	named   map[eventstore.Digest]place // who names it first
	faults  []Fault
}

type place struct {
	stream  eventstore.StreamID
	version int64
}

func (r *references) collect(e eventstore.Event, d domain.Event) {
	textRefs(reflect.ValueOf(d), func(ref domain.TextRef) {
		if ref == "" {
			return
		}
		var digest eventstore.Digest
		b, err := hex.DecodeString(string(ref))
		if err != nil || len(b) != len(digest) {
			r.faults = append(r.faults, Fault{Stream: e.Stream, Version: e.Version, Kind: "text", Detail: fmt.Sprintf("%q is no digest of a text", ref)})
			return
		}
		copy(digest[:], b)
		if _, ok := r.named[digest]; ok {
			return
		}
		if r.named == nil {
			r.named = map[eventstore.Digest]place{}
		}
		r.named[digest] = place{e.Stream, e.Version}
		r.digests = append(r.digests, digest)
	})
}

// join adds what a later stream names.
func (r *references) join(more references) {
	r.faults = append(r.faults, more.faults...)
	for _, d := range more.digests {
		if _, ok := r.named[d]; ok {
			continue
		}
		if r.named == nil {
			r.named = map[eventstore.Digest]place{}
		}
		r.named[d] = more.named[d]
		r.digests = append(r.digests, d)
	}
}

// texts looks whether the texts are there and are those that the events name. An
// erased one is as it should be.
func (v *verification) texts(ctx context.Context, r references) error {
	for _, f := range r.faults {
		v.report.add(f)
	}
	if len(r.digests) == 0 {
		return nil
	}
	missing := make(map[eventstore.Digest]bool, len(r.digests))
	for _, d := range r.digests {
		missing[d] = true
	}
	fault := func(d eventstore.Digest, format string, args ...any) {
		p := r.named[d]
		v.report.add(Fault{Stream: p.stream, Version: p.version, Kind: "text", Detail: fmt.Sprintf(format, args...)})
	}
	err := v.s.Texts(ctx, r.digests, func(t projections.StoredText) {
		delete(missing, t.Digest)
		if t.Erased {
			return
		}
		v.report.Texts++
		if is := eventstore.TextDigest(t.Salt, t.Bytes); is != t.Digest {
			fault(t.Digest, "its text %x is another one: salt and bytes hash to %x", t.Digest[:8], is[:8])
		}
	})
	if err != nil {
		return err
	}
	for _, d := range r.digests {
		if missing[d] {
			fault(d, "its text %x is missing; it was not erased", d[:8])
		}
	}
	return nil
}

var (
	refType   = reflect.TypeFor[domain.TextRef]()
	holdsRefs sync.Map // reflect.Type → bool, for types that do not hold themselves
)

// textRefs calls fn for every member of an event, however deep, that refers to a
// text: a new event needs no entry anywhere.
func textRefs(v reflect.Value, fn func(domain.TextRef)) {
	if !v.IsValid() || !mayHold(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		fn(domain.TextRef(v.String()))
	case reflect.Pointer, reflect.Interface:
		textRefs(v.Elem(), fn)
	case reflect.Struct:
		for i := range v.NumField() {
			textRefs(v.Field(i), fn)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			textRefs(v.Index(i), fn)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			textRefs(it.Value(), fn)
		}
	}
}

// mayHold reports whether a value of the type can hold a reference.
func mayHold(t reflect.Type) bool {
	if known, ok := holdsRefs.Load(t); ok {
		return known.(bool)
	}
	holds := false
	switch t.Kind() {
	case reflect.String:
		holds = t == refType
	case reflect.Interface:
		holds = true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		holds = mayHold(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			holds = holds || mayHold(t.Field(i).Type)
		}
	}
	holdsRefs.Store(t, holds)
	return holds
}
