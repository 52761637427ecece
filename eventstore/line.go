package eventstore

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// line is an event as one line of JSON: in bundles and exports. PayloadBase64
// holds the exact bytes that were hashed; Payload shows them for reading.
type line struct {
	EventID       uuid.UUID       `json:"event_id"`
	Stream        StreamID        `json:"stream"`
	Version       int64           `json:"version"`
	Type          string          `json:"type"`
	Schema        int             `json:"schema"`
	Time          string          `json:"time"`
	CommandID     uuid.UUID       `json:"command_id"`
	CommandSHA256 string          `json:"command_sha256"`
	Cause         uuid.UUID       `json:"cause"`
	Actor         Actor           `json:"actor"`
	OperationID   string          `json:"operation_id"`
	PlanNodeID    string          `json:"plan_node_id"`
	TraceParent   string          `json:"traceparent"`
	Payload       json.RawMessage `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
	PrevHash      string          `json:"prev_hash"`
	Hash          string          `json:"hash"`
}

// AppendLine appends the event as one line of JSON, newline included. The same
// event always gives the same bytes.
func AppendLine(dst []byte, e Event) ([]byte, error) {
	l := line{
		EventID: e.EventID, Stream: e.Stream, Version: e.Version, Type: e.Type, Schema: e.Schema, Time: FormatTime(e.Time),
		CommandID: e.CommandID, CommandSHA256: hex.EncodeToString(e.CommandDigest[:]), Cause: e.Cause, Actor: e.Actor,
		OperationID: e.OperationID, PlanNodeID: e.PlanNodeID, TraceParent: e.TraceParent, Payload: e.Payload, PayloadBase64: e.Payload,
		PrevHash: hex.EncodeToString(e.PrevHash[:]), Hash: hex.EncodeToString(e.Hash[:]),
	}
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return dst, fmt.Errorf("write event %s version %d as JSON: %w", e.Stream, e.Version, err)
	}
	return buf.Bytes(), nil
}

// ParseLine reads what AppendLine wrote. It does not check the hash.
func ParseLine(b []byte) (Event, error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Event{}, fmt.Errorf("read an event's line: %w", err)
	}
	t, err := time.Parse(TimeLayout, l.Time)
	if err != nil {
		return Event{}, fmt.Errorf("read an event's time: %w", err)
	}
	e := Event{
		Envelope: Envelope{EventID: l.EventID, Stream: l.Stream, Version: l.Version, Type: l.Type, Schema: l.Schema, Time: t,
			CommandID: l.CommandID, Cause: l.Cause, Actor: l.Actor, OperationID: l.OperationID, PlanNodeID: l.PlanNodeID, TraceParent: l.TraceParent},
		Payload: l.PayloadBase64,
	}
	for _, x := range []struct {
		dst *Digest
		hex string
	}{{&e.CommandDigest, l.CommandSHA256}, {&e.PrevHash, l.PrevHash}, {&e.Hash, l.Hash}} {
		if n, err := hex.Decode(x.dst[:], []byte(x.hex)); err != nil || n != len(x.dst) {
			return Event{}, fmt.Errorf("read an event's line: %q is not a SHA-256", x.hex)
		}
	}
	return e, nil
}
