package api

import (
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

// Limits of a request.
const (
	MaxBody  = 256 << 10 // bytes of a JSON body
	MaxDepth = 32        // objects and arrays inside one another
	MaxWait  = 30        // seconds that a request may be held
)

// readAll reads at most one byte more than the limit. A body whose length is said is
// read into memory of that size: growing into it would take three times as much.
func readAll(r *http.Request, limit int) ([]byte, error) {
	if n := r.ContentLength; n >= 0 && n <= int64(limit) {
		b := make([]byte, n)
		_, err := io.ReadFull(r.Body, b)
		return b, err
	}
	return io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
}

// readBody reads a body whole, at most limit bytes.
func readBody(r *http.Request, limit int) ([]byte, error) {
	tooLarge := &strictjson.Error{Code: strictjson.CodeTooLarge, Message: fmt.Sprintf("it has more than %d bytes", limit)}
	b, err := readAll(r, limit)
	if err != nil {
		return nil, malformed("body_broken", "the body did not arrive whole", "send it again")
	}
	if len(b) > limit {
		// A caller that still writes would meet a reset instead of the answer. What
		// is larger than this is cut off all the same.
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscard)
		return nil, tooLarge
	}
	return b, nil
}

// maxDiscard is how much of a body that is too large is read to be polite, in bytes.
const maxDiscard = 16 << 20

// decodeBody reads a JSON body as a T: one value, known names once, ids in their
// canonical spelling.
func decodeBody[T any](body []byte) (*T, error) {
	v := new(T)
	if err := strictjson.Unmarshal(body, v, strictjson.MaxBytes(MaxBody), strictjson.MaxDepth(MaxDepth)); err != nil {
		return nil, err
	}
	if t := strings.TrimSpace(string(body)); t == "null" {
		return nil, &strictjson.Error{Code: strictjson.CodeNull, Message: "an object is expected, found null"}
	}
	// The zero id reads back from "" in stored states; no caller may write it.
	var raw any
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, &strictjson.Error{Code: strictjson.CodeSyntax, Message: "it is not JSON"}
	}
	if at, found := emptyID(reflect.TypeFor[T](), raw, ""); found {
		return nil, &strictjson.Error{Pointer: at, Code: strictjson.CodeInvalid, Message: "an empty text is not an id; leave the member out"}
	}
	return v, nil
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// emptyID finds a member that is an id by its type and the empty text by value.
func emptyID(t reflect.Type, v any, at string) (string, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := v.(string); ok {
		return at, s == "" && reflect.PointerTo(t).Implements(textUnmarshaler)
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return "", false
		}
		for i, e := range v {
			if p, found := emptyID(t.Elem(), e, at+"/"+strconv.Itoa(i)); found {
				return p, true
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return "", false
		}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			e, ok := v[name]
			if !ok {
				continue
			}
			if p, found := emptyID(f.Type, e, strictjson.AppendPointer(at, name)); found {
				return p, true
			}
		}
	}
	return "", false
}

// query is a strict view of a request's query.
type query struct{ values url.Values }

// parseQuery refuses what the route does not know, what stands twice, and what
// no text column takes.
func parseQuery(raw string, allowed []string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, malformed("query_malformed", "the query cannot be read", "write it as name=value pairs joined by &")
	}
	for name, v := range values {
		switch {
		case !slices.Contains(allowed, name):
			known := "this route takes none"
			if len(allowed) > 0 {
				known = "this route takes " + strings.Join(allowed, ", ")
			}
			return query{}, malformed("query_unknown", fmt.Sprintf("the query parameter %s is not known; %s", quote(name), known), "")
		case len(v) > 1:
			return query{}, malformed("query_repeated", fmt.Sprintf("the query parameter %s stands twice", name), "give it once")
		case v[0] == "":
			return query{}, malformed("query_empty", fmt.Sprintf("the query parameter %s has no value", name), "leave it out or give it a value")
		case len(v[0]) > 1000 || !printable(v[0]):
			return query{}, malformed("query_value", fmt.Sprintf("the query parameter %s is too long, not UTF-8, or holds control characters", name), "")
		}
	}
	return query{values}, nil
}

// printable reports whether a text is UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// quote shows a caller's text in a message, short and in ASCII.
func quote(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strconv.QuoteToASCII(s)
}

func (q query) text(name string) string { return q.values.Get(name) }

func (q query) has(name string) bool { return q.values.Has(name) }

// number reads a decimal integer in its shortest spelling.
func (q query) number(name string, otherwise, low, high int64) (int64, error) {
	if !q.has(name) {
		return otherwise, nil
	}
	s := q.text(name)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high || strconv.FormatInt(n, 10) != s {
		return 0, malformed("query_value", fmt.Sprintf("the query parameter %s is %s; it is an integer from %d to %d", name, quote(s), low, high), "")
	}
	return n, nil
}

func (q query) truth(name string) (bool, error) {
	switch s := q.text(name); s {
	case "":
		return false, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, malformed("query_value", fmt.Sprintf("the query parameter %s is %s; it is true or false", name, quote(s)), "")
	}
}

// wait is how long the caller lets the request be held.
func (q query) wait() (time.Duration, error) {
	n, err := q.number("wait", 0, 0, MaxWait)
	return time.Duration(n) * time.Second, err
}

func (q query) time(name string) (time.Time, error) {
	if !q.has(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, q.text(name))
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, malformed("query_value", fmt.Sprintf("the query parameter %s is %s; it is a time such as 2026-01-31T12:00:00Z", name, quote(q.text(name))), "a + in a time is written %2B in a query")
	}
	return t, nil
}

func queryID[T domain.ID[K], K any](q query, name string) (T, error) {
	if !q.has(name) {
		var zero T
		return zero, nil
	}
	return parseID[T, K](name, q.text(name))
}

// parseID reads an id of a path, query or header.
func parseID[T domain.ID[K], K any](name, s string) (T, error) {
	id, err := domain.ParseID[T, K](s)
	if err != nil {
		return id, malformed("invalid_id", fmt.Sprintf("%s: %s is not a canonical UUID (36 characters, lower case, not all zero)", name, quote(s)), "")
	}
	return id, nil
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && strings.ToLower(s) == s
}
