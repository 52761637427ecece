package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Record is a Kafka record, whichever client read it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Value     []byte
	Headers   []Header
}

// Header is one header of a record, in the record's order.
type Header struct{ Key, Value string }

// Digest is a SHA-256.
type Digest [32]byte

// String gives lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives lower-case hex.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText gave.
func (d *Digest) UnmarshalText(b []byte) error {
	if n, err := hex.Decode(d[:], b[:min(len(b), 2*len(d))]); err != nil || n != len(d) || len(b) != 2*n {
		return fmt.Errorf("%q is no SHA-256 in hex", b)
	}
	return nil
}

// UUID is 16 bytes in network order.
type UUID [16]byte

// String gives the canonical form.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// MarshalText gives the canonical form.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Actor is who caused an event.
type Actor struct {
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"`
	Role string `json:"role,omitempty"`
	Auth string `json:"auth,omitempty"`
}

// Event is an event as one record tells it: every hashed field, and where it stands.
type Event struct {
	ID            UUID
	Stream        string
	Version       int64
	Type          string
	Schema        int64
	Time          string // as it is hashed: RFC 3339, UTC, six digits
	CommandID     UUID
	CommandDigest Digest
	Cause         UUID // zero: none
	Actor         Actor
	OperationID   string
	PlanNodeID    string
	TraceParent   string
	Payload       []byte // the bytes that were hashed
	PrevHash      Digest
	Hash          Digest // as the record says; see Sum

	PrevInTopic int64 // version of the stream's event before it in this topic; 0: none
	Position    int64
	Generation  int64 // of the feed
	Sequence    int64 // in the feed
	Replayed    bool  // history that somebody asked for again
}

// hashDomain stands before everything that is hashed.
const hashDomain = "execution-plane/event/v1\x00"

// Sum is the hash that the event's fields and payload give: docs/events.md, "The
// hash". It is Hash, unless something was changed.
func (e Event) Sum() Digest {
	b := append([]byte(hashDomain), e.PrevHash[:]...)
	field := func(f []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	field(e.ID[:])
	field([]byte(e.Stream))
	field([]byte(strconv.FormatInt(e.Version, 10)))
	field([]byte(e.Type))
	field([]byte(strconv.FormatInt(e.Schema, 10)))
	field([]byte(e.Time))
	field(e.CommandID[:])
	field(e.CommandDigest[:])
	field(e.Cause[:])
	for _, text := range []string{e.Actor.Kind, e.Actor.ID, e.Actor.Role, e.Actor.Auth, e.OperationID, e.PlanNodeID, e.TraceParent} {
		field([]byte(text))
	}
	field(e.Payload)
	return sha256.Sum256(b)
}

// KeyOf is the record key of a stream: what comes in order.
func KeyOf(stream string) string {
	kind, rest, ok := strings.Cut(stream, "/")
	if !ok {
		return stream
	}
	switch kind {
	case "attempt", "bundle", "runner", "token", "enrolment", "operation", "package", "endpoint":
		return rest
	case "callback", "access", "forwarder": // callback/<endpoint>/<attempt>, access/<day>/<replica>, forwarder/<topic>/<key>
		if _, last, ok := strings.Cut(rest, "/"); ok {
			return last
		}
		return rest
	}
	return stream
}
