package eventstore

import (
	"crypto/sha1"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// StreamID names a stream: "attempt/<uuid>", "runner/<uuid>", "token/<id>",
// "enrolment/<id>", "service". At most 200 bytes of printable ASCII.
type StreamID string

// Digest is a SHA-256.
type Digest [32]byte

// Actor is who caused an event. Kind is a role of the API or "service"; Auth is
// how it was established: "token", "enrolment", "internal".
type Actor struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Role string `json:"role"`
	Auth string `json:"auth"`
}

// Envelope is everything about an event that is hashed besides its payload.
// Position and transaction id are not part of it: they belong to the copy of
// the ledger, not to the fact.
type Envelope struct {
	EventID       uuid.UUID // UUIDv5(CommandID, index within the command)
	Stream        StreamID
	Version       int64     // 1-based, dense
	Type          string    // registered name, such as "execution.attempt.created"
	Schema        int       // version of the payload's shape, from 1
	Time          time.Time // UTC, microseconds, by the database's clock
	CommandID     uuid.UUID
	CommandDigest Digest    // of the request that caused it; one id, one digest
	Cause         uuid.UUID // event that led to this one; uuid.Nil if none
	Actor         Actor
	OperationID   string // "" outside attempts
	PlanNodeID    string
	TraceParent   string // W3C trace context; "" if none
}

// Event is a stored event. Payload holds the exact bytes that were hashed.
type Event struct {
	Envelope
	Payload  []byte // JSON, at most MaxPayload bytes
	PrevHash Digest // zero for version 1
	Hash     Digest
	Position int64 // order of insertion; not the order of commit
}

// MaxPayload is the largest payload an append takes, in bytes. It stands well
// below a broker's usual message limit so that no event is too large to publish.
const MaxPayload = 64 << 10

// MaxState is the largest folded state a head may carry, in bytes.
const MaxState = 4 << 10

// NewEvent is an event on its way into the store: the store's caller says what
// happened, the append gives it id, version, time and hashes.
type NewEvent struct {
	Type    string
	Schema  int
	Payload []byte
	Cause   uuid.UUID
}

// EventID returns the id of a command's index-th event (from 0): UUIDv5 of the
// command's id and the index in decimal.
func EventID(command uuid.UUID, index int) uuid.UUID {
	b := make([]byte, 0, len(command)+20)
	sum := sha1.Sum(strconv.AppendInt(append(b, command[:]...), int64(index), 10))
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 5<<4
	id[8] = id[8]&0x3f | 0x80
	return id
}
