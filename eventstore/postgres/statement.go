package postgres

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// The append statement for many appends: arrays hold one element per append (a),
// event (e), text (t) and row (r). Each part waits for the one
// before by counting its rows, which fixes the order of locks. What the first
// part refuses takes no position and writes nothing.
const appendHeads = `
WITH a AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::timestamptz[], $5::bytea[], $6::bytea[], $7::bool[],
        $8::bytea[], $9::int[], $10::uuid[], $11::uuid[], $12::bytea[], $13::text[], $14::text[], $15::text[], $16::text[],
        $17::text[], $18::text[], $19::text[]) WITH ORDINALITY
    AS i(stream, expected, n, now, prev_hash, hash, closes, state, state_version, first_id, command_id, command_digest,
        actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, ord)
), ok AS (
    INSERT INTO stream_heads AS h (stream, version, base_version, time, state_version, closed, hash, state)
    SELECT a.stream, a.expected + a.n, a.expected, a.now, a.state_version, a.closes, a.hash, a.state
    FROM a
    LEFT JOIN LATERAL (SELECT x.version, x.closed, x.hash, x.time FROM stream_heads x WHERE x.stream = a.stream LIMIT 1) x ON true
    LEFT JOIN LATERAL (SELECT true AS done FROM events d WHERE d.event_id = a.first_id LIMIT 1) d ON true
    WHERE d.done IS NULL
      AND CASE WHEN x.version IS NULL THEN a.expected = 0
          ELSE x.version = a.expected AND NOT x.closed AND x.hash = a.prev_hash AND a.now >= x.time END
      AND greatest(clock_timestamp(), x.time) - a.now BETWEEN '-5s' AND '5s'
    ORDER BY a.ord
    ON CONFLICT (stream) DO UPDATE SET version = excluded.version, base_version = excluded.base_version,
        time = excluded.time, state_version = excluded.state_version, closed = excluded.closed,
        hash = excluded.hash, state = excluded.state
    WHERE h.version = excluded.base_version AND NOT h.closed
      AND greatest(clock_timestamp(), h.time) - excluded.time BETWEEN '-5s' AND '5s'
    RETURNING h.stream
), won AS MATERIALIZED (
    SELECT a.ord, a.stream, a.expected, a.now, a.command_id, a.command_digest, a.actor_kind, a.actor_id, a.actor_role, a.actor_auth,
        a.operation_id, a.plan_node_id, a.traceparent
    FROM a JOIN ok ON ok.stream = a.stream
), ev AS (
    INSERT INTO events (position, version, time, event_id, command_id, cause, schema, stream, type, command_digest,
        actor_kind, actor_id, actor_role, actor_auth, operation_id, plan_node_id, traceparent, prev_hash, hash, payload)
    SELECT nextval('event_position'), s.expected + s.step + 1, s.now, s.event_id, s.command_id, s.cause, s.schema, s.stream,
        s.type, s.command_digest, s.actor_kind, s.actor_id, s.actor_role, s.actor_auth, s.operation_id, s.plan_node_id,
        s.traceparent, s.prev, s.own, s.payload
    FROM (
        SELECT won.*, e.* FROM unnest($20::int[], $21::int[], $22::uuid[], $23::uuid[], $24::int[], $25::text[],
            $26::bytea[], $27::bytea[], $28::bytea[]) AS e(ai, step, event_id, cause, schema, type, prev, own, payload)
        JOIN won ON won.ord = e.ai
        ORDER BY e.ai, e.step
    ) s
    RETURNING stream, version, position
)`

// firstFreeParam is the number of the first parameter after appendHeads.
const firstFreeParam = 29

const appendTexts = `, tx AS (
    INSERT INTO event_texts (digest, salt, bytes)
    SELECT t.digest, t.salt, t.bytes FROM unnest($%d::int[], $%d::bytea[], $%d::bytea[], $%d::bytea[]) AS t(ai, digest, salt, bytes)
    JOIN won ON won.ord = t.ai
    WHERE (SELECT count(*) FROM ev) >= 0
    ORDER BY t.digest
    ON CONFLICT (digest) DO NOTHING
    RETURNING 1
)`

// shape says which parts an append statement has.
type shape struct {
	texts   bool
	upserts []int // places of tables
	deletes []int
}

// sqlOf returns the append statement of a shape, made once.
func (s *Store) sqlOf(sh shape) string {
	key := fmt.Sprint(sh)
	if sql, ok := s.shapes.Load(key); ok {
		return sql.(string)
	}
	var b strings.Builder
	b.WriteString(appendHeads)
	param, before, checks := firstFreeParam, "ev", ""
	if sh.texts {
		fmt.Fprintf(&b, appendTexts, param, param+1, param+2, param+3)
		param, before = param+4, "tx"
	}
	for _, i := range sh.deletes {
		before = writeDelete(&b, i, s.tables[i], param, before)
		param += 2
	}
	for _, i := range sh.upserts {
		before = writeUpsert(&b, i, s.tables[i], param, before)
		checks += fmt.Sprintf("\n  AND ((SELECT count(*) FROM r%d) = (SELECT count(*) FROM u%d) OR event_store_refuse_row('%s'))",
			i, i, strings.ReplaceAll(s.tables[i].Name, "'", "''"))
		param += 2
	}
	fmt.Fprintf(&b, `
SELECT stream, version, position FROM ev
WHERE (SELECT count(*) FROM %s) >= 0%s`, before, checks)
	sql, _ := s.shapes.LoadOrStore(key, b.String())
	return sql.(string)
}

// writeUpsert writes the rows r<i> of the streams that moved on and the insert
// u<i>, which leaves a row of another stream alone; the statement's end compares
// their counts.
func writeUpsert(b *strings.Builder, i int, t eventstore.Table, param int, before string) string {
	columns, values, sets := upsertLists(t)
	fmt.Fprintf(b, `, r%[1]d AS MATERIALIZED (
    SELECT won.stream, %[2]s FROM unnest($%[3]d::int[], $%[4]d::text[]) AS r(ai, doc)
    JOIN won ON won.ord = r.ai
    CROSS JOIN LATERAL jsonb_populate_record(NULL::%[5]s, r.doc::jsonb) p
), u%[1]d AS (
    INSERT INTO %[5]s AS t (stream, %[6]s)
    SELECT stream, %[6]s FROM r%[1]d
    WHERE (SELECT count(*) FROM %[7]s) >= 0
    ORDER BY %[8]s
    ON CONFLICT (%[8]s) DO UPDATE SET %[9]s
    WHERE t.stream = excluded.stream
    RETURNING 1
)`, i, values, param, param+1, quote(t.Name), columns, before, keyList(t), sets)
	return fmt.Sprintf("u%d", i)
}

// writeDelete finds the rows by key first and deletes them by place, so that no
// plan can choose to read the whole table.
func writeDelete(b *strings.Builder, i int, t eventstore.Table, param int, before string) string {
	fmt.Fprintf(b, `, d%[1]d AS (
    DELETE FROM %[2]s t WHERE t.ctid = ANY (ARRAY(
        SELECT f.ctid FROM unnest($%[3]d::int[], $%[4]d::text[]) AS r(ai, doc)
        JOIN won ON won.ord = r.ai
        CROSS JOIN LATERAL jsonb_populate_record(NULL::%[2]s, r.doc::jsonb) p
        CROSS JOIN LATERAL (SELECT x.ctid FROM %[2]s x WHERE %[5]s AND x.stream = won.stream LIMIT 1) f))
      AND (SELECT count(*) FROM %[6]s) >= 0
    RETURNING 1
)`, i, quote(t.Name), param, param+1, keyConditions(t), before)
	return fmt.Sprintf("d%d", i)
}

// lastPerKey checks the tables of an append's changes and keeps the last change
// of every key: one statement can touch a row only once.
func (s *Store) lastPerKey(changes []eventstore.Change) ([]eventstore.Change, error) {
	perTable := make(map[string]int, 4)
	for _, c := range changes {
		if _, ok := s.index[c.Table]; !ok {
			return nil, fmt.Errorf("%w: no inline table %q; name it to Open", eventstore.ErrInvalid, c.Table)
		}
		perTable[c.Table]++
	}
	if len(perTable) == len(changes) {
		return changes, nil
	}
	seen := make(map[string]bool, len(changes))
	out := make([]eventstore.Change, 0, len(changes))
	for i := len(changes) - 1; i >= 0; i-- {
		c := changes[i]
		if perTable[c.Table] > 1 {
			key, err := rowKey(s.tables[s.index[c.Table]], c.Row)
			if err != nil {
				return nil, err
			}
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		out = append(out, c)
	}
	return out, nil
}

func rowKey(t eventstore.Table, row json.RawMessage) (string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(row, &members); err != nil {
		return "", fmt.Errorf("%w: a row of %s: %w", eventstore.ErrInvalid, t.Name, err)
	}
	key := t.Name
	for _, k := range t.Key {
		v, ok := members[k]
		if !ok {
			return "", fmt.Errorf("%w: a row of %s lacks the key member %q", eventstore.ErrInvalid, t.Name, k)
		}
		key += "\x00" + string(v)
	}
	return key, nil
}
