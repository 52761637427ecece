package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"unicode/utf8"
)

const (
	// MaxWrite is the largest value in bytes that Write takes.
	MaxWrite = 512 << 10
	// maxWriteText is the largest request: Vault's own storage takes entries up to
	// 1 MiB unless its operator chose otherwise, and keeps a secret as JSON.
	maxWriteText = 1<<20 - 8<<10
)

// WriteOptions come from the policy's mapping, never from the job.
type WriteOptions struct {
	// Mount is where the mapping says that the reference's mount ends; empty: after
	// its first segment. Vault must agree.
	Mount string
	// CreateOnly writes only where no version is (check-and-set 0).
	CreateOnly bool
}

// Written is what the ledger may know of a stored secret.
type Written struct {
	Reference Reference // with its version
	Version   int
	Accessor  string // of the token that wrote it
}

// Write stores fields as one new version of a secret in a KV version 2 mount, with
// the session's token, and gives the reference with that version. The reference is
// what policy made of the mapping, with neither field nor version.
//
// A value is text in UTF-8 of at most MaxWrite bytes; other bytes are encoded by
// the caller. All of it as JSON has some 1 MiB at most, where control characters
// and "<>&" count six bytes. More is ErrTooLarge. A value that Read would refuse as
// empty is ErrEmpty; a short one is taken, though it may be read under an
// allow_unmasked mapping only. A mount of another kind is ErrDenied.
//
// Write tries again while Vault is unavailable. With CreateOnly it writes at most
// once: where something is there already, version 1 is read back, and if it holds
// exactly these fields then that is the success, of this call or of an earlier one
// whose answer was lost. Anything else is ErrExists. For this the store's policy
// must allow "read" beside "create"; without it a lost answer ends as ErrExists or
// ErrDenied. Without CreateOnly a lost answer may leave two versions, of which the
// later is given.
func (s *Session) Write(ctx context.Context, ref Reference, fields map[string][]byte, o WriteOptions) (Written, error) {
	ref, err := ref.Under(o.Mount)
	if err != nil {
		return Written{}, err
	}
	text, err := writeText(ref, fields, o)
	if err != nil {
		return Written{}, about(ref, err)
	}
	defer text.done()
	var out Written
	err = s.using(ctx, func(ctx context.Context, token *child) error {
		version, err := s.writeOnce(ctx, token, ref, text, o)
		if err != nil && o.CreateOnly && (errors.Is(err, ErrExists) || forbidden(err) && !deadToken(err)) {
			// A token that may only create is refused where something is.
			version, err = 1, s.confirm(ctx, token, ref, fields, err)
		}
		if err != nil {
			return err
		}
		out = Written{Reference: ref, Version: version, Accessor: token.accessor}
		out.Reference.Version = version
		return nil
	})
	if err != nil {
		return Written{}, about(ref, err)
	}
	return out, nil
}

const storing = "store the secret"

func (s *Session) writeOnce(ctx context.Context, token *child, ref Reference, text *outgoing, o WriteOptions) (version int, err error) {
	m, err := s.mount(ctx, token, ref)
	if err != nil {
		return 0, err
	}
	if m.kv != 2 {
		return 0, &Error{Kind: ErrDenied, Doing: storing, Detail: "its mapping names a mount that keeps no versions; secrets are stored in KV version 2 only"}
	}
	a, err := s.c.e.once(ctx, token.api, request{doing: storing, path: ref.Mount + "/data/" + ref.Path, text: text})
	if err != nil {
		return 0, err
	}
	defer a.wipe()
	version = int(a.seconds("version"))
	if version < 1 || o.CreateOnly && version != 1 {
		return 0, &Error{Kind: ErrUnavailable, Doing: storing, Status: a.Status, Detail: "the answer is not in the form of KV version 2"}
	}
	return version, nil
}

// confirm reads version 1 back after a refusal and gives nil if it is what was to
// be written.
func (s *Session) confirm(ctx context.Context, token *child, ref Reference, fields map[string][]byte, refusal error) error {
	a, err := s.c.e.once(ctx, token.api, request{
		doing: "read back what is stored", path: ref.Mount + "/data/" + ref.Path, query: url.Values{"version": {"1"}},
	})
	switch {
	case errors.Is(err, ErrDenied) && errors.Is(refusal, ErrExists) && !deadToken(err):
		return &Error{Kind: ErrExists, Doing: storing, Detail: "it cannot be told by whom, since the store's policies do not allow read there"}
	case errors.Is(err, ErrDenied), errors.Is(err, ErrMissing):
		return refusal
	case err != nil:
		return err
	}
	defer a.wipe()
	pinned := ref
	pinned.Version = 1
	data, _, err := versioned(a, pinned)
	if errors.Is(err, ErrDeleted) {
		return &Error{Kind: ErrExists, Doing: storing, Detail: "its version 1 has been deleted"}
	}
	if err != nil {
		return err
	}
	if !holds(data, fields) {
		return &Error{Kind: ErrExists, Doing: storing, Detail: "its version 1 holds something else"}
	}
	return nil
}

// holds compares, and wipes data.
func holds(data map[string]json.RawMessage, fields map[string][]byte) bool {
	same := len(data) == len(fields)
	for name, raw := range data {
		want, ok := fields[name]
		got := plain(raw)
		same = same && ok && len(raw) > 0 && raw[0] == '"' && bytes.Equal(got, want)
		clear(got)
		clear(raw)
	}
	return same
}

// writeText checks what is to be stored and makes the request of it.
func writeText(ref Reference, fields map[string][]byte, o WriteOptions) (*outgoing, error) {
	e := &Error{Doing: storing}
	plainly := Reference{Mount: ref.Mount, Path: ref.Path}
	if _, wrong := parse(plainly.String()); wrong != "" || plainly != ref {
		e.Kind, e.Detail = ErrMalformed, "it must be a mount and a path, with neither field nor version"
		return nil, e
	}
	if len(fields) == 0 {
		e.Kind, e.Detail = ErrEmpty, "there are no fields"
		return nil, e
	}
	size := 0
	for name, value := range fields {
		e.Detail = "field " + shown(name)
		switch {
		case checkName("it", name, maxField) != "":
			e.Kind, e.Detail = ErrMalformed, "a field has a name that no reference can have"
		case len(value) > MaxWrite:
			e.Kind = ErrTooLarge
		case blank(value):
			e.Kind = ErrEmpty
		case !utf8.Valid(value):
			e.Kind, e.Detail = ErrMalformed, e.Detail+" is not text in UTF-8; encode it"
		default:
			size += quotedLen(name) + quotedLen(value) + len(`:,`)
			continue
		}
		return nil, e
	}
	if size > maxWriteText {
		e.Kind, e.Detail = ErrTooLarge, "the fields together, as JSON"
		return nil, e
	}
	// Made in one piece: a buffer that grows leaves copies behind.
	out := make([]byte, 0, size+64)
	out = append(out, '{')
	if o.CreateOnly {
		out = append(out, `"options":{"cas":0},`...)
	}
	out = append(out, `"data":{`...)
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendQuoted(out, name), ':')
		out = appendQuoted(out, fields[name])
	}
	return &outgoing{text: append(out, `}}`...)}, nil
}

const hexDigits = "0123456789abcdef"

// escaped are the bytes that Vault's JSON spells in six.
func escaped(c byte) bool { return c < ' ' || c == '<' || c == '>' || c == '&' }

func quotedLen[T string | []byte](s T) int {
	n := len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
		case escaped(c):
			n += 6
		case c == '"' || c == '\\':
			n += 2
		default:
			n++
		}
	}
	return n
}

// appendQuoted appends s, which is UTF-8, as a JSON string of quotedLen bytes.
func appendQuoted[T string | []byte](out []byte, s T) []byte {
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case escaped(c):
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}
