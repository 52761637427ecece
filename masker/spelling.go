package masker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Above wrappedLimit, in bytes of the whole secret, encodings of wrapped encodings
// are left out.
const wrappedLimit = 8 << 10

// How tools wrap lines: base64 of coreutils, xxd -p.
const (
	base64Line = 76
	hexLine    = 60
)

// quoted notes a value with apostrophes as shells write it in '…'. Elsewhere such
// quotes are read as what they stand for, but not where they begin a pattern.
func (v *variants) quoted(value []byte) {
	if bytes.IndexByte(value, '\'') < 0 {
		return
	}
	for _, by := range []string{`'"'"'`, `'\''`} {
		v.plain(bytes.ReplaceAll(value, []byte("'"), []byte(by)), printNone)
	}
}

// wrapped notes encodings of encodings with line ends, as pipes of base64 and xxd
// make them of a value that is alone in its file. In plain output line ends are read
// as nothing.
func (v *variants) wrapped(value []byte) {
	symbols := []byte(base64.StdEncoding.EncodeToString(value))
	if len(symbols) > base64Line {
		v.rewrapped(symbols, base64Line)
	}
	digits := []byte(hex.EncodeToString(value))
	if len(digits) > hexLine {
		v.rewrapped(digits, hexLine)
	}
	clear(symbols)
	clear(digits)
}

func (v *variants) rewrapped(text []byte, line int) {
	var lines []byte
	for at := 0; at < len(text); at += line {
		lines = append(append(lines, text[at:min(at+line, len(text))]...), '\n')
	}
	for _, tile := range tiles(lines, smallTile) {
		v.stems(tile, printNone)
		v.put([]byte(hex.EncodeToString(tile)), nil, kindHex, printNone)
	}
	clear(lines)
}

// percentEncoded returns value as encodeURIComponent and Python's quote write it,
// with and without / among what stays.
func percentEncoded(value []byte) [][]byte {
	var all [][]byte
	for _, safe := range []string{"-_.!~*'()", "-_.~/", "-_.~"} {
		var out []byte
		for _, b := range value {
			if isAlnum(b) || strings.IndexByte(safe, b) >= 0 {
				out = append(out, b)
			} else {
				out = fmt.Appendf(out, "%%%02X", b)
			}
		}
		all = append(all, out)
	}
	return all
}

// asciiJSON returns value as it stands in JSON that is ASCII only, and the same in
// JSON again. It is nothing for values that are ASCII.
func asciiJSON(value []byte) [][]byte {
	if isASCII(value) || !utf8.Valid(value) {
		return nil
	}
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	if e.Encode(string(value)) != nil {
		return nil
	}
	var once []byte
	for _, r := range string(plain.Bytes()[1 : plain.Len()-2]) {
		if r < utf8.RuneSelf {
			once = append(once, byte(r))
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			once = fmt.Appendf(once, `\u%04x`, u)
		}
	}
	twice := bytes.ReplaceAll(bytes.ReplaceAll(once, []byte(`\`), []byte(`\\`)), []byte(`"`), []byte(`\"`))
	return [][]byte{once, twice}
}
