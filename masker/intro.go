package masker

import "bytes"

// buildIntro sets which bytes can begin an escape, and for which the readings
// fork. Quotes matter only when a secret has some.
func (a *automaton) buildIntro(patterns []pattern) {
	a.intro = [256]uint8{
		'%': escPercent, '\\': escBackslash, '&': escEntity, '=': escQuotedPrintable,
		27: escSequence, '\n': escLine, '\r': escLine, 8: escOneMore, '_': escUnderline,
		'`': escShellChar, '^': escShellChar, 0: escNul, 7: escNul, 14: escNul, 15: escNul, 127: escNul,
		0xc2: escC2, 0xe2: escWide, 0xef: escWide,
	}
	for i := range patterns {
		if patterns[i].kind != kindText {
			continue
		}
		t := patterns[i].text
		if bytes.IndexByte(t, '\'') >= 0 {
			a.intro['\''] = escQuote
		}
		if bytes.IndexByte(t, '"') >= 0 {
			a.intro['"'] = escDouble
		}
	}
	for b := range a.intro {
		a.class[b] = uint16(normal[b])
		if a.intro[b] != escNone {
			a.special[b] = true
			if a.intro[b] != escUnderline { // the backspace behind it stops the scan
				a.class[b] |= 256
			}
		}
	}
	for _, b := range []byte(" \t:-_,.|;/+\n0ABCDEF") {
		a.special[b] = true
	}
	a.turns = a.special
	a.turns['"'], a.turns['\''] = true, true
}
