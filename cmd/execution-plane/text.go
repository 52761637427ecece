package main

import (
	"strings"
	"unicode"
)

// printable makes foreign text safe to show on a terminal: control characters,
// escape sequences and direction marks become visible and act on nothing.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return '�'
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// colourOnly strips every escape sequence of a log but colours, for terminals:
// a log may show red, it may not move the cursor, write the clipboard or hide text.
type colourOnly struct {
	state  int // 0 text, 1 after ESC, 2 in CSI, 3 in a string sequence, 4 after ESC in a string
	params []byte
}

const (
	inText = iota
	afterEscape
	inCSI
	inString
	afterStringEscape
)

// next filters a part of a log; sequences may be cut anywhere between parts.
func (c *colourOnly) next(dst, src []byte) []byte {
	for _, b := range src {
		switch c.state {
		case inText:
			switch {
			case b == 0x1b:
				c.state = afterEscape
			case b == '\n' || b == '\t' || b >= 0x20 && b != 0x7f:
				dst = append(dst, b)
			default:
				dst = append(dst, "�"...)
			}
		case afterEscape:
			switch b {
			case '[':
				c.state, c.params = inCSI, c.params[:0]
			case ']', 'P', 'X', '^', '_':
				c.state = inString
			default:
				c.state = inText
			}
		case inCSI:
			switch {
			case b == 'm':
				dst = append(dst, 0x1b, '[')
				dst = append(dst, c.params...)
				dst = append(dst, 'm')
				c.state = inText
			case b >= 0x40 && b <= 0x7e:
				c.state = inText
			case (b >= '0' && b <= '9' || b == ';') && len(c.params) < 32:
				c.params = append(c.params, b)
			}
		case inString:
			switch b {
			case 0x07:
				c.state = inText
			case 0x1b:
				c.state = afterStringEscape
			}
		case afterStringEscape:
			c.state = inString
			if b == '\\' {
				c.state = inText
			}
		}
	}
	return dst
}
