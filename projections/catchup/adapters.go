package catchup

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// checkpoints is the OffsetsAdapter over the table of that name: the consumer
// group is the reader's name. Watermill takes offset 0 for "nothing was acked";
// seq begins at 1, so no event is lost by that.
type checkpoints struct{}

var _ wsql.OffsetsAdapter = checkpoints{}

// AckMessageQuery moves the checkpoint to the row; never back. The generation is
// the feed's present one: it grows when the database came from elsewhere, and seq
// goes on.
func (checkpoints) AckMessageQuery(_ string, row wsql.Row, group string) wsql.Query {
	return wsql.Query{Query: `UPDATE checkpoints SET generation = $2, seq = $3, updated_at = clock_timestamp() WHERE name = $1 AND (generation, seq) < ($2, $3)`,
		Args: []any{group, row.ExtraData[generationKey], row.Offset}}
}

// ConsumedMessageQuery is none: what the handler writes is its own.
func (checkpoints) ConsumedMessageQuery(string, wsql.Row, string, []byte) wsql.Query {
	return wsql.Query{}
}

// NextOffsetQuery locks the group's row until the page is committed. Another
// replica that works on it is no reason to wait in a transaction: then there is
// no row, and so no message.
func (checkpoints) NextOffsetQuery(_, group string) wsql.Query {
	return wsql.Query{Query: `SELECT seq FROM checkpoints WHERE name = $1 FOR UPDATE SKIP LOCKED`, Args: []any{group}}
}

// SchemaInitializingQueries are none: the table comes with a migration.
func (checkpoints) SchemaInitializingQueries(string) []wsql.Query { return nil }

// BeforeSubscribingQueries puts a new reader before the first event.
func (checkpoints) BeforeSubscribingQueries(_, group string) []wsql.Query {
	return []wsql.Query{{Query: `INSERT INTO checkpoints (name, generation, seq, updated_at) VALUES ($1, 0, 0, clock_timestamp()) ON CONFLICT (name) DO NOTHING`,
		Args: []any{group}}}
}

// feedSchema is the SchemaAdapter over feed and events, for one subscriber at a time.
type feedSchema struct {
	types   []string // known, at the schema that is written now, and not wanted
	schemas []int
	page    int   // rows of the feed that one query reads at most
	batch   int   // of them, how many it hands on to be applied at most
	barrier int64 // seq of an event that could not be applied: no page has others before it
	more    bool  // the last query left something for the next
	last    int64 // the last seq that it read; 0 for none
}

// newFeedSchema leaves out what the release knows and the projection does not want.
func newFeedSchema(wants map[string]bool, page, batch int) *feedSchema {
	s := &feedSchema{page: page, batch: batch}
	for _, name := range domain.EventTypes() {
		if !wants[name] {
			s.types, s.schemas = append(s.types, name), append(s.schemas, domain.EventSchema(name))
		}
	}
	return s
}

var errAppendOnly = errors.New("the feed is written by appends and the sequencer only")

// InsertQuery is always an error.
func (*feedSchema) InsertQuery(string, message.Messages) (wsql.Query, error) {
	return wsql.Query{}, errAppendOnly
}

// SelectQuery reads the next page of the feed. Most of it nobody wants; such rows
// are not handed on, but for the page's last one: acknowledging it moves the
// checkpoint over all that were left out before it. Left out is only what this
// release knows by type and schema; any other is handed on, and stops a
// projection that cannot read it. Rows come in the order of seq, so a page that
// breaks off is acknowledged only as far as it came.
//
// What is read does not grow with the backlog, whatever the statistics of the
// tables: the page is a range of feed's primary key, and LATERAL with OFFSET 0
// keeps the join a look-up by position for each of its rows.
func (s *feedSchema) SelectQuery(topic, group string, offsets wsql.OffsetsAdapter) wsql.Query {
	s.more, s.last = false, 0
	next := offsets.NextOffsetQuery(topic, group)
	n := len(next.Args)
	arg := func(i int) string { return "$" + strconv.Itoa(n+i) }
	return wsql.Query{
		Query: `WITH o AS MATERIALIZED (` + next.Query + `),
page AS MATERIALIZED (
	SELECT f.seq, f.position FROM feed f
	WHERE f.seq > (SELECT o.seq FROM o)
	  AND f.seq < (SELECT CASE WHEN o.seq + 1 < ` + arg(2) + `::bigint THEN ` + arg(2) + `::bigint ELSE 9223372036854775807 END FROM o)
	ORDER BY f.seq LIMIT ` + arg(1) + `::bigint),
looked AS MATERIALIZED (
	SELECT p.seq, e.*, count(*) FILTER (WHERE e.unwanted IS NOT TRUE) OVER (ORDER BY p.seq) AS nth
	FROM page p LEFT JOIN LATERAL (
		SELECT v.event_id, v.stream, v.version, v.type, v.schema, v.time, v.payload,
		       (v.type, v.schema) IN (SELECT u.type, u.schema FROM unnest(` + arg(3) + `::text[], ` + arg(4) + `::int[]) AS u (type, schema)) AS unwanted
		FROM events v WHERE v.position = p.position OFFSET 0) e ON true),
ends AS MATERIALIZED (
	SELECT coalesce(min(seq) FILTER (WHERE nth = ` + arg(5) + `::bigint), max(seq)) AS last,
	       count(*) = ` + arg(1) + `::bigint OR max(seq) + 1 = ` + arg(2) + `::bigint OR max(nth) >= ` + arg(5) + `::bigint AS more
	FROM looked)
SELECT q.generation, l.seq, ends.last, ends.more, l.event_id, l.stream, l.version, l.type, l.schema, l.time, l.unwanted,
       CASE WHEN l.unwanted THEN NULL ELSE l.payload END
FROM looked l CROSS JOIN ends CROSS JOIN sequencer q
WHERE l.seq <= ends.last AND (l.unwanted IS NOT TRUE OR l.seq = ends.last)
ORDER BY l.seq`,
		Args: append(next.Args, s.page, s.barrier, s.types, s.schemas, s.batch),
	}
}

// Keys of a message's metadata.
const (
	generationKey = "generation"
	seqKey        = "seq"
	streamKey     = "stream"
	versionKey    = "version"
	typeKey       = "type"
	schemaKey     = "schema"
	timeKey       = "time"
	markerKey     = "marker" // nobody wants the event; it only moves the checkpoint
)

// UnmarshalMessage makes a message of a row. Its UUID is the event's id, its
// payload the event's.
func (s *feedSchema) UnmarshalMessage(row wsql.Scanner) (wsql.Row, error) {
	var (
		c            eventstore.Cursor
		id           uuid.NullUUID
		stream, name sql.NullString
		version      sql.NullInt64
		schema       sql.NullInt32
		at           sql.NullTime
		unwanted     sql.NullBool
		payload      []byte
		last         int64
		more         bool
	)
	if err := row.Scan(&c.Generation, &c.Seq, &last, &more, &id, &stream, &version, &name, &schema, &at, &unwanted, &payload); err != nil {
		return wsql.Row{}, fmt.Errorf("read a row of the feed: %w", err)
	}
	if !id.Valid {
		return wsql.Row{}, fmt.Errorf("the feed's place %s names an event that does not exist; run execution-plane verify", c)
	}
	s.more, s.last = more && c.Seq == last, c.Seq
	m := message.NewMessage(id.UUID.String(), payload)
	for k, v := range map[string]string{
		generationKey: strconv.FormatInt(c.Generation, 10), seqKey: strconv.FormatInt(c.Seq, 10), streamKey: stream.String,
		versionKey: strconv.FormatInt(version.Int64, 10), typeKey: name.String, schemaKey: strconv.Itoa(int(schema.Int32)),
		timeKey: eventstore.FormatTime(at.Time),
	} {
		m.Metadata.Set(k, v)
	}
	if unwanted.Bool {
		m.Metadata.Set(markerKey, "true")
	}
	return wsql.Row{Offset: c.Seq, UUID: id.UUID[:], Payload: payload, Msg: m, ExtraData: map[string]any{generationKey: c.Generation}}, nil
}

// SchemaInitializingQueries are none: the tables come with migrations.
func (*feedSchema) SchemaInitializingQueries(string) []wsql.Query { return nil }

// SubscribeIsolationLevel is enough for a range behind a locked checkpoint, and
// knows no serialization failures.
func (*feedSchema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// eventOf reads back what UnmarshalMessage wrote.
func eventOf(m *message.Message) (e Event, marker bool, err error) {
	number := func(key string) int64 {
		v, perr := strconv.ParseInt(m.Metadata.Get(key), 10, 64)
		err = errors.Join(err, perr)
		return v
	}
	e = Event{Cursor: eventstore.Cursor{Generation: number(generationKey), Seq: number(seqKey)}, Stream: eventstore.StreamID(m.Metadata.Get(streamKey)),
		Version: number(versionKey), Type: m.Metadata.Get(typeKey), Schema: int(number(schemaKey))}
	var perr error
	if e.EventID, perr = uuid.Parse(m.UUID); perr != nil {
		err = errors.Join(err, perr)
	}
	if e.Time, perr = time.Parse(eventstore.TimeLayout, m.Metadata.Get(timeKey)); perr != nil {
		err = errors.Join(err, perr)
	}
	return e, m.Metadata.Get(markerKey) != "", err
}
