package vault

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// answer is Vault's envelope. Its parts that may hold a value are bytes, which can
// be overwritten, and no strings.
type answer struct {
	Status        int                        `json:"-"`
	LeaseID       string                     `json:"lease_id"`
	LeaseDuration int64                      `json:"lease_duration"` // seconds
	Renewable     bool                       `json:"renewable"`
	Data          map[string]json.RawMessage `json:"data"`
	Auth          *granted                   `json:"auth"`
	Errors        []string                   `json:"errors"` // read for their meaning, never shown
}

// granted is a token that Vault made or renewed.
type granted struct {
	ClientToken      string   `json:"client_token"`
	Accessor         string   `json:"accessor"`
	Policies         []string `json:"policies"`
	IdentityPolicies []string `json:"identity_policies"`
	Orphan           bool     `json:"orphan"`
	LeaseDuration    int64    `json:"lease_duration"` // seconds
	Renewable        bool     `json:"renewable"`
	TokenType        string   `json:"token_type"`
}

func (a *answer) wipe() {
	if a == nil {
		return
	}
	for _, raw := range a.Data {
		clear(raw)
	}
}

// text reads a string of the data that is no secret.
func (a *answer) text(name string) string {
	var s string
	if json.Unmarshal(a.Data[name], &s) != nil {
		return ""
	}
	return s
}

func (a *answer) seconds(name string) int64 {
	var n int64
	if json.Unmarshal(a.Data[name], &n) != nil {
		return 0
	}
	return n
}

func (a *answer) truth(name string) bool {
	var b bool
	return json.Unmarshal(a.Data[name], &b) == nil && b
}

// readAll reads r to its end and leaves no copies behind.
func readAll(r io.Reader, hint int64) ([]byte, error) {
	buf := make([]byte, 0, max(512, min(hint+1, maxAnswer)))
	for {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), 2*cap(buf))
			copy(grown, buf)
			clear(buf)
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			clear(buf)
			return nil, err
		}
	}
}

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// plain is what a JSON value stands for: the text of a string, and the JSON itself
// of anything else. The result is a copy. The input must be valid JSON.
func plain(raw json.RawMessage) []byte {
	if len(raw) < 2 || raw[0] != '"' {
		return bytes.Clone(raw)
	}
	in := raw[1 : len(raw)-1]
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		c := in[i+1]
		i += 2
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(in[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 <= len(in) && in[i] == '\\' && in[i+1] == 'u' {
					low = hex4(in[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default: // " \ /
			out = append(out, c)
		}
	}
	return out
}

func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		case c >= 'a':
			r |= rune(c - 'a' + 10)
		default:
			r |= rune(c - 'A' + 10)
		}
	}
	return r
}
