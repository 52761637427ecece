package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// arrays are the parameters of the append statement, one slice per column. A
// FlatArray is encoded without reflection.
type arrays struct {
	stream                                   []string
	expected                                 []int64
	n, stateVersion                          []int32
	now                                      []time.Time
	prev, hash, state, digest                pgtype.FlatArray[[]byte]
	closes                                   []bool
	firstID, commandID                       pgtype.FlatArray[uuidBytes]
	actorKind, actorID, actorRole, actorAuth []string
	operationID, planNodeID, traceParent     []string
	eventOf, step, schema                    []int32
	eventID, cause                           pgtype.FlatArray[uuidBytes]
	eventType                                []string
	eventPrev, eventHash, payload            pgtype.FlatArray[[]byte]
	textOf                                   []int32
	textDigest, textSalt, textBytes          pgtype.FlatArray[[]byte]
	upserts, deletes                         map[int]*rowArrays
}

// uuidBytes is a UUID that goes to the database as its bytes: uuid.UUID is a
// driver.Valuer, and would be written out as text and parsed again.
type uuidBytes [16]byte

// UUIDValue implements pgtype.UUIDValuer.
func (u uuidBytes) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: u, Valid: true}, nil }

type rowArrays struct {
	of  []int32
	doc []string
}

// statement returns the append statement for ops and its arguments.
func (s *Store) statement(ops []*op) (string, []any) {
	if len(ops) == 1 && !s.alwaysMany {
		return s.statementOne(ops[0])
	}
	c := &arrays{upserts: map[int]*rowArrays{}, deletes: map[int]*rowArrays{}}
	for i, o := range ops {
		c.add(int32(i)+1, o, s.index)
	}
	args := []any{
		c.stream, c.expected, c.n, c.now, c.prev, c.hash, c.closes, c.state, c.stateVersion, c.firstID, c.commandID, c.digest,
		c.actorKind, c.actorID, c.actorRole, c.actorAuth, c.operationID, c.planNodeID, c.traceParent,
		c.eventOf, c.step, c.eventID, c.cause, c.schema, c.eventType, c.eventPrev, c.eventHash, c.payload,
	}
	sh := shape{texts: len(c.textOf) > 0}
	if sh.texts {
		args = append(args, c.textOf, c.textDigest, c.textSalt, c.textBytes)
	}
	for i := range s.tables {
		if r := c.deletes[i]; r != nil {
			sh.deletes = append(sh.deletes, i)
			args = append(args, r.of, r.doc)
		}
	}
	for i := range s.tables {
		if r := c.upserts[i]; r != nil {
			sh.upserts = append(sh.upserts, i)
			args = append(args, r.of, r.doc)
		}
	}
	return s.sqlOf(sh), args
}

func (c *arrays) add(ord int32, o *op, index map[string]int) {
	a := &o.a
	c.stream = append(c.stream, string(a.Stream))
	c.expected = append(c.expected, a.Expected)
	c.n = append(c.n, int32(len(o.events)))
	c.now = append(c.now, o.events[0].Time)
	c.prev = append(c.prev, a.PrevHash[:])
	c.hash = append(c.hash, o.events[len(o.events)-1].Hash[:])
	c.closes = append(c.closes, a.Close)
	c.state = append(c.state, notNil(a.State))
	c.stateVersion = append(c.stateVersion, int32(a.StateVersion))
	c.firstID = append(c.firstID, uuidBytes(o.events[0].EventID))
	c.commandID = append(c.commandID, uuidBytes(a.CommandID))
	c.digest = append(c.digest, a.CommandDigest[:])
	c.actorKind = append(c.actorKind, a.Actor.Kind)
	c.actorID = append(c.actorID, a.Actor.ID)
	c.actorRole = append(c.actorRole, a.Actor.Role)
	c.actorAuth = append(c.actorAuth, a.Actor.Auth)
	c.operationID = append(c.operationID, a.OperationID)
	c.planNodeID = append(c.planNodeID, a.PlanNodeID)
	c.traceParent = append(c.traceParent, a.TraceParent)
	c.addEvents(ord, o)
	c.addTexts(ord, a)
	for _, r := range o.rows {
		of := c.upserts
		if r.Delete {
			of = c.deletes
		}
		i := index[r.Table]
		if of[i] == nil {
			of[i] = &rowArrays{}
		}
		of[i].of = append(of[i].of, ord)
		of[i].doc = append(of[i].doc, string(r.Row))
	}
}

func (c *arrays) addEvents(ord int32, o *op) {
	for i := range o.events {
		e := &o.events[i]
		c.eventOf = append(c.eventOf, ord)
		c.step = append(c.step, int32(i))
		c.eventID = append(c.eventID, uuidBytes(e.EventID))
		c.cause = append(c.cause, uuidBytes(e.Cause))
		c.schema = append(c.schema, int32(e.Schema))
		c.eventType = append(c.eventType, e.Type)
		c.eventPrev = append(c.eventPrev, e.PrevHash[:])
		c.eventHash = append(c.eventHash, e.Hash[:])
		c.payload = append(c.payload, e.Payload)
	}
}

func (c *arrays) addTexts(ord int32, a *eventstore.Append) {
	for i := range a.Texts {
		t := &a.Texts[i]
		c.textOf = append(c.textOf, ord)
		c.textDigest = append(c.textDigest, t.Digest[:])
		c.textSalt = append(c.textSalt, t.Salt[:])
		c.textBytes = append(c.textBytes, notNil(t.Bytes))
	}
}

// notNil keeps an empty value from being sent as NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
