package strictjson

import "unicode/utf16"

// escape reads one escape sequence, or a pair of them that is one character.
func (s *scanner) escape() (rune, *Error) {
	at := s.pos
	s.pos++
	c := s.peek()
	switch c {
	case '"', '\\', '/':
		s.pos++
		return rune(c), nil
	case 'b':
		s.pos++
		return '\b', nil
	case 'f':
		s.pos++
		return '\f', nil
	case 'n':
		s.pos++
		return '\n', nil
	case 'r':
		s.pos++
		return '\r', nil
	case 't':
		s.pos++
		return '\t', nil
	case 'u':
		return s.unicodeEscape(at)
	}
	return 0, s.unexpected("an escape sequence")
}

func (s *scanner) unicodeEscape(at int) (rune, *Error) {
	s.pos++
	r, err := s.hex4()
	if err != nil {
		return 0, err
	}
	if r == 0 {
		return 0, s.fail(CodeNUL, "a string contains an escaped NUL character at byte %d", at)
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	if s.pos+1 < len(s.data) && s.data[s.pos] == '\\' && s.data[s.pos+1] == 'u' {
		s.pos += 2
		low, err := s.hex4()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(r, low); pair != '\uFFFD' {
			return pair, nil
		}
	}
	return 0, s.fail(CodeSurrogate, "half of a surrogate pair stands alone at byte %d", at)
}

func (s *scanner) hex4() (rune, *Error) {
	var r rune
	for range 4 {
		c := s.peek()
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s.unexpected("a hexadecimal digit")
		}
		r = r<<4 | rune(c)
		s.pos++
	}
	return r, nil
}
