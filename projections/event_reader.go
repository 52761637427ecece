package projections

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// eventReader reads the rows of selectEvents. An event mostly says much that the
// one before it said; such texts are kept once.
type eventReader struct {
	known, binary bool
	before        eventstore.Event
	types         map[string]string
}

// eventColumns are the types of the columns of selectEvents.
var eventColumns = []uint32{
	pgtype.UUIDOID, pgtype.TextOID, pgtype.Int8OID, pgtype.TextOID, pgtype.Int4OID, pgtype.TimestamptzOID, pgtype.UUIDOID, pgtype.ByteaOID, pgtype.UUIDOID,
	pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID, pgtype.TextOID,
	pgtype.ByteaOID, pgtype.ByteaOID, pgtype.ByteaOID, pgtype.Int8OID,
}

func (r *eventReader) scan(rows pgx.Rows) (eventstore.Event, error) {
	if !r.known {
		r.known, r.binary = true, inBinary(rows.FieldDescriptions())
		r.types = map[string]string{}
	}
	if v := rows.RawValues(); r.binary && sized(v) {
		return r.read(v), nil
	}
	return scanEvent(rows)
}

func inBinary(fields []pgconn.FieldDescription) bool {
	for i, oid := range eventColumns {
		if i >= len(fields) || fields[i].DataTypeOID != oid || oid != pgtype.TextOID && fields[i].Format != pgx.BinaryFormatCode {
			return false // a text is the same in both forms
		}
	}
	return true
}

// sized reports whether no value is missing and those of a fixed size have it.
func sized(v [][]byte) bool {
	for i, oid := range eventColumns {
		size := len(v[i])
		switch oid {
		case pgtype.UUIDOID:
			size -= 16
		case pgtype.Int8OID, pgtype.TimestamptzOID:
			size -= 8
		case pgtype.Int4OID:
			size -= 4
		default:
			size = 0
		}
		if v[i] == nil || size != 0 {
			return false
		}
	}
	return true
}

func (r *eventReader) read(v [][]byte) eventstore.Event {
	was := &r.before
	integer := func(i int) int64 { return int64(binary.BigEndian.Uint64(v[i])) }
	e := eventstore.Event{
		Envelope: eventstore.Envelope{
			EventID: uuid.UUID(v[0]), Version: integer(2), Schema: int(int32(binary.BigEndian.Uint32(v[4]))),
			Stream: eventstore.StreamID(same(string(was.Stream), v[1])), Type: r.name(v[3]),
			Time:      time.UnixMicro(integer(5) + epoch2000).UTC(),
			CommandID: uuid.UUID(v[6]), Cause: uuid.UUID(v[8]),
			Actor:       eventstore.Actor{Kind: same(was.Actor.Kind, v[9]), ID: same(was.Actor.ID, v[10]), Role: same(was.Actor.Role, v[11]), Auth: same(was.Actor.Auth, v[12])},
			OperationID: same(was.OperationID, v[13]), PlanNodeID: same(was.PlanNodeID, v[14]), TraceParent: same(was.TraceParent, v[15]),
		},
		Payload: append(make([]byte, 0, len(v[16])), v[16]...), Position: integer(19),
	}
	copy(e.CommandDigest[:], v[7])
	copy(e.PrevHash[:], v[17])
	copy(e.Hash[:], v[18])
	r.before = e
	return e
}

func same(was string, is []byte) string {
	if was == string(is) {
		return was
	}
	return string(is)
}

// namesKept bounds the types that are remembered: anything may stand in the table.
const namesKept = 100

func (r *eventReader) name(b []byte) string {
	s, ok := r.types[string(b)]
	if !ok {
		s = string(b)
		if len(r.types) < namesKept {
			r.types[s] = s
		}
	}
	return s
}

func scanEvent(rows pgx.Rows) (eventstore.Event, error) {
	var e eventstore.Event
	var command, prev, hash []byte
	err := rows.Scan(&e.EventID, &e.Stream, &e.Version, &e.Type, &e.Schema, &e.Time, &e.CommandID, &command, &e.Cause,
		&e.Actor.Kind, &e.Actor.ID, &e.Actor.Role, &e.Actor.Auth, &e.OperationID, &e.PlanNodeID, &e.TraceParent, &e.Payload, &prev, &hash, &e.Position)
	copy(e.CommandDigest[:], command)
	copy(e.PrevHash[:], prev)
	copy(e.Hash[:], hash)
	e.Time = e.Time.UTC()
	return e, err
}
