package masker

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"hash/maphash"
	"html"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// shortest is the least length of a value, and of any text that is a pattern.
	shortest = 6
	// Shorter stems would turn up in other data by chance.
	shortestBase64 = 7
	shortestBase32 = 8

	// Long texts are cut into overlapping tiles: each is a pattern, and together
	// they cover the whole.
	tileSize    = 3 << 10
	smallTile   = 1 << 10
	tileOverlap = 32

	// Above these sizes in bytes the dearer encodings are left out, which bounds
	// memory. Above wholeLimit only the lines and fields that have no parts have any.
	nestedLimit = 4 << 10
	wideLimit   = 16 << 10
	wholeLimit  = 64 << 10
)

// variants collects the patterns of one secret. Escapes, line ends, colour codes
// and letter case of hex need none: the threads of the scanner read through them.
type variants struct {
	secret   int32
	size     int // of the whole secret
	patterns []pattern
	seen     map[uint64]int32 // by hash, so that no second copy is made
	seed     maphash.Seed
}

func newVariants(secret int32) *variants {
	return &variants{secret: secret, seen: map[uint64]int32{}, seed: maphash.MakeSeed()}
}

// add notes the patterns of one text.
func (v *variants) add(p part) {
	v.reading(p)
	if plain := unescape(p.value); plain != nil {
		v.reading(part{value: plain, print: p.print, outer: p.outer || v.size > wholeLimit})
	}
}

func (v *variants) reading(p part) {
	for _, tile := range tiles(p.value, tileSize) {
		v.plain(tile, p.print)
		if v.size <= wholeLimit || !p.outer {
			v.encoded(tile, p.print)
		}
	}
	if v.size <= wrappedLimit {
		v.wrapped(p.value)
		for _, tile := range tiles(p.value, smallTile) {
			v.quoted(tile)
		}
	}
	if v.size > wideLimit {
		return
	}
	for _, tile := range tiles(p.value, smallTile) {
		v.wide(tile, p.print)
	}
	if v.size > nestedLimit {
		return
	}
	for _, tile := range tiles(p.value, smallTile) {
		v.nested(tile)
	}
}

func tiles(value []byte, size int) [][]byte {
	if len(value) <= size+tileOverlap {
		return [][]byte{value}
	}
	var all [][]byte
	for at := 0; at < len(value)-tileOverlap; at += size {
		all = append(all, value[at:min(at+size+tileOverlap, len(value))])
	}
	return all
}

// put notes one pattern unless it is known. It returns whether it was new.
func (v *variants) put(text []byte, gaps []int32, kind uint32, print printRule) bool {
	if len(text) < shortest || len(text) > maxPattern {
		return false
	}
	key := maphash.Bytes(v.seed, text)
	if at, ok := v.seen[key]; ok {
		known := &v.patterns[at]
		known.print = min(known.print, print)
		return false
	}
	v.seen[key] = int32(len(v.patterns))
	v.patterns = append(v.patterns, pattern{text: bytes.Clone(text), gaps: gaps, kind: kind, secret: v.secret, print: print})
	return true
}

// plain notes the text itself. Its white space is left out of the pattern, so that
// a text that is folded, indented or has other line ends is found too.
func (v *variants) plain(value []byte, print printRule) {
	compact, gaps := compact(value)
	if len(compact) < shortest {
		v.put(value, nil, kindText, print)
		// Its white space is a part of the pattern, also as a URL writes it.
		v.put(bytes.ReplaceAll(value, []byte(" "), []byte("+")), nil, kindText, printNone)
	}
	if v.put(compact, gaps, kindText, print) && len(gaps) > 0 && print != printNone {
		v.patterns[len(v.patterns)-1].raw = bytes.Clone(value)
	}
}

// encoded notes the usual encodings that change every byte.
func (v *variants) encoded(value []byte, print printRule) {
	v.stems(value, print)
	digits := []byte(hex.EncodeToString(value))
	v.put(digits, nil, kindHex, max(print, printHex))
	// Behind 0x the first digit of a small byte may be missing. Later bytes are
	// read without it, the first ones begin no pattern then.
	small := 0
	for small < min(len(value), shortest-1) && value[small] < 16 {
		small++
	}
	if small > 0 {
		v.put(digits[2*small:], nil, kindHex, printNone)
	}
	if rest := value[small:]; small > 0 && (2*len(rest) < shortest || rest[0] < 16) {
		v.listed(value)
	}
}

// listed notes a value of control characters as Go and C write its bytes, 0x0, 0x1f:
// none of them begins a pattern of hex then.
func (v *variants) listed(value []byte) {
	var text []byte
	var gaps []int32
	for i, b := range value {
		if i > 0 {
			text = append(text, ',')
			gaps = append(gaps, int32(len(text)-1))
		}
		text = fmt.Appendf(text, "%#x", b)
	}
	v.put(text, gaps, kindText, printNone)
}

// wide notes the encodings that are rarer or take more room.
func (v *variants) wide(value []byte, print printRule) {
	for _, s := range base32Stems(value, shortestBase32) {
		v.put(s, nil, kindBase64, max(print, printBase32))
	}
	v.put(decimal(value), nil, kindDecimal, max(print, printDecimal))
	v.put(signed(value), nil, kindDecimal, printNone)
	if bytes.IndexByte(value, '\n') >= 0 {
		v.stems(withCRLF(value), printNone)
	}
	if isASCII(value) || !utf8.Valid(value) {
		return
	}
	v.put(latin1(value), nil, kindText, print)
	le, be := utf16Text(value)
	v.put(le, nil, kindText, printNone)
	v.put(be, nil, kindText, printNone)
}

// nested notes encodings of encodings.
func (v *variants) nested(value []byte) {
	for _, s := range base32Stems(value, shortestBase32) {
		v.put(bytes.ToLower(s), nil, kindBase64, printNone)
	}
	for _, s := range base64Stems(value, shortestBase64) {
		v.stems(s, printNone)
		v.put([]byte(hex.EncodeToString(s)), nil, kindHex, printNone)
	}
	digits := hex.EncodeToString(value)
	v.stems([]byte(digits), printNone)
	if len(value) > 2*shortest { // for a row of a dump that ends with the first byte
		v.put([]byte(digits[2:]), nil, kindHex, printNone)
	}
	for _, text := range escaped(value) {
		v.stems(text, printNone)
		v.put([]byte(hex.EncodeToString(text)), nil, kindHex, printNone)
	}
	if !utf8.Valid(value) {
		return
	}
	le, be := utf16Text(value)
	for _, w := range [][]byte{le, be} {
		v.stems(w, printNone)
		v.put([]byte(hex.EncodeToString(w)), nil, kindHex, printNone)
	}
}

func (v *variants) stems(value []byte, print printRule) {
	for _, s := range base64Stems(value, shortestBase64) {
		v.put(s, nil, kindBase64, max(print, printBase64))
	}
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' || r == '\r' }

// compact returns value without white space, and after which bytes of the result
// there was some.
func compact(value []byte) ([]byte, []int32) {
	out := make([]byte, 0, len(value))
	var gaps []int32
	for _, b := range value {
		if !isBlank(rune(b)) {
			out = append(out, b)
			continue
		}
		if at := int32(len(out) - 1); at >= 0 && (len(gaps) == 0 || gaps[len(gaps)-1] != at) {
			gaps = append(gaps, at)
		}
	}
	return out, gaps
}

func isASCII(value []byte) bool {
	for _, b := range value {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// latin1 returns value in one byte per character, or nil.
func latin1(value []byte) []byte {
	var out []byte
	for _, r := range string(value) {
		if r > 255 {
			return nil
		}
		out = append(out, byte(r))
	}
	return out
}

// utf16Text returns value in UTF-16, low byte first and high byte first.
func utf16Text(value []byte) (le, be []byte) {
	for _, u := range utf16.Encode([]rune(string(value))) {
		le = append(le, byte(u), byte(u>>8))
		be = append(be, byte(u>>8), byte(u))
	}
	return le, be
}

// decimal returns the bytes of value as numbers, as Go prints a byte slice.
func decimal(value []byte) []byte {
	var out []byte
	for i, b := range value {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendUint(out, uint64(b), 10)
	}
	return out
}

// signed returns the bytes of value as Java prints them, or nothing when that is no
// different.
func signed(value []byte) []byte {
	if isASCII(value) {
		return nil
	}
	var out []byte
	for i, b := range value {
		if i > 0 {
			out = append(out, ' ')
		}
		out = strconv.AppendInt(out, int64(int8(b)), 10)
	}
	return out
}

// escaped returns value as it stands in JSON, URLs and HTML where that is
// different. In plain output such escapes are read as what they stand for; these
// are for the encodings around them.
func escaped(value []byte) [][]byte {
	text := string(value)
	all := [][]byte{[]byte(url.QueryEscape(text)), []byte(url.PathEscape(text)), []byte(html.EscapeString(text))}
	if utf8.Valid(value) {
		var markup, plain bytes.Buffer
		if xml.EscapeText(&markup, value) == nil {
			all = append(all, markup.Bytes())
		}
		e := json.NewEncoder(&plain)
		e.SetEscapeHTML(false)
		if e.Encode(text) == nil {
			all = append(all, plain.Bytes()[1:plain.Len()-2])
		}
		if safe, err := json.Marshal(text); err == nil {
			all = append(all, safe[1:len(safe)-1])
		}
	}
	all = append(append(all, percentEncoded(value)...), asciiJSON(value)...)
	return slices.DeleteFunc(all, func(b []byte) bool { return bytes.Equal(b, value) })
}

func withCRLF(value []byte) []byte {
	plain := bytes.ReplaceAll(value, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(plain, []byte("\n"), []byte("\r\n"))
}

// unescape returns the text that value stands for when it is itself escaped, as a
// part of a URL or a line of a .env file is. It returns nil when it is not.
func unescape(value []byte) []byte {
	if !bytes.ContainsAny(value, `%\&`) {
		return nil
	}
	intro := map[byte]uint8{'%': escPercent, '\\': escBackslash, '&': escEntity}
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); {
		kind, ok := intro[value[i]]
		if ok {
			if x, n := readEscape(kind, value[i:]); n > 0 {
				out = append(out, x.b[:x.n]...)
				i += n
				continue
			}
		}
		out = append(out, value[i])
		i++
	}
	if bytes.Equal(out, value) {
		return nil
	}
	return out
}

// readEscape reads one escape at the start of b and returns its length.
func readEscape(kind uint8, b []byte) (text, int) {
	e := start(kind, b[0], 0)
	for i := 1; i < len(b); i++ {
		var f effect
		e.advance(b[i], &f)
		if f.count > 0 {
			return f.texts[0], i + 1
		}
		if !f.keep {
			break
		}
		e = f.next
	}
	return text{}, 0
}
