package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Head is the tip of a stream. The zero Head stands for a stream that does not
// exist yet.
type Head struct {
	Version int64
	Hash    Digest
	Closed  bool // no further append is accepted, by the database too
	// State is the folded state after Version, written by whoever appended last.
	// A reader that does not know StateVersion ignores State and folds afresh.
	State        []byte
	StateVersion int
}

// Receipt says that a command took effect, from its first stored event.
type Receipt struct {
	Stream        StreamID
	EventID       uuid.UUID
	Version       int64
	Time          time.Time
	Hash          Digest
	CommandDigest Digest
}

// Loaded is what a command needs to decide.
type Loaded struct {
	Head Head
	// Now is the database's clock, never before the stream's last event.
	Now time.Time
	// Done is the receipt of this very command if it was already carried out, on
	// whichever stream; nil otherwise. The caller compares Stream and CommandDigest.
	Done *Receipt
}

// Append is one command's effect on one stream, stored whole or not at all.
type Append struct {
	Stream        StreamID
	Expected      int64  // the head's version as loaded; 0 creates the stream
	PrevHash      Digest // the head's hash as loaded
	Now           time.Time
	CommandID     uuid.UUID
	CommandDigest Digest
	Actor         Actor
	OperationID   string
	PlanNodeID    string
	TraceParent   string
	Events        []NewEvent // at least one
	State         []byte     // folded state after the last event; at most MaxState
	StateVersion  int
	Close         bool
	Rows          []Change
	Texts         []Text
	// Class orders work when there is more of it than the store takes at once:
	// completions, stops and reports go before submits.
	Class Class
}

// Class is an append's place in the queue; lower goes first.
type Class int

// The classes of an append.
const (
	ClassUrgent Class = iota // completions, stops, reports, leases
	ClassSubmit
)

// Change sets or deletes one row of an inline table in the same statement as
// the events. Row has a member for every column of the table, key included. Of
// several changes of one key in an append the last counts. A row whose key
// belongs to another stream is never touched: to set it is ErrRowTaken, to
// delete it does nothing.
type Change struct {
	Table  string
	Row    json.RawMessage
	Delete bool // Row needs only the key columns
}

// Table describes an inline table to a store. A row belongs to exactly one
// stream; every table has the text column "stream", filled by the store.
type Table struct {
	Name    string
	Key     []string // primary key columns
	Columns []string // all columns but "stream"
}

// Text is a free text or document that an event refers to by digest:
// Digest = SHA-256(Salt ‖ Bytes). It can be erased without breaking the chain.
type Text struct {
	Digest Digest
	Salt   [16]byte
	Bytes  []byte
}

// ErrErased is returned for a text that was erased on purpose.
var ErrErased = errors.New("eventstore: text was erased")

// ErrNotFound is returned for a stream, event or text that does not exist.
var ErrNotFound = errors.New("eventstore: not found")

// ErrTooLarge is returned for a payload over MaxPayload or a state over MaxState.
var ErrTooLarge = errors.New("eventstore: too large")

// ConflictError says that an append was refused and nothing of it was stored:
// the stream had moved on, was closed, or the clock the command was decided
// with is more than 5 s off. Load and decide again.
type ConflictError struct {
	Stream   StreamID
	Expected int64
	Actual   int64 // -1 if not known
	Closed   bool
	Reason   string // "version", "closed", "clock", "duplicate_command"
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("eventstore: append to %s refused (%s): expected version %d, it has %d",
		e.Stream, e.Reason, e.Expected, e.Actual)
}

// Store is the write side and the reads of single streams. All methods are safe
// for concurrent use. Errors that mean "the database cannot be reached or
// refused for its own reasons" satisfy errors.Is(err, ErrUnavailable).
type Store interface {
	// Load reads a stream's head, the clock, and whether command was done: one
	// round trip. A stream that does not exist is a zero Head, not an error.
	Load(ctx context.Context, stream StreamID, command uuid.UUID) (Loaded, error)

	// Append stores a's events, head, rows and texts in one statement, or none of
	// them and returns a *ConflictError. It returns the events as stored.
	Append(ctx context.Context, a Append) ([]Event, error)

	// ReadStream returns events with version > after, in order, at most limit.
	ReadStream(ctx context.Context, stream StreamID, after int64, limit int) ([]Event, error)

	// ReadText returns the text with this digest: ErrNotFound, ErrErased.
	ReadText(ctx context.Context, digest Digest) (Text, error)
}

// ErrUnavailable marks an error of the database rather than of the call.
var ErrUnavailable = errors.New("eventstore: database unavailable")

// Seal turns an append into the events that will be stored: ids, versions,
// times, hashes. Both stores call it, so they agree to the byte, and both refuse
// what it refuses: ErrInvalid, ErrTooLarge. Positions are left zero.
func Seal(a Append) ([]Event, error) {
	if err := validate(a); err != nil {
		return nil, err
	}
	out := make([]Event, len(a.Events))
	prev := a.PrevHash
	now := a.Now.UTC().Truncate(time.Microsecond)
	for i, n := range a.Events {
		env := Envelope{
			EventID: EventID(a.CommandID, i), Stream: a.Stream, Version: a.Expected + int64(i) + 1,
			Type: n.Type, Schema: n.Schema, Time: now,
			CommandID: a.CommandID, CommandDigest: a.CommandDigest, Cause: n.Cause, Actor: a.Actor,
			OperationID: a.OperationID, PlanNodeID: a.PlanNodeID, TraceParent: a.TraceParent,
		}
		h := HashEvent(prev, env, n.Payload)
		out[i] = Event{Envelope: env, Payload: n.Payload, PrevHash: prev, Hash: h}
		prev = h
	}
	return out, nil
}
