package agent

import (
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/vault"
)

// contentOf is what the executor finds in a secret's file: the value of the field
// that the reference names, else one JSON object of all fields, each value as text.
// What was made for it is wiped by the second result.
func contentOf(s *vault.Secret) (content []byte, wipe func()) {
	if s.Reference.Field != "" && len(s.Fields) == 1 {
		return s.Fields[0].Value.Bytes(), func() {}
	}
	size := len(`{}`)
	for _, f := range s.Fields {
		size += 6*(len(f.Name)+f.Value.Len()) + len(`"":"",`)
	}
	// Made in one piece: a buffer that grows leaves copies behind.
	out := append(make([]byte, 0, size), '{')
	for i, f := range s.Fields {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendJSON(out, []byte(f.Name))
		out = append(out, ':')
		out = appendJSON(out, f.Value.Bytes())
	}
	out = append(out, '}')
	return out, func() { clear(out) }
}

// appendJSON appends a text as a JSON string. Six bytes for one of the text is the
// most.
func appendJSON(out, text []byte) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for len(text) > 0 {
		c := text[0]
		r, n := utf8.DecodeRune(text)
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ' || c == 0x7f:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	return append(out, '"')
}
