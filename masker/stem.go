package masker

import (
	"encoding/base32"
	"encoding/base64"
)

// A stem is the part of an encoding that depends on the value alone, whatever
// stands before and behind it: the symbols whose bits all lie within the value.
// There is one stem for each alignment.

// base64Stems returns the stems of v of at least shortest symbols.
func base64Stems(v []byte, shortest int) [][]byte {
	return stems(v, 6, 3, shortest, base64.StdEncoding.EncodeToString)
}

// base32Stems returns the stems of v of at least shortest symbols.
func base32Stems(v []byte, shortest int) [][]byte {
	return stems(v, 5, 5, shortest, base32.StdEncoding.EncodeToString)
}

// stems encodes v behind 0 to group-1 other bytes. A symbol has width bits, a
// group of bytes has a whole number of symbols.
func stems(v []byte, width, group, shortest int, encode func([]byte) string) [][]byte {
	var all [][]byte
	for before := range group {
		padded := make([]byte, before, before+len(v)+group)
		padded = append(padded, v...)
		first := (before*8 + width - 1) / width
		last := len(padded) * 8 / width
		encoded := encode(padded)
		clear(padded)
		if last-first >= shortest {
			all = append(all, []byte(encoded[first:last]))
		}
	}
	return all
}
