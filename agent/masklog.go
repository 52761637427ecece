package agent

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/platform-core/execution-plane-service/masker"
)

// maskRegistry holds the sets of the attempts that have secrets now. What the agent
// writes to its own log is masked with all of them: a line of one attempt, or of
// none, may quote what another one's executor said.
type maskRegistry struct {
	mu   sync.RWMutex
	sets []*masker.Set
}

func newMaskRegistry() *maskRegistry { return &maskRegistry{} }

// add makes a set count; again changes nothing.
func (r *maskRegistry) add(s *masker.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.sets, s) {
		r.sets = append(r.sets, s)
	}
}

func (r *maskRegistry) remove(s *masker.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sets = slices.DeleteFunc(r.sets, func(x *masker.Set) bool { return x == s })
}

func (r *maskRegistry) live() []*masker.Set {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.sets)
}

// logger writes through to l what is left of each line.
func (r *maskRegistry) logger(l *slog.Logger) *slog.Logger {
	return slog.New(&maskHandler{registry: r, bare: l.Handler(), next: l.Handler()})
}

// maskHandler masks records. While no attempt has secrets it only passes them on.
type maskHandler struct {
	registry *maskRegistry
	bare     slog.Handler // without what With added
	next     slog.Handler // with it
	added    []addition
}

// addition is one WithAttrs or WithGroup, kept because a secret may become known
// after it.
type addition struct {
	attrs []slog.Attr
	group string
}

func (h *maskHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.next.Enabled(ctx, l)
}

func (h *maskHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(addition{attrs: attrs}, h.next.WithAttrs(attrs))
}

func (h *maskHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(addition{group: name}, h.next.WithGroup(name))
}

func (h *maskHandler) with(a addition, next slog.Handler) slog.Handler {
	out := *h
	out.next, out.added = next, append(slices.Clip(h.added), a)
	return &out
}

func (h *maskHandler) Handle(ctx context.Context, rec slog.Record) error {
	m := masks(h.registry.live())
	if len(m) == 0 {
		return h.next.Handle(ctx, rec)
	}
	to := h.bare
	for _, a := range h.added {
		if a.group != "" {
			to = to.WithGroup(m.text(a.group))
		} else {
			to = to.WithAttrs(m.attrs(a.attrs))
		}
	}
	out := slog.NewRecord(rec.Time, rec.Level, m.text(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(m.attr(a))
		return true
	})
	return to.Handle(ctx, out)
}

// masks applies several sets.
type masks []*masker.Set

// severalSecrets stands for a text in which secrets of several attempts are.
const severalSecrets = "[masked: secrets of several attempts]"

// text masks s. Each set reads s as it is: what one of them has masked could be the
// middle of a secret of another, whose ends would then be left. Where sets find
// different things, nothing of the text is told.
func (m masks) text(s string) string {
	out, found := s, false
	for _, set := range m {
		clean := set.String(s)
		switch {
		case clean == s:
		case found && clean != out:
			return severalSecrets
		default:
			out, found = clean, true
		}
	}
	return out
}

func (m masks) attrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = m.attr(a)
	}
	return out
}

func (m masks) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		return slog.Attr{Key: m.text(a.Key), Value: slog.GroupValue(m.attrs(v.Group())...)}
	}
	for _, s := range forms(v) {
		if clean := m.text(s); clean != s {
			v = slog.StringValue(clean)
			break
		}
	}
	return slog.Attr{Key: m.text(a.Key), Value: v}
}

// forms are all texts that a handler may make of a value. One that shows a secret
// in any of them becomes a masked text.
func forms(v slog.Value) []string {
	if v.Kind() != slog.KindAny {
		return []string{v.String()}
	}
	x := v.Any()
	if b, ok := bytesOf(x); ok {
		return []string{string(b)} // in base64 or as numbers it shows no more
	}
	var out []string
	if err, ok := x.(error); ok {
		out = append(out, quietly(err.Error))
	}
	out = append(out, fmt.Sprintf("%+v", x), v.String())
	if t, ok := x.(encoding.TextMarshaler); ok {
		out = append(out, quietly(func() string { b, _ := t.MarshalText(); return string(b) }))
	}
	return append(out, quietly(func() string { b, _ := json.Marshal(x); return string(b) }))
}

// bytesOf gives what any type of bytes holds, json.RawMessage too.
func bytesOf(x any) ([]byte, bool) {
	v := reflect.ValueOf(x)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Uint8 {
		return nil, false
	}
	return v.Bytes(), true
}

// quietly gives nothing for a method that panics, as one on a nil pointer does: the
// handler behind this one knows what to write then.
func quietly(text func() string) (s string) {
	defer func() {
		if recover() != nil {
			s = ""
		}
	}()
	return text()
}
