package api

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// neutralise makes the texts of a runner's JSON storable: NUL, half surrogates
// and bytes that are not UTF-8 become U+FFFD. A report about a job must never be
// lost because a tool printed something odd. It changes nothing else: what is
// not JSON stays so.
func neutralise(body []byte) []byte {
	if utf8.Valid(body) && !bytes.Contains(body, []byte(`\u`)) {
		return body
	}
	out := make([]byte, 0, len(body)+16)
	inText := false
	for i := 0; i < len(body); {
		c := body[i]
		switch {
		case c == '"':
			inText = !inText
			out = append(out, c)
			i++
		case c == '\\' && inText:
			n, odd := escapeAt(body[i:])
			if odd {
				out = append(out, `\ufffd`...)
			} else {
				out = append(out, body[i:i+n]...)
			}
			i += n
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(body[i:])
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return out
}

// escapeAt measures the escape at the beginning of b, a pair of surrogates as
// one, and says whether it stands for a character that cannot be stored.
func escapeAt(b []byte) (n int, odd bool) {
	r, ok := hexEscape(b)
	switch {
	case !ok:
		return min(2, len(b)), false
	case r == 0, r >= 0xDC00 && r <= 0xDFFF:
		return 6, true
	case r >= 0xD800 && r <= 0xDBFF:
		if low, ok := hexEscape(b[6:]); ok && low >= 0xDC00 && low <= 0xDFFF {
			return 12, false
		}
		return 6, true
	}
	return 6, false
}

func hexEscape(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(n), err == nil
}
