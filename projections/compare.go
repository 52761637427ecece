package projections

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Difference is a row that is not what the events say, or, with a Reason, a
// stream of which nobody can say what its rows should be.
type Difference struct {
	Table  string          `json:"table"` // "" where the stream as a whole cannot be folded
	Stream string          `json:"stream"`
	Want   json.RawMessage `json:"want,omitempty"` // null: the events know no such row
	Got    json.RawMessage `json:"got,omitempty"`  // null: the table lacks it
	Reason string          `json:"reason,omitempty"`
}

func (d Difference) String() string {
	switch {
	case d.Reason != "" && d.Table == "":
		return fmt.Sprintf("%s: its rows cannot be told: %s", d.Stream, d.Reason)
	case d.Reason != "":
		return fmt.Sprintf("%s: no row can hold what the events of %s say: %s: %s", d.Table, d.Stream, d.Reason, d.Want)
	case d.Got == nil:
		return fmt.Sprintf("%s: the row of %s is missing; the events say %s", d.Table, d.Stream, d.Want)
	case d.Want == nil:
		return fmt.Sprintf("%s: a row of %s that no event explains: %s", d.Table, d.Stream, d.Got)
	}
	return fmt.Sprintf("%s: the row of %s is %s; the events say %s", d.Table, d.Stream, d.Got, d.Want)
}

// Comparison compares tables with folds, page by page of a walk in the same
// snapshot. Each table is read once, in the order of streams, beside the events:
// no more than a page of it is held at a time.
type Comparison struct {
	s       Snapshot
	tables  []*tableRows
	skipped map[string]bool // streams of this page without a fold
}

// tableRows is a table on its way past.
type tableRows struct {
	eventstore.Table
	cursor   string
	ahead    []heldRow // read, and of a later page
	finished bool
	want     []wantedRow
}

// wantedRow is a row that the events of a stream give.
type wantedRow struct {
	stream string
	foldedRow
}

// heldRow is a row that a table has.
type heldRow struct {
	stream, spelling string
	place            string // its ctid; the snapshot keeps it
}

// row is a row of a stream, in the database's own spelling of JSON.
type row struct{ stream, text string }

// rowsAhead is how many rows are read at once.
const rowsAhead = 1000

// Compare begins a comparison of the rows of all streams behind after.
func (s Snapshot) Compare(ctx context.Context, tables []eventstore.Table, after eventstore.StreamID) (*Comparison, error) {
	c := &Comparison{s: s, skipped: map[string]bool{}}
	for _, t := range tables {
		r := &tableRows{Table: t, cursor: pgx.Identifier{"rows of " + t.Name}.Sanitize()}
		// A utility statement takes no parameters.
		sql := fmt.Sprintf(`DECLARE %s NO SCROLL CURSOR FOR SELECT x.ctid, x.* FROM %s x WHERE x.stream COLLATE "C" > '%s' ORDER BY x.stream COLLATE "C"`,
			r.cursor, pgx.Identifier{t.Name}.Sanitize(), strings.ReplaceAll(string(after), "'", "''"))
		if _, err := s.tx.Exec(ctx, sql); err != nil {
			return nil, readError(t.Name, err)
		}
		c.tables = append(c.tables, r)
	}
	return c, nil
}

// Add says what the rows of a stream of this page must be, and returns how many.
func (c *Comparison) Add(stream eventstore.StreamID, f *StreamFold) (rows int64) {
	f.Settle()
	for _, r := range f.told {
		for _, t := range c.tables {
			if t.Name == r.table {
				t.want = append(t.want, wantedRow{string(stream), r})
				rows++
				break
			}
		}
	}
	return rows
}

// Skip leaves the rows of a stream of this page alone.
func (c *Comparison) Skip(stream eventstore.StreamID) { c.skipped[string(stream)] = true }

// Page compares what was added with the tables' rows of the page. A changed row
// is two differences: what is missing and what nothing explains.
func (c *Comparison) Page(ctx context.Context, p Page) ([]Difference, error) {
	var out []Difference
	for _, t := range c.tables {
		got, err := c.fetch(ctx, t, p)
		if err != nil {
			return nil, err
		}
		ds, err := c.differences(ctx, t.Name, t.want, got)
		if err != nil {
			return nil, err
		}
		clear(t.want)
		t.want = t.want[:0]
		out = append(out, ds...)
	}
	clear(c.skipped)
	return out, nil
}

// differences compares a table's rows of the page. Those that are spelled alike are
// the same; about all others the database says how it spells them.
func (c *Comparison) differences(ctx context.Context, table string, want []wantedRow, got []heldRow) ([]Difference, error) {
	want, got = c.unlike(want, got)
	if len(want) == 0 && len(got) == 0 {
		return nil, nil
	}
	have, err := spelledOut(ctx, c.s.tx, table, got)
	if err != nil {
		return nil, err
	}
	texts := make([]row, len(want))
	for i, w := range want {
		texts[i] = row{w.stream, string(rowJSON(table, w.row))}
	}
	must, unfit, err := canonical(ctx, c.s.tx, table, texts)
	if err != nil {
		return nil, err
	}
	skipped := maps.Clone(c.skipped)
	for _, d := range unfit {
		skipped[d.Stream] = true
	}
	return append(unfit, differ(table, must, have, skipped)...), nil
}

// unlike leaves out the rows that are on both sides, and those of streams that are skipped.
func (c *Comparison) unlike(want []wantedRow, got []heldRow) ([]wantedRow, []heldRow) {
	type spelled struct{ stream, spelling string }
	unmatched := make(map[spelled]int, len(want))
	for _, w := range want {
		if w.spelling != "" {
			unmatched[spelled{w.stream, w.spelling}]++
		}
	}
	var others []heldRow
	for _, g := range got {
		key := spelled{g.stream, g.spelling}
		switch {
		case unmatched[key] > 0:
			unmatched[key]--
		case !c.skipped[g.stream]:
			others = append(others, g)
		}
	}
	var missing []wantedRow
	for _, w := range want {
		key := spelled{w.stream, w.spelling}
		if w.spelling == "" || unmatched[key] > 0 {
			unmatched[key]--
			missing = append(missing, w)
		}
	}
	return missing, others
}

// spelledOut returns rows of a table as the database spells them.
func spelledOut(ctx context.Context, tx pgx.Tx, table string, rows []heldRow) ([]row, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	places := make([]string, len(rows))
	for i, r := range rows {
		places[i] = r.place
	}
	got, err := tx.Query(ctx, fmt.Sprintf(`SELECT x.ctid::text, (to_jsonb(x) - 'stream')::text FROM %s x WHERE x.ctid = ANY($1::text[]::tid[])`,
		pgx.Identifier{table}.Sanitize()), places)
	if err != nil {
		return nil, readError(table, err)
	}
	texts := make(map[string]string, len(rows))
	var place, text string
	if _, err := pgx.ForEachRow(got, []any{&place, &text}, func() error { texts[place] = text; return nil }); err != nil {
		return nil, readError(table, err)
	}
	out := make([]row, len(rows))
	for i, r := range rows {
		text, ok := texts[r.place]
		if !ok {
			return nil, readError(table, fmt.Errorf("the row at %s is gone within the snapshot", r.place))
		}
		out[i] = row{r.stream, text}
	}
	return out, nil
}

func differ(table string, want, got []row, skipped map[string]bool) []Difference {
	var out []Difference
	unmatched := make(map[row]int, len(want))
	for _, w := range want {
		unmatched[w]++
	}
	for _, g := range got {
		switch {
		case unmatched[g] > 0:
			unmatched[g]--
		case !skipped[g.stream]:
			out = append(out, Difference{Table: table, Stream: g.stream, Got: json.RawMessage(g.text)})
		}
	}
	for _, w := range want {
		if unmatched[w] > 0 && !skipped[w.stream] {
			unmatched[w]--
			out = append(out, Difference{Table: table, Stream: w.stream, Want: json.RawMessage(w.text)})
		}
	}
	return out
}

// fetch returns a table's rows of the page.
func (c *Comparison) fetch(ctx context.Context, t *tableRows, p Page) ([]heldRow, error) {
	for !t.finished && (len(t.ahead) == 0 || p.holds(eventstore.StreamID(t.ahead[len(t.ahead)-1].stream))) {
		// Past pgx, which asks for text where a statement is not prepared.
		rows := c.s.tx.Conn().PgConn().ExecParams(ctx, fmt.Sprintf("FETCH %d FROM %s", rowsAhead, t.cursor), nil, nil, nil, []int16{pgx.BinaryFormatCode})
		more, err := collectHeld(rows, t.Columns)
		if err != nil {
			return nil, readError(t.Name, err)
		}
		t.ahead, t.finished = append(t.ahead, more...), len(more) < rowsAhead
	}
	n := 0
	for n < len(t.ahead) && p.holds(eventstore.StreamID(t.ahead[n].stream)) {
		n++
	}
	got := t.ahead[:n:n]
	t.ahead = slices.Clone(t.ahead[n:])
	return got, nil
}

// collectHeld reads rows whose first column is their place.
func collectHeld(rows *pgconn.ResultReader, columns []string) (out []heldRow, err error) {
	var r reading
	var b []byte
	for rows.NextRow() {
		if r.fields == nil {
			if r = readingOf(rows.FieldDescriptions(), 1, columns); r.stream < 0 {
				_, err := rows.Close()
				return nil, errors.Join(errors.New("the table has no column stream"), err)
			}
		}
		values := rows.Values()
		h := heldRow{stream: string(values[r.stream]), place: placeOf(values[0])}
		var ok bool
		if b, ok = r.spell(b[:0], values); ok {
			h.spelling = string(b)
		}
		out = append(out, h)
	}
	_, err = rows.Close()
	return out, err
}

// placeOf writes a ctid as text: a block, and a line within it.
func placeOf(ctid []byte) string {
	b := strconv.AppendUint([]byte{'('}, uint64(binary.BigEndian.Uint32(ctid)), 10)
	b = strconv.AppendUint(append(b, ','), uint64(binary.BigEndian.Uint16(ctid[4:])), 10)
	return string(append(b, ')'))
}

func collectRows(rows pgx.Rows) ([]row, error) {
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (row, error) {
		var v row
		err := r.Scan(&v.stream, &v.text)
		return v, err
	})
}

// canonical spells rows as the table would: both sides go through the table's own
// row type, so that only meaning is compared. A row that the type refuses, which
// only a changed event gives, is told and left out.
func canonical(ctx context.Context, tx pgx.Tx, table string, rows []row) (out []row, unfit []Difference, err error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	streams, texts := make([]string, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		streams[i], texts[i] = r.stream, r.text
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
		got, err := tx.Query(ctx, strings.ReplaceAll(`SELECT w.stream, (to_jsonb(jsonb_populate_record(NULL::{t}, w.row::jsonb)) - 'stream')::text
			FROM unnest($1::text[], $2::text[]) AS w(stream, row)`, "{t}", pgx.Identifier{table}.Sanitize()), streams, texts)
		if err == nil {
			out, err = collectRows(got)
		}
		return err
	})
	switch {
	case err == nil:
		return out, nil, nil
	case !isDataError(err):
		return nil, nil, readError(table, err)
	case len(rows) == 1:
		return nil, []Difference{{Table: table, Stream: rows[0].stream, Want: wellFormed(rows[0].text), Reason: err.Error()}}, nil
	}
	half := len(rows) / 2
	first, unfit1, err := canonical(ctx, tx, table, rows[:half])
	if err != nil {
		return nil, nil, err
	}
	second, unfit2, err := canonical(ctx, tx, table, rows[half:])
	return append(first, second...), append(unfit1, unfit2...), err
}

func wellFormed(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return nil
}

// isDataError reports whether the database refused a value or a constraint: the
// fault of what was sent.
func isDataError(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23"))
}
