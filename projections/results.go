package projections

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// ResultsReader is the name of the reader of the feed that writes the table
// results, and of its checkpoint.
const ResultsReader = "results"

// resultsTable is a catch-up projection: no append writes it, so it is not in Tables.
const resultsTable = "results"

// StoredResult is an attempt's result, fixed once: the bytes are the same for ever.
type StoredResult struct {
	Seq         int64            // of the attempt's last event in the feed
	Generation  int64            // of the feed as it is now, as in every cursor that is given now
	AttemptID   domain.AttemptID `db:"-"`
	JobType     string
	Environment string
	CallbackRef string // "" where the job names none
	SHA256      string // of Body, in hex
	Body        []byte // the ExecutionResult as JSON
	EndedAt     time.Time
}

// Cursor is the place of the attempt's last event in the feed.
func (r StoredResult) Cursor() eventstore.Cursor {
	return eventstore.Cursor{Generation: r.Generation, Seq: r.Seq}
}

// resultsPageBytes is about how many bytes of bodies one page holds: a page may
// be short of its limit without being the last.
const resultsPageBytes = 8 << 20

const resultColumns = `r.seq, q.generation, r.attempt_id AS attempt, r.job_type, r.environment, coalesce(r.callback_ref, '') AS callback_ref, r.sha256, r.body, r.ended_at`

type resultRecord struct {
	StoredResult
	Attempt uuid.UUID
}

func (r resultRecord) stored() StoredResult {
	out := r.StoredResult
	out.AttemptID, out.EndedAt = domain.NewID[domain.AttemptID](r.Attempt), r.EndedAt.UTC()
	return out
}

// ResultsAfter returns results behind a place in the feed, in feed order: at most
// limit, and no more than some megabytes at a time, but always one if there is
// any. Rows are written by one reader in feed order, so what is behind a result
// that was seen never appears before it.
func (r *Reader) ResultsAfter(ctx context.Context, seq int64, limit int) ([]StoredResult, error) {
	return r.ResultsBetween(ctx, seq, math.MaxInt64, limit)
}

// ResultsBetween is ResultsAfter up to and with untilSeq.
func (r *Reader) ResultsBetween(ctx context.Context, fromSeq, untilSeq int64, limit int) ([]StoredResult, error) {
	rows, err := many[resultRecord](ctx, r, "results", `
		SELECT `+resultColumns+`
		FROM (SELECT seq, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
		      FROM (SELECT seq, body FROM results WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3) l) p
		JOIN results r ON r.seq = p.seq CROSS JOIN sequencer q
		WHERE p.before < $4 ORDER BY r.seq`, fromSeq, untilSeq, limit, resultsPageBytes)
	if err != nil {
		return nil, err
	}
	out := make([]StoredResult, len(rows))
	for i, row := range rows {
		out[i] = row.stored()
	}
	return out, nil
}

// StoredResult returns an attempt's result; false where the attempt has not
// ended, or has ended so lately that its row is not written yet.
func (r *Reader) StoredResult(ctx context.Context, id domain.AttemptID) (StoredResult, bool, error) {
	rows, err := many[resultRecord](ctx, r, "the result of "+id.String(),
		`SELECT `+resultColumns+` FROM results r CROSS JOIN sequencer q WHERE r.attempt_id = $1`, id.UUID())
	if err != nil || len(rows) == 0 {
		return StoredResult{}, false, err
	}
	return rows[0].stored(), true, nil
}

// resultSkew is more than two replicas' clocks differ by and an append takes: so
// far may the order of the feed and that of ended_at be apart.
const resultSkew = 30 * time.Second

// SeqAt returns the lowest seq of the results of attempts that ended at t or
// later; false if there is none. Feed order is not exactly the order of time:
// behind it stand a few results that ended up to some seconds before t.
func (r *Reader) SeqAt(ctx context.Context, t time.Time) (seq int64, ok bool, err error) {
	first, err := many[struct{ EndedAt time.Time }](ctx, r, "results by time", `
		SELECT ended_at FROM results WHERE ended_at >= $1 ORDER BY ended_at LIMIT 1`, t)
	if err != nil || len(first) == 0 {
		return 0, false, err
	}
	// Without OFFSET 0 the lowest seq would be looked for from the first row of the
	// table on. The bounds are given, so that both ends of the range are known.
	at := first[0].EndedAt
	v, err := one[struct{ Seq *int64 }](ctx, r, "results by time", nil, `
		SELECT min(seq) AS seq FROM (SELECT seq FROM results WHERE ended_at BETWEEN $1 AND $2 OFFSET 0) r`, at, at.Add(resultSkew))
	if err != nil || v.Seq == nil {
		return 0, false, err
	}
	return *v.Seq, true, nil
}

// resultTerminal are the types of the last events of attempts.
var resultTerminal = map[string]bool{
	domain.Succeeded{}.EventType(): true, domain.Failed{}.EventType(): true,
	domain.Cancelled{}.EventType(): true, domain.TimedOut{}.EventType(): true,
}

// ResultEnds are the types of events at which an attempt's result is fixed.
func ResultEnds() []string {
	out := make([]string, 0, len(resultTerminal))
	for name := range resultTerminal {
		out = append(out, name)
	}
	return out
}

// resultSkips are the types that come in great numbers and say nothing about the
// result. All others are read, whatever a fold makes of them.
var resultSkips = []string{domain.Heartbeat{}.EventType(), domain.Progressed{}.EventType(), domain.LogStored{}.EventType()}

// resultRow is what the table must hold for an attempt, but for its place.
type resultRow struct {
	attempt                           domain.AttemptID
	jobType, environment, callbackRef string
	body                              []byte
	sha256                            string
	endedAt                           time.Time
}

// foldResult makes an attempt's row of its stream.
func foldResult(facts []domain.Fact) (resultRow, error) {
	result, err := domain.ResultOf(facts)
	if err != nil {
		return resultRow{}, err
	}
	r := resultRow{attempt: result.AttemptID, endedAt: facts[len(facts)-1].At.UTC()}
	for _, f := range facts {
		if c, ok := f.Event.(domain.Created); ok {
			r.jobType, r.environment, r.callbackRef = c.JobType, c.Environment, c.Callback
		}
	}
	if r.body, err = json.Marshal(result); err != nil {
		return r, fmt.Errorf("encode the result: %w", err)
	}
	sum := sha256.Sum256(r.body)
	r.sha256 = hex.EncodeToString(sum[:])
	return r, nil
}

// WriteResult fixes the result of the attempt whose last event stands at the
// cursor, within the transaction of the reader of the feed, on its connection.
// A row that is there stays as it is.
func WriteResult(ctx context.Context, tx *sql.Tx, at eventstore.Cursor, stream eventstore.StreamID) error {
	id, err := domain.ParseID[domain.AttemptID](strings.TrimPrefix(string(stream), "attempt/"))
	if err != nil {
		return fmt.Errorf("the end of an attempt stands in stream %s: %w", stream, err)
	}
	facts, err := resultFacts(ctx, tx, stream)
	if err != nil {
		return err
	}
	r, err := foldResult(facts)
	if err != nil {
		return fmt.Errorf("fold the result of %s: %w", id, err)
	}
	if r.attempt != id {
		return fmt.Errorf("stream %s tells of the attempt %s; run execution-plane verify", stream, r.attempt)
	}
	_, err = tx.ExecContext(ctx, insertResultSQL, r.args(at)...)
	if err != nil {
		return readError("write of the result of "+id.String(), err)
	}
	return nil
}

const insertResultSQL = `
	INSERT INTO results (seq, generation, attempt_id, job_type, environment, callback_ref, sha256, body, ended_at)
	VALUES ($1, $2, $3, $4, $5, nullif($6::text, ''), $7, $8, $9) ON CONFLICT DO NOTHING`

func (r resultRow) args(at eventstore.Cursor) []any {
	return []any{at.Seq, at.Generation, r.attempt.UUID(), r.jobType, r.environment, r.callbackRef, r.sha256, r.body, r.endedAt}
}

// resultFacts reads what the result of a stream is made of.
func resultFacts(ctx context.Context, tx *sql.Tx, stream eventstore.StreamID) (facts []domain.Fact, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT type, schema, time, payload FROM events WHERE stream = $1 AND type <> ALL($2) ORDER BY version`, string(stream), resultSkips)
	if err != nil {
		return nil, readError("stream "+string(stream), err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var schema int
		var at time.Time
		var payload []byte
		if err := rows.Scan(&name, &schema, &at, &payload); err != nil {
			return nil, readError("stream "+string(stream), err)
		}
		d, err := domain.DecodeEvent(name, schema, payload)
		if err != nil {
			return nil, err
		}
		facts = append(facts, domain.Fact{Event: d, At: at.UTC()})
	}
	if err := rows.Err(); err != nil {
		return nil, readError("stream "+string(stream), err)
	}
	return facts, nil
}
