package ledger

import (
	"context"
	"encoding/hex"
	"fmt"

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
	domain.EachText(d, func(ref domain.TextRef) {
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
