package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// SHA256 is a digest. Its text form is 64 lower-case hex digits.
type SHA256 [sha256.Size]byte

// Sum returns the digest of data.
func Sum(data []byte) SHA256 { return sha256.Sum256(data) }

// ParseSHA256 reads 64 lower-case hex digits. Upper case is refused: one digest
// has one spelling, because digests stand in object keys.
func ParseSHA256(text string) (SHA256, error) {
	var s SHA256
	if len(text) != hex.EncodedLen(len(s)) {
		return SHA256{}, fmt.Errorf("a SHA-256 is 64 hex digits, got %d bytes", len(text))
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return SHA256{}, fmt.Errorf("a SHA-256 is written in lower-case hex digits, got byte 0x%02x", c)
		}
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return SHA256{}, fmt.Errorf("reading a SHA-256: %w", err)
	}
	return s, nil
}

// String returns the 64 hex digits.
func (s SHA256) String() string { return hex.EncodeToString(s[:]) }

// IsZero reports whether no digest was set.
func (s SHA256) IsZero() bool { return s == SHA256{} }

// MarshalText writes the 64 hex digits.
func (s SHA256) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote and nothing else.
func (s *SHA256) UnmarshalText(text []byte) error {
	got, err := ParseSHA256(string(text))
	if err != nil {
		return err
	}
	*s = got
	return nil
}
