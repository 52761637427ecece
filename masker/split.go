package masker

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// splitDepth is how often a field may hold a document again.
	splitDepth = 4
	// mostRejections bounds a report.
	mostRejections = 100
	// mostParts bounds the patterns of one secret.
	mostParts = 20000
)

// part is a text that becomes patterns.
type part struct {
	value []byte
	print printRule
	outer bool // it has parts of its own, which are patterns
}

func wipeParts(parts []part) {
	for _, p := range parts {
		clear(p.value)
	}
}

// splitter takes a secret apart: JSON, YAML, .env and connection strings into the
// values of their fields, other texts into lines.
type splitter struct {
	parts    []part
	rejected []Rejection
	dropped  int
}

// split returns the parts of value, the whole first.
func split(value []byte) ([]part, []Rejection) {
	s := &splitter{}
	s.parts = append(s.parts, part{value: bytes.Clone(value)})
	s.inside("", value, 0)
	if len(s.parts) > 1 {
		s.parts[0].print, s.parts[0].outer = printNone, true
	}
	if s.dropped > 0 {
		s.rejected = append(s.rejected, Rejection{What: fmt.Sprintf("%d more", s.dropped), Reason: "not listed"})
	}
	return s.parts, s.rejected
}

func (s *splitter) reject(what, reason string) {
	if len(s.rejected) >= mostRejections {
		s.dropped++
		return
	}
	s.rejected = append(s.rejected, Rejection{What: what, Reason: reason})
}

// keep makes value a part.
func (s *splitter) keep(what string, value []byte) bool {
	if len(s.parts) >= mostParts {
		s.reject(what, "the secret has too many parts")
		return false
	}
	s.parts = append(s.parts, part{value: bytes.Clone(value)})
	return true
}

// field takes the value of a field.
func (s *splitter) field(what, key string, value []byte, depth int) {
	if why := refuse(key, value); why != "" {
		s.reject(what, why)
		return
	}
	at := len(s.parts)
	if !s.keep(what, value) {
		return
	}
	s.inside(what, value, depth+1)
	if len(s.parts) > at+1 {
		s.parts[at].print, s.parts[at].outer = printNone, true
	}
	at = len(s.parts)
	s.decoded(what, key, value, depth+1)
	if len(value) > wholeLimit {
		// What it stands for is found in base64 by the field itself.
		for i := range s.parts[at:] {
			s.parts[at+i].outer = true
		}
	}
}

// decoded takes what a field in base64 stands for, as Kubernetes keeps it.
func (s *splitter) decoded(what, key string, value []byte, depth int) {
	v := trimBlank(value)
	if len(v) < 12 || len(v)%4 != 0 || depth > splitDepth {
		return
	}
	plain, err := base64.StdEncoding.DecodeString(string(v))
	if err != nil || !printable(plain) {
		return
	}
	s.field(join(what, "base64"), key, plain, depth)
	clear(plain)
}

func printable(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < 32 && !isBlank(rune(c)) || c == 127 {
			return false
		}
	}
	return true
}

// inside takes apart what a text holds.
func (s *splitter) inside(what string, value []byte, depth int) {
	v := trimBlank(value)
	if depth > splitDepth || len(v) == 0 {
		return
	}
	if (v[0] == '{' || v[0] == '[') && json.Valid(v) {
		s.json(what, v, depth)
		return
	}
	if bytes.Contains(v, []byte("-----BEGIN ")) && !bytes.ContainsAny(v[:min(5, len(v))], ":=") && bytes.HasPrefix(v, []byte("-----")) {
		s.lines(what, value)
		return
	}
	s.netrc(what, v, depth)
	if s.env(what, v, depth) || s.yaml(what, v, depth) {
		if bytes.IndexByte(v, '\n') < 0 {
			s.pairs(what, string(v), depth)
		}
		return
	}
	if bytes.IndexByte(v, '\n') >= 0 {
		s.lines(what, value)
		return
	}
	s.single(what, v, depth)
}

func (s *splitter) lines(what string, value []byte) {
	for i, line := range bytes.Split(value, []byte("\n")) {
		if line = trimBlank(line); len(line) == 0 {
			continue
		}
		name := join(what, "line "+strconv.Itoa(i+1))
		if why := refuseLine(line); why != "" {
			s.reject(name, why)
			continue
		}
		s.keep(name, line)
		s.pgpass(name, line)
	}
}

func (s *splitter) url(what, text string, depth int) {
	u, err := url.Parse(text)
	if err != nil {
		return
	}
	if u.User != nil {
		if password, ok := u.User.Password(); ok {
			s.field(join(what, "password"), "password", []byte(password), depth)
			// As it stands in the URL, too.
			_, rest, _ := strings.Cut(text, "://")
			if _, raw, ok := strings.Cut(rest[:max(strings.LastIndexByte(rest, '@'), 0)], ":"); ok && raw != password {
				s.field(join(what, "password in the URL"), "password", []byte(raw), depth)
			}
		} else if name := u.User.Username(); len(name) >= 16 {
			s.field(join(what, "user"), "token", []byte(name), depth)
		}
	}
	for key, values := range u.Query() {
		for _, value := range values {
			if sensitiveKeys.MatchString(key) {
				s.field(join(what, key), key, []byte(value), depth)
			}
		}
	}
}

// json walks a document by its tokens, so that keys that stand twice are seen twice.
func (s *splitter) json(what string, v []byte, depth int) {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	w := &jsonWalk{s: s, d: d, depth: depth}
	if err := w.value(what, ""); err != nil && !errors.Is(err, io.EOF) {
		s.reject(what, "not read to its end")
	}
}

type jsonWalk struct {
	s     *splitter
	d     *json.Decoder
	depth int
}

func (w *jsonWalk) value(what, key string) error {
	token, err := w.d.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return w.nested(what, key, t)
	case string:
		w.s.field(what, key, []byte(t), w.depth)
	case json.Number:
		w.s.field(what, key, []byte(t.String()), w.depth)
	default:
		w.s.reject(what, reasonCommon)
	}
	return nil
}

func (w *jsonWalk) nested(what, key string, open json.Delim) error {
	for i := 0; w.d.More(); i++ {
		if open == '[' {
			if err := w.value(fmt.Sprintf("%s[%d]", what, i), key); err != nil {
				return err
			}
			continue
		}
		token, err := w.d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if err := w.value(join(what, name), name); err != nil {
			return err
		}
	}
	_, err := w.d.Token()
	return err
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
