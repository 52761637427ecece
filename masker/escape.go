package masker

import "unicode/utf8"

// What can begin with a byte. Up to escQuotedPrintable it stands for other bytes;
// from escSequence on it stands for nothing and was put in between.
const (
	escNone = uint8(iota)
	escPercent
	escPercentU
	escBackslash
	escHex     // \xHH
	escBraces  // \u{H} or \x{H}
	escUnicode // \uHHHH and \UHHHHHHHH, val counts the digits left in its top byte
	escSurrogate
	escOctal
	escEntity
	escEntityNumber
	escEntityHex
	escEntityName
	escQuote // '\'' or '"'"' or ''
	escQuoteBackslash
	escQuoteDouble
	escQuoteEnd
	escDouble    // ""
	escShellChar // `c and ^c
	escQuotedPrintable
	escSequence // after ESC
	escControl  // CSI up to its final byte
	escString   // OSC, DCS and their like up to BEL or ST
	escStringEnd
	escOneMore // one byte ends it
	escLine    // after a line end: indentation
	escSoftEnd // =\r of quoted-printable
	escWide    // zero-width characters by their first byte
	escWide2
	escC2
	escNul
	escUnderline // _ of _\bc
	escZeroX     // 0 of 0x between hex digits
	escDump      // from the end of a row of a hex dump to the start of the next
	escDumpText  // the text column of its last row
	escJoin      // from the end of one string, by its quote, to the start of the next
)

// skipLimit bounds what may be put in between two bytes of a secret at one place.
const skipLimit = 4096

// longestMargin is how many characters, blanks left out, may stand before a line
// that goes on, as in quoted mail and diffs; longestJoin is how many may stand
// between the quotes of two strings that a program puts together.
const (
	longestMargin = 6
	longestJoin   = 100
	// longestDumpText is how many bytes may stand between the last byte of a row of
	// a hex dump, in hex, and the end of its line.
	longestDumpText = 80
)

// isMargin says that b may stand before a line: signs of mail, diffs and comments,
// and the three bytes of │.
func isMargin(b byte) bool {
	switch b {
	case '>', '+', '-', '|', '#', '~', '*', '/', 0xe2, 0x94, 0x82:
		return true
	}
	return false
}

// esc is an escape that has begun. from is the stream position of its first byte.
type esc struct {
	kind uint8
	n    uint16
	val  uint64
	from int64
}

// text is what an escape stands for, one character at most.
type text struct {
	b [utf8.UTFMax]byte
	n uint8
	// same says that the last byte of the escape is what it stands for.
	same bool
}

// effect is what one more byte does to an escape. All of it may be true at once:
// each is another way to read the stream.
type effect struct {
	keep  bool // it goes on as next
	pass  bool // it ended before this byte
	end   bool // it ends here and stands for nothing
	late  bool // what it stands for ended before this byte, which goes on as itself
	next  esc
	count int
	texts [2]text
}

func (f *effect) on(e esc) { f.keep, f.next = true, e }

func (f *effect) emit(b byte) {
	f.texts[f.count] = text{b: [utf8.UTFMax]byte{b}, n: 1}
	f.count++
}

func (f *effect) emitRune(r uint64) {
	if r > utf8.MaxRune {
		return
	}
	var t text
	t.n = uint8(utf8.EncodeRune(t.b[:], rune(r)))
	f.texts[f.count] = t
	f.count++
}

func (f *effect) emitByteOrRune(v byte) {
	f.emit(v)
	if v >= utf8.RuneSelf {
		f.emitRune(uint64(v))
	}
}

func hexDigit(b byte) (uint64, bool) {
	switch {
	case b >= '0' && b <= '9':
		return uint64(b - '0'), true
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return uint64(b|0x20-'a') + 10, true
	}
	return 0, false
}

func isAlnum(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
}

// start returns the escape that b begins. Its kind is escNone when b, alone, is
// the whole of it and stands for nothing.
func start(kind uint8, b byte, from int64) esc {
	e := esc{kind: kind, from: from}
	switch kind {
	case escWide:
		e.val = uint64(b)
	case escNul:
		e.kind = escNone
	}
	return e
}

// advance tells what b does to e.
func (e esc) advance(b byte, f *effect) {
	if e.n++; e.n > skipLimit {
		return
	}
	switch e.kind {
	case escPercent, escHex, escQuotedPrintable:
		e.twoDigits(b, f)
	case escPercentU, escUnicode:
		e.unicode(b, f)
	case escBackslash:
		e.backslash(b, f)
	case escBraces:
		if d, ok := hexDigit(b); ok && e.n <= 7 {
			e.val = e.val<<4 | d
			f.on(e)
		} else if b == '}' && e.n > 1 {
			f.emitRune(e.val)
		}
	case escSurrogate:
		e.surrogate(b, f)
	case escOctal:
		e.octal(b, f)
	case escEntity, escEntityNumber, escEntityHex, escEntityName:
		e.entity(b, f)
	case escQuote, escQuoteBackslash, escQuoteDouble, escQuoteEnd, escDouble, escShellChar:
		e.quote(b, f)
	default:
		e.insertion(b, f)
	}
}

func (e esc) twoDigits(b byte, f *effect) {
	d, ok := hexDigit(b)
	switch {
	case ok && e.n == 1:
		e.val = d
		f.on(e)
	case ok && e.kind == escHex:
		f.emitByteOrRune(byte(e.val<<4 | d))
	case ok:
		f.emit(byte(e.val<<4 | d))
	case e.n > 1:
	case e.kind == escPercent && b|0x20 == 'u':
		f.on(esc{kind: escPercentU, val: 4 << 56, from: e.from})
	case e.kind == escHex && b == '{':
		f.on(esc{kind: escBraces, from: e.from})
	case e.kind == escQuotedPrintable && b == '\n':
		f.end = true
	case e.kind == escQuotedPrintable && b == '\r':
		f.on(esc{kind: escSoftEnd, from: e.from})
	}
}

// unicode reads digits; the top byte of val holds how many are left.
func (e esc) unicode(b byte, f *effect) {
	d, ok := hexDigit(b)
	if !ok {
		if b == '{' && e.kind == escUnicode && e.n == 1 {
			f.on(esc{kind: escBraces, from: e.from})
		}
		return
	}
	left := e.val>>56 - 1
	v := e.val<<8>>8<<4 | d
	switch {
	case left > 0:
		e.val = left<<56 | v
		f.on(e)
	case v >= 0xd800 && v < 0xdc00:
		f.on(esc{kind: escSurrogate, val: v, from: e.from})
	default:
		f.emitRune(v)
	}
}

// surrogate reads the second half of a pair, \uDCxx or %uDCxx.
func (e esc) surrogate(b byte, f *effect) {
	switch e.n {
	case 1:
		if b == '\\' || b == '%' {
			f.on(e)
		}
		return
	case 2:
		if b == 'u' {
			f.on(e)
		}
		return
	}
	d, ok := hexDigit(b)
	if !ok {
		return
	}
	e.val = e.val<<4 | d
	if e.n < 6 {
		f.on(e)
		return
	}
	if high, low := e.val>>16, e.val&0xffff; low >= 0xdc00 && low < 0xe000 {
		f.emitRune(0x10000 + (high-0xd800)<<10 + low - 0xdc00)
	}
}

// controls are the letters that stand for a control byte after a backslash.
var controls = [256]byte{
	'a': 7, 'b': 8, 't': 9, 'n': '\n', 'v': 11, 'f': 12, 'r': '\r', 'e': 27, 'E': 27, 's': ' ',
}

func (e esc) backslash(b byte, f *effect) {
	switch {
	case b == 'x' || b == 'X':
		f.on(esc{kind: escHex, from: e.from})
	case b == 'u':
		f.on(esc{kind: escUnicode, val: 4 << 56, from: e.from})
	case b == 'U':
		f.on(esc{kind: escUnicode, val: 8 << 56, from: e.from})
	case b >= '0' && b <= '7':
		f.on(esc{kind: escOctal, val: uint64(b - '0'), from: e.from, n: 1})
	case b == '\n':
		f.on(esc{kind: escLine, from: e.from})
	case b == '\r':
		f.on(esc{kind: escLine, from: e.from})
	case controls[b] != 0:
		f.emit(controls[b])
	case !isAlnum(b):
		f.texts[0], f.count = text{b: [utf8.UTFMax]byte{b}, n: 1, same: true}, 1
	}
}

// octal takes three digits, or four when the first is 0 as shells do, or all there
// are.
func (e esc) octal(b byte, f *effect) {
	if b < '0' || b > '7' {
		if e.n < 4 {
			f.emitByteOrRune(byte(e.val))
			f.late = true
		}
		return
	}
	if e.val = e.val<<3 | uint64(b-'0'); e.val > 255 {
		return
	}
	if e.n >= 3 {
		f.emitByteOrRune(byte(e.val))
	}
	if e.n < 3 || e.n == 3 && e.val < 32 {
		f.on(e)
	}
}

func (e esc) entity(b byte, f *effect) {
	d, isHex := hexDigit(b)
	switch {
	case e.kind == escEntity && b == '#':
		f.on(esc{kind: escEntityNumber, from: e.from})
	case e.kind == escEntity && isAlnum(b):
		f.on(esc{kind: escEntityName, val: uint64(b), from: e.from})
	case e.kind == escEntityNumber && b|0x20 == 'x' && e.n == 1:
		f.on(esc{kind: escEntityHex, from: e.from})
	case e.kind == escEntityNumber && isHex && d < 10 && e.n <= 10:
		e.val = e.val*10 + d
		f.on(e)
	case e.kind == escEntityHex && isHex && e.n <= 10:
		e.val = e.val<<4 | d
		f.on(e)
	case e.kind == escEntityName && isAlnum(b) && e.n <= 7:
		e.val = e.val<<8 | uint64(b)
		f.on(e)
	case b != ';' && e.n > 1 && (e.kind == escEntityNumber || e.kind == escEntityHex):
		f.emitRune(e.val)
		f.late = true
	case b != ';' || e.kind == escEntity:
	case e.kind == escEntityName:
		if r := entityNames[e.val]; r != 0 {
			f.emitRune(r)
		}
	case e.n > 1:
		f.emitRune(e.val)
	}
}

// quote reads the ways to write a quote within quotes.
func (e esc) quote(b byte, f *effect) {
	switch {
	case e.kind == escShellChar && (b == '\n' || b == '\r'):
		f.on(esc{kind: escLine, from: e.from})
	case e.kind == escShellChar && !isAlnum(b):
		f.texts[0], f.count = text{b: [utf8.UTFMax]byte{b}, n: 1, same: true}, 1
	case e.kind == escDouble && b == '"':
		f.emit('"')
	case e.kind == escQuote && b == '\'':
		f.emit('\'')
	case e.kind == escQuote && b == '\\':
		f.on(esc{kind: escQuoteBackslash, from: e.from})
	case e.kind == escQuote && b == '"':
		f.on(esc{kind: escQuoteDouble, from: e.from})
	case e.kind == escQuoteBackslash && b == '\'':
		f.on(esc{kind: escQuoteEnd, from: e.from})
	case e.kind == escQuoteDouble && b == '\'':
		f.on(esc{kind: escQuoteDouble, n: 9, from: e.from})
	case e.kind == escQuoteDouble && b == '"' && e.n == 10:
		f.on(esc{kind: escQuoteEnd, from: e.from})
	case e.kind == escQuoteEnd && b == '\'':
		f.emit('\'')
	}
}

// insertion reads what stands for nothing.
func (e esc) insertion(b byte, f *effect) {
	switch e.kind {
	case escSequence:
		e.sequence(b, f)
	case escControl:
		switch {
		case b >= 0x40 && b <= 0x7e:
			f.end = true
		case b >= 0x20 && b < 0x40:
			f.on(e)
		}
	case escString:
		switch b {
		case 7:
			f.end = true
		case 27:
			f.on(esc{kind: escStringEnd, from: e.from})
		default:
			f.on(e)
		}
	case escStringEnd:
		f.end = b == '\\'
	case escOneMore:
		f.end = true
	case escUnderline:
		f.end = b == 8
	case escZeroX:
		f.end = b|0x20 == 'x'
	case escSoftEnd:
		f.end = b == '\n'
	case escLine:
		blank := b == ' ' || b == '\t' || b == '\n' || b == '\r'
		switch {
		case blank:
			f.on(e)
		case e.val < longestMargin && isMargin(b):
			e.val++
			f.on(e)
		}
		// The first blank may be the one between two numbers.
		f.pass = !blank || e.n == 1
	case escDump:
		e.dump(b, f)
	case escDumpText:
		if f.end = b == '\n' || e.n > longestDumpText; !f.end {
			f.on(e)
		}
	case escJoin:
		switch {
		case uint64(b) == e.val:
			f.end = true
		case e.n < longestJoin && (isBlank(rune(b)) || b == ',' || b == '+' || b == '.' || b == '\\'):
			f.on(e)
		}
	case escC2:
		switch b {
		case 0x9b:
			f.on(esc{kind: escControl, from: e.from})
		case 0xad:
			f.end = true
		}
	case escWide, escWide2:
		e.wide(b, f)
	}
}

// What may stand between two rows of a hex dump: blanks and a text column, the line
// end, an offset and blanks. val holds which of these it is and how many digits the
// offset has.
const (
	dumpBlank = iota << 8
	dumpText
	dumpOffset
	dumpMargin
)

func (e esc) dump(b byte, f *effect) {
	_, digit := hexDigit(b)
	blank := b == ' ' || b == '\t'
	switch {
	case b == '\n' && e.val < dumpOffset:
		e.val = dumpOffset
		f.on(e)
	case e.val == dumpBlank && blank:
		e.val = dumpText
		f.on(e)
	case e.val == dumpText && e.n <= longestDumpText:
		f.on(e)
	case e.val >= dumpOffset && e.val < dumpOffset+8 && digit:
		e.val++
		f.on(e)
	case e.val >= dumpOffset+6 && e.val < dumpMargin && (blank || b == ':'), e.val == dumpMargin && blank:
		e.val = dumpMargin
		f.on(e)
	default:
		f.pass = e.val == dumpMargin
	}
}

func (e esc) sequence(b byte, f *effect) {
	switch {
	case b == '[':
		f.on(esc{kind: escControl, from: e.from})
	case b == ']' || b == 'P' || b == 'X' || b == '^' || b == '_':
		f.on(esc{kind: escString, from: e.from})
	case b >= 0x20 && b < 0x30:
		f.on(esc{kind: escOneMore, from: e.from})
	case b >= 0x30 && b < 0x7f:
		f.end = true
	}
}

// wide reads U+200B to U+200F, U+202A to U+202E, U+2060 to U+2064 and U+FEFF.
func (e esc) wide(b byte, f *effect) {
	if e.kind == escWide {
		if e.val == 0xe2 && (b == 0x80 || b == 0x81) || e.val == 0xef && b == 0xbb {
			e.kind, e.val = escWide2, e.val<<8|uint64(b)
			f.on(e)
		}
		return
	}
	switch e.val {
	case 0xe280:
		f.end = b >= 0x8b && b <= 0x8f || b >= 0xaa && b <= 0xae
	case 0xe281:
		f.end = b >= 0xa0 && b <= 0xa4
	case 0xefbb:
		f.end = b == 0xbf
	}
}

// entityNames are the named characters that stand for something a secret may
// hold, packed as the bytes of the name.
var entityNames = func() map[uint64]uint64 {
	names := map[string]rune{
		"amp": '&', "AMP": '&', "lt": '<', "LT": '<', "gt": '>', "GT": '>', "quot": '"', "QUOT": '"', "apos": '\'',
		"nbsp": ' ', "Tab": '\t', "NewLine": '\n', "excl": '!', "num": '#', "dollar": '$', "percnt": '%', "lpar": '(',
		"rpar": ')', "ast": '*', "midast": '*', "plus": '+', "comma": ',', "period": '.', "sol": '/', "colon": ':',
		"semi": ';', "equals": '=', "quest": '?', "commat": '@', "lsqb": '[', "lbrack": '[', "bsol": '\\', "rsqb": ']',
		"rbrack": ']', "Hat": '^', "lowbar": '_', "UnderBar": '_', "grave": '`', "lcub": '{', "lbrace": '{', "verbar": '|',
		"vert": '|', "VerLine": '|', "rcub": '}', "rbrace": '}', "hyphen": '-', "dash": '-', "auml": 'ä', "ouml": 'ö',
		"uuml": 'ü', "Auml": 'Ä', "Ouml": 'Ö', "Uuml": 'Ü', "szlig": 'ß', "eacute": 'é', "egrave": 'è', "agrave": 'à',
		"ccedil": 'ç', "ntilde": 'ñ', "euro": '€', "pound": '£', "sect": '§', "iacute": 'í', "oacute": 'ó', "aacute": 'á',
		"uacute": 'ú', "ecirc": 'ê', "acirc": 'â', "ocirc": 'ô', "euml": 'ë', "iuml": 'ï', "aring": 'å', "oslash": 'ø',
		"aelig": 'æ', "Eacute": 'É', "Aring": 'Å', "Oslash": 'Ø', "AElig": 'Æ', "Ccedil": 'Ç', "Ntilde": 'Ñ',
		"deg": '°', "para": '¶', "micro": 'µ', "copy": '©', "yen": '¥', "cent": '¢',
	}
	packed := make(map[uint64]uint64, len(names))
	for name, r := range names {
		var key uint64
		for i := range len(name) {
			key = key<<8 | uint64(name[i])
		}
		packed[key] = uint64(r)
	}
	return packed
}()
