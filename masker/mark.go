package masker

import (
	"bytes"
	"strings"
)

// anonymous are the marks to choose from when a mark with the name would hold,
// make or be a part of a secret. No mark has a quote, a backslash or a control
// byte, so that JSON strings stay valid.
var anonymous = []string{"[masked]", "(masked)", "{masked}", "***", "###", "~~~", "===", "░░░", "███", "•••", "∎∎∎"}

const longestName = 160

// publicName returns name with only what a reference is made of.
func publicName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && isAlnum(byte(r)) || strings.ContainsRune("._-/:#?=@", r) {
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), longestName)]
}

// chooseMarks gives every secret its mark. values are the texts that must not
// turn up in the output.
func chooseMarks(a *automaton, values [][]byte) {
	fallback := ""
	for _, m := range anonymous {
		if harmless(a, m, values) {
			fallback = m
			break
		}
	}
	if fallback == "" {
		fallback = unusedMark(values)
	}
	for i := range a.secrets {
		mark := "[masked:" + a.secrets[i].name + "]"
		if !harmless(a, mark, values) {
			mark = fallback
		}
		a.secrets[i].mark = []byte(mark)
	}
}

// harmless says that mark neither holds a pattern nor is a part of a value nor
// can complete one together with what stands beside it.
func harmless(a *automaton, mark string, values [][]byte) bool {
	var s scanner
	s.adopt(a)
	s.buf = []byte(mark)
	s.scan()
	if len(s.hits) > 0 {
		return false
	}
	m := []byte(mark)
	for _, v := range values {
		if bytes.Contains(v, m) {
			return false
		}
		for n := 1; n < min(len(m), len(v)); n++ {
			if bytes.HasPrefix(v, m[len(m)-n:]) || bytes.HasSuffix(v, m[:n]) {
				return false
			}
		}
	}
	return true
}

// unusedMark repeats the first printable character, from the box-drawing block on,
// that no value holds.
func unusedMark(values [][]byte) string {
	for r := rune(0x2500); ; r++ {
		c := []byte(string(r))
		used := false
		for _, v := range values {
			used = used || bytes.Contains(v, c)
		}
		if !used {
			return strings.Repeat(string(r), 3)
		}
	}
}
