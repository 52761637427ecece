package vault

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ReadOptions come from the policy's mapping, never from the job.
type ReadOptions struct {
	// Mount is where the mapping says that the reference's mount ends; empty: after
	// its first segment. Vault must agree.
	Mount string
	// Engine is what the mapping says the mount is: EngineKV1, EngineKV2 or
	// EngineDynamic; empty: what Vault says. Vault must agree.
	Engine string
	// Parameters are written to the path instead of reading it, for engines that
	// ask for them (ssh: the address; pki: the common name).
	Parameters map[string]string
	// AllowUnmasked lets values under MinMaskable bytes through.
	AllowUnmasked bool
}

// Engines, in the words of the policy.
const (
	EngineKV1     = "kv1"
	EngineKV2     = "kv2"
	EngineDynamic = "dynamic" // every other
)

// mount is what Vault says of a place.
type mount struct {
	path   string // without slashes at its ends
	engine string
	kv     int // 1 or 2; 0 for another engine
}

func (m mount) named() string {
	switch m.kv {
	case 1:
		return EngineKV1
	case 2:
		return EngineKV2
	default:
		return EngineDynamic
	}
}

// Read reads what ref stands for, with the session's token.
//
// With a field the secret has that one field, else all of them in the order of
// their names. A string gives its text, anything else its JSON as Vault answers
// it. Digits are best stored as a string: Vault rounds long numbers, and its audit
// log hides strings only.
//
// Nothing empty comes back: an empty, null or blank value is ErrEmpty, and one
// under MinMaskable bytes ErrTooShort unless allowed. Read as a whole, a KV secret
// is judged by each of its strings and numbers; an engine's answer leaves out what
// is null or empty and is not judged for shortness, since it tells of types and
// ports beside the secret.
//
// A version is for KV version 2 only. Without one the newest is read, and it is
// ErrDeleted if that was deleted: an older one is read only if ref says so.
//
// Read tries again while Vault is unavailable. If an answer of a dynamic engine is
// lost so, its lease is unknown here and ends with the session's token.
//
// The caller wipes the result.
func (s *Session) Read(ctx context.Context, ref Reference, o ReadOptions) (*Secret, error) {
	ref, err := ref.Under(o.Mount)
	if err != nil {
		return nil, err
	}
	out, err := s.read(ctx, ref, o)
	if err != nil {
		return nil, about(ref, err)
	}
	if err := choose(out, o); err != nil {
		out.Wipe()
		return nil, about(ref, err)
	}
	return out, nil
}

func (s *Session) read(ctx context.Context, ref Reference, o ReadOptions) (out *Secret, err error) {
	err = s.using(ctx, func(ctx context.Context, token *child) (err error) {
		out, err = s.readOnce(ctx, token, ref, o)
		return err
	})
	return out, err
}

func (s *Session) readOnce(ctx context.Context, token *child, ref Reference, o ReadOptions) (*Secret, error) {
	const doing = "read the secret"
	m, err := s.mount(ctx, token, ref)
	if err != nil {
		return nil, err
	}
	r := request{doing: doing, path: ref.Mount + "/" + ref.Path}
	switch {
	case o.Engine != "" && o.Engine != m.named():
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: "its mapping is for another kind of engine than the one that is mounted there"}
	case m.kv != 2 && ref.Version > 0:
		return nil, &Error{Kind: ErrMalformed, Doing: doing, Detail: "it pins a version, and the mount keeps none"}
	case m.kv != 0 && len(o.Parameters) > 0:
		return nil, &Error{Kind: ErrDenied, Doing: doing, Detail: "its mapping has parameters, and a KV mount takes none"}
	case m.kv == 2:
		r.path = ref.Mount + "/data/" + ref.Path
		if ref.Version > 0 {
			r.query = url.Values{"version": {strconv.Itoa(ref.Version)}}
		}
	}
	if len(o.Parameters) > 0 {
		r.body = map[string]any{}
		for name, text := range o.Parameters {
			r.body[name] = text
		}
	}
	asked := time.Now()
	a, err := s.c.e.once(ctx, token.api, r)
	if err != nil {
		return nil, err
	}
	defer a.wipe()
	if a.Status == http.StatusNotFound && m.kv != 2 {
		return nil, &Error{Kind: ErrMissing, Doing: doing, Status: a.Status}
	}
	out := &Secret{Reference: ref, Engine: m.engine, Accessor: token.accessor}
	if a.LeaseID != "" {
		out.LeaseID, out.LeaseDuration = a.LeaseID, a.LeaseDuration
		if err := s.keepLease(a, asked); err != nil {
			return nil, err
		}
	}
	data := a.Data
	if m.kv == 2 {
		if data, out.Version, err = versioned(a, ref); err != nil {
			return nil, err
		}
		defer func() {
			for _, raw := range data {
				clear(raw)
			}
		}()
	}
	out.Fields, err = fields(data, ref.Field, m.kv != 0)
	return out, err
}

// mount asks Vault where the mount of ref is and what it is.
func (s *Session) mount(ctx context.Context, token *child, ref Reference) (mount, error) {
	const doing = "find the mount of the secret"
	s.mu.Lock()
	known, ok := s.mounts[ref.Mount]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	a, err := s.c.e.once(ctx, token.api, request{doing: doing, path: "sys/internal/ui/mounts/" + ref.Mount + "/" + ref.Path})
	if err != nil {
		return mount{}, err
	}
	m := mount{path: strings.Trim(a.text("path"), "/"), engine: a.text("type")}
	if m.path == "" || m.engine == "" {
		return mount{}, &Error{Kind: ErrUnavailable, Doing: doing, Detail: "the answer is not in Vault's form"}
	}
	if m.path != ref.Mount {
		return mount{}, &Error{Kind: ErrDenied, Doing: doing, Detail: "Vault's mount ends elsewhere in the reference; the mapping must name it"}
	}
	if m.engine == "kv" || m.engine == "generic" {
		var options struct {
			Version string `json:"version"`
		}
		// Without options it is version 1.
		if err := json.Unmarshal(a.Data["options"], &options); err == nil && options.Version == "2" {
			m.kv = 2
		} else {
			m.kv = 1
		}
	}
	s.mu.Lock()
	s.mounts[ref.Mount] = m
	s.mu.Unlock()
	return m, nil
}

// versioned takes the envelope of KV version 2 apart.
func versioned(a *answer, ref Reference) (data map[string]json.RawMessage, version int, err error) {
	const doing = "read the secret"
	malformed := &Error{Kind: ErrUnavailable, Doing: doing, Detail: "the answer is not in the form of KV version 2", Status: a.Status}
	var meta struct {
		Version      int    `json:"version"`
		DeletionTime string `json:"deletion_time"`
		Destroyed    bool   `json:"destroyed"`
	}
	if json.Unmarshal(a.Data["metadata"], &meta) != nil || meta.Version < 1 || ref.Version > 0 && meta.Version != ref.Version {
		return nil, 0, malformed
	}
	if isNull(a.Data["data"]) {
		e := &Error{Kind: ErrDeleted, Doing: doing, Detail: "version " + strconv.Itoa(meta.Version)}
		switch {
		case meta.Destroyed:
			e.Detail += " was destroyed"
		case meta.DeletionTime == "":
			return nil, 0, malformed
		default:
			e.Detail += " was deleted at " + parsedTime(meta.DeletionTime)
		}
		return nil, 0, e
	}
	if json.Unmarshal(a.Data["data"], &data) != nil {
		return nil, 0, malformed
	}
	return data, meta.Version, nil
}

// parsedTime repeats a time only if it is one.
func parsedTime(s string) string {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return "an unknown time"
	}
	return t.UTC().Format(time.RFC3339)
}

// fields takes the wanted values out of data, which is wiped by the caller.
func fields(data map[string]json.RawMessage, field string, kv bool) ([]Field, error) {
	const doing = "read the secret"
	if field != "" {
		raw, ok := data[field]
		if !ok {
			return nil, &Error{Kind: ErrMissing, Doing: doing, Detail: "it has no field " + field}
		}
		if isNull(raw) {
			return nil, &Error{Kind: ErrEmpty, Doing: doing, Detail: "the field is null"}
		}
		return []Field{{Name: field, Value: newValue(plain(raw))}}, nil
	}
	var out []Field
	for name, raw := range data {
		empty := isNull(raw) || string(raw) == `""`
		if empty && !kv {
			continue
		}
		if isNull(raw) {
			raw = nil
		}
		out = append(out, Field{Name: name, Value: newValue(plain(raw)), scalar: len(raw) > 0 && strings.IndexByte(`"-0123456789`, raw[0]) >= 0})
	}
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
	if len(out) == 0 {
		return nil, &Error{Kind: ErrEmpty, Doing: doing, Detail: "it has no fields"}
	}
	return out, nil
}

// choose refuses a secret that must not reach an executor.
func choose(s *Secret, o ReadOptions) error {
	const doing = "read the secret"
	kv := s.Engine == "kv" || s.Engine == "generic"
	for _, f := range s.Fields {
		e := &Error{Doing: doing}
		if s.Reference.Field == "" {
			e.Detail = "field " + shown(f.Name)
		}
		b := f.Value.Bytes()
		switch {
		case len(b) > MaxValue:
			e.Kind = ErrTooLarge
		case blank(b):
			e.Kind = ErrEmpty
		case len(b) < MinMaskable && !o.AllowUnmasked && (s.Reference.Field != "" || kv && f.scalar):
			e.Kind = ErrTooShort
		default:
			continue
		}
		return e
	}
	return nil
}

// shown is a field's name where it could stand in a reference. Another name may
// be anything, a value put in the wrong place too.
func shown(name string) string {
	if checkName("it", name, maxField) != "" {
		return "with a name that no reference can have"
	}
	return name
}

func blank(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if !unicode.IsSpace(r) && r != '\ufeff' && r != '\u200b' && r != 0 {
			return false
		}
		b = b[n:]
	}
	return true
}
