package verification

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// httpExpectation holds conditions that must all be true of one answer.
type httpExpectation struct {
	named
	Status       statusSet        `json:"status"`
	BodyContains string           `json:"body_contains"`
	BodyMatches  string           `json:"body_matches"`
	Header       *headerCondition `json:"header"`
	JSON         *jsonCondition   `json:"json"`
	MaxLatencyMS int              `json:"max_latency_ms"`
	body         *regexp.Regexp
}

type headerCondition struct {
	Name     string  `json:"name"`
	Equals   *string `json:"equals"`
	Contains string  `json:"contains"`
	Matches  string  `json:"matches"`
	value    *regexp.Regexp
}

type jsonCondition struct {
	Pointer string          `json:"pointer"`
	Equals  json.RawMessage `json:"equals"`
	want    any
}

// statusSet holds statuses and classes of them; empty means any.
type statusSet struct {
	codes   []int
	classes []int // 2 for 2xx
}

// UnmarshalJSON reads 200, "2xx", or a list of them.
func (s *statusSet) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	if len(data) > 0 && data[0] == '[' {
		if err := json.Unmarshal(data, &items); err != nil {
			return err
		}
	} else {
		items = []json.RawMessage{data}
	}
	for _, item := range items {
		if text := string(item); strings.HasPrefix(text, `"`) && strings.HasSuffix(text, `xx"`) && len(text) == 5 {
			s.classes = append(s.classes, int(text[1]-'0'))
			continue
		}
		// A whole number may be written 200.0; the schema has let it through.
		f, err := strconv.ParseFloat(string(item), 64)
		if err != nil {
			return errors.New("a status is a number or a class such as 2xx")
		}
		s.codes = append(s.codes, int(f))
	}
	return nil
}

func (s statusSet) has(status int) bool {
	for _, c := range s.codes {
		if c == status {
			return true
		}
	}
	for _, c := range s.classes {
		if c == status/100 {
			return true
		}
	}
	return len(s.codes)+len(s.classes) == 0
}

func (e *httpExpectation) compile() error {
	var err error
	if e.BodyMatches != "" {
		if e.body, err = regexp.Compile(e.BodyMatches); err != nil {
			return errors.New("body_matches is no RE2 regular expression")
		}
	}
	if e.Header != nil && e.Header.Matches != "" {
		if e.Header.value, err = regexp.Compile(e.Header.Matches); err != nil {
			return errors.New("header.matches is no RE2 regular expression")
		}
	}
	if e.JSON != nil {
		return decode(e.JSON.Equals, &e.JSON.want)
	}
	return nil
}

func (e *httpExpectation) judge(a *httpAnswer) judgement {
	reason := reasonStatus
	if a.status >= 500 {
		reason = reasonServerError
	}
	return judged(e.Status.has(a.status), reason).
		and(e.judgeHeader(a)).
		and(e.judgeBody(a)).
		and(withinLatency(a.latency, e.MaxLatencyMS))
}

func (e *httpExpectation) judgeHeader(a *httpAnswer) judgement {
	if e.Header == nil {
		return judgement{sight: held}
	}
	values := a.header.Values(e.Header.Name)
	if len(values) == 0 {
		return broke(reasonHeaderMissing)
	}
	for _, v := range values {
		if e.Header.fits(v) {
			return judgement{sight: held}
		}
	}
	return broke(reasonHeaderMismatch)
}

func (h *headerCondition) fits(value string) bool {
	return (h.Equals == nil || value == *h.Equals) &&
		strings.Contains(value, h.Contains) &&
		(h.value == nil || h.value.MatchString(value))
}

// judgeBody looks at the first part of the body. One that broke off is judged
// by what came where that suffices, and by the break where not.
func (e *httpExpectation) judgeBody(a *httpAnswer) judgement {
	if e.BodyContains == "" && e.body == nil && e.JSON == nil && (a.bodyErr == nil || e.MaxLatencyMS == 0) {
		return judgement{sight: held}
	}
	j := judged(e.BodyContains == "" || bytes.Contains(a.body, []byte(e.BodyContains)), reasonBodyMissing).
		and(judged(e.body == nil || e.body.Match(a.body), reasonBodyMismatch))
	if e.JSON != nil {
		j = j.and(e.JSON.judge(a.body))
	}
	if a.bodyErr == nil || (j.sight == held && e.MaxLatencyMS == 0) {
		return j
	}
	class, seen := classify(a.bodyErr)
	switch {
	case seen:
		return broke(class)
	case class == classNetwork:
		return broke(classProtocol)
	}
	return judgement{unseen, class}
}

func (c *jsonCondition) judge(body []byte) judgement {
	var doc any
	if err := decode(body, &doc); err != nil {
		return broke(reasonNoJSON)
	}
	value, ok := lookupPointer(doc, c.Pointer)
	if !ok {
		return broke(reasonJSONMissing)
	}
	return judged(equalJSON(value, c.want), reasonJSONMismatch)
}

// lookupPointer follows an RFC 6901 pointer.
func lookupPointer(doc any, pointer string) (any, bool) {
	if pointer == "" {
		return doc, true
	}
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := doc.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != part {
				return nil, false
			}
			doc = v[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// equalJSON compares values of JSON; numbers by value, so that 1 is 1.0.
func equalJSON(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			w, ok := y[k]
			if !ok || !equalJSON(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalJSON(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		return ok && equalNumbers(x.String(), y.String())
	default:
		return a == b
	}
}

// equalNumbers compares exactly where the exponent is small, and by text where
// a peer's exponent would make the exact form huge.
func equalNumbers(a, b string) bool {
	if len(a) > 64 || len(b) > 64 || hugeExponent(a) || hugeExponent(b) {
		return a == b
	}
	x, ok1 := new(big.Rat).SetString(a)
	y, ok2 := new(big.Rat).SetString(b)
	return ok1 && ok2 && x.Cmp(y) == 0
}

func hugeExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(s)-i > 5
}
