package masker

// Set is what has to be masked. It is immutable and safe for concurrent use.
type Set struct{}

var empty = &Set{}

// Empty returns the Set that masks nothing.
func Empty() *Set { return empty }

// Bytes returns b with every value of the set masked. The result may share
// memory with b, which the caller must not change while it uses the result.
func (s *Set) Bytes(b []byte) []byte { return b }

// String is Bytes for a string.
func (s *Set) String(text string) string { return text }
