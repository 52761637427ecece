package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// The append statement for one append does the same as the one for many, in the
// same order of locks, without what it takes to keep many apart: plain values
// instead of a set of arrays per column, and no joins. Most appends run alone,
// and arrays cost more than the rest of them.
const singleHead = `
WITH ok AS (
    INSERT INTO stream_heads AS h (stream, version, base_version, time, state_version, closed, hash, state)
    SELECT $1::text, $2::bigint + $3::int, $2::bigint, $4::timestamptz, $9::int, $7::bool, $6::bytea, $8::bytea
    FROM (SELECT) AS one
    LEFT JOIN LATERAL (SELECT x.version, x.closed, x.hash, x.time FROM stream_heads x WHERE x.stream = $1::text LIMIT 1) x ON true
    LEFT JOIN LATERAL (SELECT true AS done FROM events d WHERE d.event_id = $10::uuid LIMIT 1) d ON true
    WHERE d.done IS NULL
      AND CASE WHEN x.version IS NULL THEN $2::bigint = 0
          ELSE x.version = $2::bigint AND NOT x.closed AND x.hash = $5::bytea AND $4::timestamptz >= x.time END
      AND greatest(clock_timestamp(), x.time) - $4::timestamptz BETWEEN '-5s' AND '5s'
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, base_version = excluded.base_version,
        time = excluded.time, state_version = excluded.state_version, closed = excluded.closed,
        hash = excluded.hash, state = excluded.state
    WHERE h.version = excluded.base_version AND NOT h.closed
      AND greatest(clock_timestamp(), h.time) - excluded.time BETWEEN '-5s' AND '5s'
    RETURNING 1
), ev AS (
    INSERT INTO events (position, version, time, event_id, command_id, cause, schema, stream, type, command_digest,
        actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)`

const singleEvent = `
    SELECT nextval('event_position'), $2::bigint + 1, $4::timestamptz, $10::uuid, $11::uuid, $20::uuid, $21::int, $1::text, $22::text,
        $12::bytea, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text, $5::bytea, $6::bytea, $23::bytea
    FROM ok
    RETURNING version, position
)`

const singleEvents = `
    SELECT nextval('event_position'), $2::bigint + s.step + 1, $4::timestamptz, s.event_id, $11::uuid, s.cause, s.schema, $1::text, s.type,
        $12::bytea, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text, s.prev, s.own, s.payload
    FROM (
        SELECT e.* FROM ok CROSS JOIN unnest($20::int[], $21::uuid[], $22::uuid[], $23::int[], $24::text[],
            $25::bytea[], $26::bytea[], $27::bytea[]) AS e(step, event_id, cause, schema, type, prev, own, payload)
        ORDER BY e.step
    ) s
    RETURNING version, position
)`

const singleTexts = `, tx AS (
    INSERT INTO event_texts (digest, salt, bytes)
    SELECT t.digest, t.salt, t.bytes FROM ok CROSS JOIN unnest($%d::bytea[], $%d::bytea[], $%d::bytea[]) AS t(digest, salt, bytes)
    WHERE (SELECT count(*) FROM ev) >= 0
    ORDER BY t.digest
    ON CONFLICT (digest) DO NOTHING
    RETURNING 1
)`

// statementOne returns the append statement for one append and its arguments.
func (s *Store) statementOne(o *op) (string, []any) {
	a := &o.a
	first, last := &o.events[0], &o.events[len(o.events)-1]
	args := make([]any, 0, 40)
	args = append(args, string(a.Stream), a.Expected, int32(len(o.events)), first.Time, a.PrevHash[:], last.Hash[:], a.Close,
		notNil(a.State), int32(a.StateVersion), uuidBytes(first.EventID), uuidBytes(a.CommandID), a.CommandDigest[:],
		a.Actor.Kind, a.Actor.ID, a.Actor.Role, a.Actor.Auth, a.OperationID, a.PlanNodeID, a.TraceParent)
	if len(o.events) == 1 {
		args = append(args, uuidBytes(first.Cause), int32(first.Schema), first.Type, first.Payload)
	} else {
		c := &arrays{}
		c.addEvents(1, o)
		args = append(args, c.step, c.eventID, c.cause, c.schema, c.eventType, c.eventPrev, c.eventHash, c.payload)
	}
	if len(a.Texts) > 0 {
		c := &arrays{}
		c.addTexts(1, a)
		args = append(args, c.textDigest, c.textSalt, c.textBytes)
	}
	upserts, deletes := s.rowsOf(o)
	sh := singleShape{many: len(o.events) > 1, texts: len(a.Texts) > 0}
	for i := range s.tables {
		if docs := deletes[i]; docs != nil {
			sh.deletes = append(sh.deletes, tableRows{i, len(docs) > 1})
			args = append(args, docArgument(docs))
		}
	}
	for i := range s.tables {
		if docs := upserts[i]; docs != nil {
			sh.upserts = append(sh.upserts, tableRows{i, len(docs) > 1})
			args = append(args, docArgument(docs))
		}
	}
	return s.sqlOfOne(sh), args
}

func docArgument(docs []string) any {
	if len(docs) == 1 {
		return docs[0]
	}
	return docs
}

// rowsOf gives an append's rows by the place of their table.
func (s *Store) rowsOf(o *op) (upserts, deletes map[int][]string) {
	upserts, deletes = map[int][]string{}, map[int][]string{}
	for _, r := range o.rows {
		of := upserts
		if r.Delete {
			of = deletes
		}
		i := s.index[r.Table]
		of[i] = append(of[i], string(r.Row))
	}
	return upserts, deletes
}

// singleShape says which parts a statement for one append has.
type singleShape struct {
	many, texts      bool // events, texts
	deletes, upserts []tableRows
}

// tableRows names a table by its place, and whether it gets more than one row.
type tableRows struct {
	table int
	many  bool
}

// key is short and, unlike a struct with slices, comparable.
func (sh singleShape) key() string {
	b := make([]byte, 0, 32)
	b = strconv.AppendBool(append(b, "one "...), sh.many)
	b = strconv.AppendBool(b, sh.texts)
	for _, list := range [][]tableRows{sh.deletes, sh.upserts} {
		b = append(b, '/')
		for _, t := range list {
			b = strconv.AppendBool(strconv.AppendInt(b, int64(t.table), 10), t.many)
		}
	}
	return string(b)
}

// sqlOfOne returns the statement of a shape, made once.
func (s *Store) sqlOfOne(sh singleShape) string {
	key := sh.key()
	if sql, ok := s.shapes.Load(key); ok {
		return sql.(string)
	}
	var b strings.Builder
	b.WriteString(singleHead)
	param, before, checks := 24, "ev", ""
	if sh.many {
		b.WriteString(singleEvents)
		param = 28
	} else {
		b.WriteString(singleEvent)
	}
	if sh.texts {
		fmt.Fprintf(&b, singleTexts, param, param+1, param+2)
		param, before = param+3, "tx"
	}
	for _, t := range sh.deletes {
		before = writeDeleteOne(&b, t, s.tables[t.table], param, before)
		param++
	}
	for _, t := range sh.upserts {
		before = writeUpsertOne(&b, t, s.tables[t.table], param, before)
		checks += fmt.Sprintf("\n  AND ((SELECT count(*) FROM u%d) = %s OR event_store_refuse_row('%s'))",
			t.table, t.wanted(param), strings.ReplaceAll(s.tables[t.table].Name, "'", "''"))
		param++
	}
	fmt.Fprintf(&b, `
SELECT $1::text, version, position FROM ev
WHERE (SELECT count(*) FROM %s) >= 0%s`, before, checks)
	sql, _ := s.shapes.LoadOrStore(key, b.String())
	return sql.(string)
}

// source reads the rows of a table from their parameter.
func (t tableRows) source(name string, param int) string {
	if t.many {
		return fmt.Sprintf("unnest($%d::text[]) AS r(doc) CROSS JOIN LATERAL jsonb_populate_record(NULL::%s, r.doc::jsonb) p", param, name)
	}
	return fmt.Sprintf("jsonb_populate_record(NULL::%s, $%d::text::jsonb) p", name, param)
}

// wanted is how many rows must have been written: none where the append lost.
func (t tableRows) wanted(param int) string {
	if t.many {
		return fmt.Sprintf("(SELECT count(*) FROM ok) * cardinality($%d::text[])", param)
	}
	return "(SELECT count(*) FROM ok)"
}

func writeUpsertOne(b *strings.Builder, t tableRows, table eventstore.Table, param int, before string) string {
	columns, values, sets := upsertLists(table)
	order := ""
	if t.many {
		order = "\n    ORDER BY p." + strings.Join(quoted(table.Key), ", p.")
	}
	fmt.Fprintf(b, `, u%[1]d AS (
    INSERT INTO %[2]s AS t (stream, %[3]s)
    SELECT $1::text, %[4]s FROM ok CROSS JOIN %[5]s
    WHERE (SELECT count(*) FROM %[6]s) >= 0%[7]s
    ON CONFLICT (%[8]s) DO UPDATE SET %[9]s
    WHERE t.stream = excluded.stream
    RETURNING 1
)`, t.table, quote(table.Name), columns, values, t.source(quote(table.Name), param), before, order, keyList(table), sets)
	return fmt.Sprintf("u%d", t.table)
}

func writeDeleteOne(b *strings.Builder, t tableRows, table eventstore.Table, param int, before string) string {
	fmt.Fprintf(b, `, d%[1]d AS (
    DELETE FROM %[2]s t WHERE t.ctid = ANY (ARRAY(
        SELECT f.ctid FROM ok CROSS JOIN %[3]s
        CROSS JOIN LATERAL (SELECT x.ctid FROM %[2]s x WHERE %[4]s AND x.stream = $1::text LIMIT 1) f))
      AND (SELECT count(*) FROM %[5]s) >= 0
    RETURNING 1
)`, t.table, quote(table.Name), t.source(quote(table.Name), param), keyConditions(table), before)
	return fmt.Sprintf("d%d", t.table)
}

// upsertLists are the columns, their values and their updates of an upsert.
func upsertLists(t eventstore.Table) (columns, values, sets string) {
	var names, from, set []string
	for _, c := range t.Columns {
		names, from = append(names, quote(c)), append(from, "p."+quote(c))
		if !slices.Contains(t.Key, c) {
			set = append(set, quote(c)+" = excluded."+quote(c))
		}
	}
	if set == nil {
		set = []string{"stream = excluded.stream"}
	}
	return strings.Join(names, ", "), strings.Join(from, ", "), strings.Join(set, ", ")
}

// keyConditions compare a row x with a key p.
func keyConditions(t eventstore.Table) string {
	conditions := make([]string, len(t.Key))
	for i, k := range quoted(t.Key) {
		conditions[i] = fmt.Sprintf("x.%s = p.%s", k, k)
	}
	return strings.Join(conditions, " AND ")
}

func keyList(t eventstore.Table) string { return strings.Join(quoted(t.Key), ", ") }

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = quote(n)
	}
	return out
}
