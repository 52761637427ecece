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
	// One buffer and one pass: most of an event fits on the stack.
	b := make([]byte, 0, 2048)
	b = append(append(b, hashDomain...), prev[:]...)
	b = appendField(b, e.EventID[:])
	b = appendField(b, e.Stream)
	var number [20]byte
	b = appendField(b, strconv.AppendInt(number[:0], e.Version, 10))
	b = appendField(b, e.Type)
	b = appendField(b, strconv.AppendInt(number[:0], int64(e.Schema), 10))
	var clock [40]byte
	b = appendField(b, e.Time.UTC().AppendFormat(clock[:0], TimeLayout))
	b = appendField(b, e.CommandID[:])
	b = appendField(b, e.CommandDigest[:])
	b = appendField(b, e.Cause[:])
	b = appendField(b, e.Actor.Kind)
	b = appendField(b, e.Actor.ID)
	b = appendField(b, e.Actor.Role)
	b = appendField(b, e.Actor.Auth)
	b = appendField(b, e.OperationID)
	b = appendField(b, e.PlanNodeID)
	b = appendField(b, e.TraceParent)
	b = appendField(b, payload)
	return sha256.Sum256(b)
}

func appendField[T []byte | string | StreamID](b []byte, field T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(field))), field...)
}

// FormatTime writes a time as events carry it.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }
