package masker_test

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
)

// The decoders of the test know nothing of the product's. Each turns an output
// into what a reader could make of it.

var (
	ansiCodes   = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]|\x1b\\][^\x07\x1b]*(\x07|\x1b\\\\)|\x1b\\(B")
	backslashes = regexp.MustCompile(`\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]+\}|U[0-9a-fA-F]{8}|[0-7]{3}|\r?\n[ \t]*|.)`)
	base64Runs  = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`)
	base32Runs  = regexp.MustCompile(`[A-Za-z2-7]{10,}`)
	hexRuns     = regexp.MustCompile(`[0-9a-fA-F]{12,}`)
	hexGaps     = regexp.MustCompile(`(0x|[:, \n\t-])`)
	numberRuns  = regexp.MustCompile(`\d{1,3}([ ,]+\d{1,3}){5,}`)
	softBreaks  = regexp.MustCompile("=\r?\n")
	qpBytes     = regexp.MustCompile(`=[0-9A-Fa-f]{2}`)
	percents    = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	overstrikes = regexp.MustCompile("(?s).\b")
	whiteSpace  = regexp.MustCompile(`[ \t\r\n]+`)
	zeroWidth   = strings.NewReplacer("\u200b", "", "\ufeff", "")
)

func unbackslash(s string) string {
	var high uint64
	return backslashes.ReplaceAllStringFunc(s, func(m string) string {
		switch c := m[1]; {
		case c == 'x':
			v, _ := strconv.ParseUint(m[2:], 16, 8)
			return string([]byte{byte(v)})
		case c == 'u' || c == 'U':
			v, _ := strconv.ParseUint(strings.Trim(m[2:], "{}"), 16, 32)
			if v >= 0xd800 && v < 0xdc00 {
				high = v
				return ""
			}
			if v >= 0xdc00 && v < 0xe000 {
				return string(utf16.DecodeRune(rune(high), rune(v)))
			}
			return string(rune(v))
		case c >= '0' && c <= '7' && len(m) == 4:
			v, _ := strconv.ParseUint(m[1:], 8, 16)
			return string([]byte{byte(v)})
		case c == '\n' || c == '\r':
			return ""
		case strings.IndexByte("nrtabfv", c) >= 0:
			return string("\n\r\t\a\b\f\v"[strings.IndexByte("nrtabfv", c)])
		}
		return m[1:]
	})
}

// decodings returns every reading of s one step away.
func decodings(s string) []string {
	all := []string{
		ansiCodes.ReplaceAllString(s, ""), unbackslash(s), html.UnescapeString(s), whiteSpace.ReplaceAllString(s, ""),
		strings.ReplaceAll(s, "\x00", ""), zeroWidth.Replace(s), overstrikes.ReplaceAllString(s, ""),
		percents.ReplaceAllStringFunc(s, func(m string) string { t, _ := url.PathUnescape(m); return t }),
		percents.ReplaceAllStringFunc(strings.ReplaceAll(s, "+", " "), func(m string) string { t, _ := url.PathUnescape(m); return t }),
		qpBytes.ReplaceAllStringFunc(softBreaks.ReplaceAllString(s, ""), func(m string) string {
			b, _ := hex.DecodeString(m[1:])
			return string(b)
		}),
		strings.NewReplacer(`'\''`, `'`, `'"'"'`, `'`, `''`, `'`, `""`, `"`).Replace(s),
	}
	for _, run := range base64Runs.FindAllString(s, -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
		for skip := range 4 {
			part := run[min(skip, len(run)):]
			b, _ := base64.RawStdEncoding.DecodeString(part[:len(part)/4*4])
			all = append(all, string(b))
		}
	}
	for _, run := range base32Runs.FindAllString(s, -1) {
		for skip := range 8 {
			part := strings.ToUpper(run[min(skip, len(run)):])
			b, _ := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(part[:len(part)/8*8])
			all = append(all, string(b))
		}
	}
	for _, run := range hexRuns.FindAllString(hexGaps.ReplaceAllString(s, ""), -1) {
		for skip := range 2 {
			part := run[skip:]
			b, _ := hex.DecodeString(part[:len(part)/2*2])
			all = append(all, string(b))
		}
	}
	for _, run := range numberRuns.FindAllString(s, -1) {
		var b []byte
		for n := range strings.FieldsFuncSeq(run, func(r rune) bool { return r == ' ' || r == ',' }) {
			v, _ := strconv.Atoi(n)
			b = append(b, byte(v))
		}
		all = append(all, string(b))
	}
	return all
}

// readings returns s and everything that up to depth decoders make of it.
func readings(s string, depth int) map[string]bool {
	seen := map[string]bool{s: true}
	last := []string{s}
	for range depth {
		var next []string
		for _, s := range last {
			for _, d := range decodings(s) {
				if len(d) >= 6 && !seen[d] {
					seen[d] = true
					next = append(next, d)
				}
			}
		}
		last = next
	}
	return seen
}

// leaks returns a window of six bytes of the secret that some reading of the
// output shows and no reading of the text around it does.
func leaks(out, around, secret []byte) string {
	windows := map[string]bool{}
	for _, form := range [][]byte{secret, whiteSpace.ReplaceAll(secret, nil)} {
		for i := 0; i+6 <= len(form); i++ {
			w := form[i : i+6]
			if len(bytes.TrimSpace(w)) == 6 {
				windows[string(w)] = true
			}
		}
	}
	shown := func(text []byte) map[string]bool {
		found := map[string]bool{}
		for r := range readings(string(text), 3) {
			for i := 0; i+6 <= len(r); i++ {
				if windows[r[i:i+6]] {
					found[r[i:i+6]] = true
				}
			}
		}
		return found
	}
	found := shown(out)
	if len(found) == 0 {
		return ""
	}
	before := shown(around)
	for w := range found {
		if !before[w] {
			return w
		}
	}
	return ""
}
