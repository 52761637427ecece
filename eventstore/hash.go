package eventstore

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"
)

// hashDomain separates the chain's hashes from every other use of SHA-256.
const hashDomain = "execution-plane/event/v1\x00"

// TimeLayout is how an event's time is written where bytes count: in the hash
// and in every JSON answer. UTC, always six digits.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// HashEvent returns SHA-256(domain ‖ prev ‖ header ‖ payload). The header is
// every envelope field in the order of Envelope, each as a 4-byte big-endian
// length and its bytes; the payload follows in the same form. docs/events.md
// writes this down byte by byte, with test vectors.
func HashEvent(prev Digest, e Envelope, payload []byte) Digest {
	h := sha256.New()
	h.Write([]byte(hashDomain))
	h.Write(prev[:])
	field := func(b []byte) {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field(e.EventID[:])
	field([]byte(e.Stream))
	field(strconv.AppendInt(nil, e.Version, 10))
	field([]byte(e.Type))
	field(strconv.AppendInt(nil, int64(e.Schema), 10))
	field([]byte(FormatTime(e.Time)))
	field(e.CommandID[:])
	field(e.CommandDigest[:])
	field(e.Cause[:])
	field([]byte(e.Actor.Kind))
	field([]byte(e.Actor.ID))
	field([]byte(e.Actor.Role))
	field([]byte(e.Actor.Auth))
	field([]byte(e.OperationID))
	field([]byte(e.PlanNodeID))
	field([]byte(e.TraceParent))
	field(payload)
	var d Digest
	h.Sum(d[:0])
	return d
}

// FormatTime writes a time as events carry it.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }
