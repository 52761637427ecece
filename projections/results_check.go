package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// resultsFold folds results on the way of a walk, beside whatever else is folded,
// and compares them with the table. The table follows the feed: up to its
// checkpoint, as the same snapshot sees it, every attempt that ended has its row,
// and beyond it none.
type resultsFold struct {
	s       Snapshot
	reached int64 // seq of the checkpoint
	stream  eventstore.StreamID
	facts   []domain.Fact
	last    eventstore.Event
	broken  error          // why the stream cannot be folded; it has no row then
	ended   []endedAttempt // in this page
}

// endedAttempt is an attempt whose stream was read to its last event.
type endedAttempt struct {
	stream   eventstore.StreamID
	id       uuid.UUID
	position int64 // of the last event
	want     resultRow
	broken   error
}

// foldResults begins a walk. Where the reader has never run, nothing is expected.
func (s Snapshot) foldResults(ctx context.Context) (*resultsFold, error) {
	w := &resultsFold{s: s}
	err := s.tx.QueryRow(ctx, "SELECT coalesce(max(seq), 0) FROM checkpoints WHERE name = $1", ResultsReader).Scan(&w.reached)
	if err != nil {
		return nil, readError("the checkpoint of "+ResultsReader, err)
	}
	return w, nil
}

// add takes the walk's next event, with what decoding it gave.
func (w *resultsFold) add(e eventstore.Event, d domain.Event, err error) {
	if e.Stream != w.stream {
		w.end()
		w.stream, w.facts, w.broken = e.Stream, nil, nil
	}
	w.last = e
	if !strings.HasPrefix(string(e.Stream), "attempt/") || w.broken != nil {
		return
	}
	if err != nil {
		w.broken = err
		return
	}
	switch d.(type) {
	case domain.Heartbeat, domain.Progressed, domain.LogStored: // as in resultSkips
	default:
		w.facts = append(w.facts, domain.Fact{Event: d, At: e.Time})
	}
}

// end folds the stream that is open, if it has ended.
func (w *resultsFold) end() {
	if w.stream == "" || !resultTerminal[w.last.Type] {
		return
	}
	id, err := domain.ParseID[domain.AttemptID](strings.TrimPrefix(string(w.stream), "attempt/"))
	if err != nil {
		return // no row can be of it
	}
	a := endedAttempt{stream: w.stream, id: id.UUID(), position: w.last.Position, broken: w.broken}
	if a.broken == nil {
		a.want, a.broken = foldResult(w.facts)
	}
	w.ended, w.stream, w.facts = append(w.ended, a), "", nil
}

// resultDifference is a row that is not what the stream gives.
type resultDifference struct {
	Difference
	seq  int64
	want *resultRow // nil: there should be none
	got  bool
}

// heldResult is a row as it stands, without its body.
type heldResult struct {
	Seq         int64
	AttemptID   uuid.UUID
	JobType     string
	Environment string
	CallbackRef string
	SHA256      string
	BodySHA256  string
	Bytes       int64
	EndedAt     time.Time
}

// shownResult is a row as a report shows it.
type shownResult struct {
	Seq         int64  `json:"seq"`
	SHA256      string `json:"sha256"` // of the body
	Said        string `json:"sha256_said,omitempty"`
	Bytes       int64  `json:"bytes"`
	JobType     string `json:"job_type"`
	Environment string `json:"environment"`
	CallbackRef string `json:"callback_ref,omitempty"`
	EndedAt     string `json:"ended_at"`
}

func (h heldResult) shown() shownResult {
	s := shownResult{Seq: h.Seq, SHA256: h.BodySHA256, Bytes: h.Bytes, JobType: h.JobType, Environment: h.Environment, CallbackRef: h.CallbackRef, EndedAt: eventstore.FormatTime(h.EndedAt)}
	if h.SHA256 != h.BodySHA256 {
		s.Said = h.SHA256
	}
	return s
}

func (r resultRow) shown(seq int64) shownResult {
	return shownResult{Seq: seq, SHA256: r.sha256, Bytes: int64(len(r.body)), JobType: r.jobType, Environment: r.environment, CallbackRef: r.callbackRef, EndedAt: eventstore.FormatTime(r.endedAt)}
}

// page compares the attempts that ended in a page; last says that the walk is over.
// rows is how many the events give.
func (w *resultsFold) page(ctx context.Context, last bool) (out []resultDifference, rows int64, err error) {
	if last {
		w.end()
	}
	ended := w.ended
	w.ended = nil
	if len(ended) > 0 {
		if out, rows, err = w.compare(ctx, ended); err != nil {
			return nil, 0, err
		}
	}
	if !last {
		return out, rows, nil
	}
	strangers, err := w.strangers(ctx)
	return append(out, strangers...), rows, err
}

func (w *resultsFold) compare(ctx context.Context, ended []endedAttempt) (out []resultDifference, rows int64, err error) {
	ids, positions := make([]uuid.UUID, len(ended)), make([]int64, len(ended))
	for i, a := range ended {
		ids[i], positions[i] = a.id, a.position
	}
	type place struct{ Position, Seq int64 }
	places, err := collect[place](ctx, w.s, "places in the feed", `SELECT position, seq FROM feed WHERE position = ANY($1)`, positions)
	if err != nil {
		return nil, 0, err
	}
	held, err := collect[heldResult](ctx, w.s, "results", heldResultSQL+`WHERE r.attempt_id = ANY($1)`, ids)
	if err != nil {
		return nil, 0, err
	}
	seqs, got := map[int64]int64{}, map[uuid.UUID]heldResult{}
	for _, p := range places {
		seqs[p.Position] = p.Seq
	}
	for _, h := range held {
		got[h.AttemptID] = h
	}
	for _, a := range ended {
		d := resultDifference{Difference: Difference{Table: resultsTable, Stream: string(a.stream)}, seq: seqs[a.position]}
		h, there := got[a.id]
		if d.got = there; there {
			d.Got = shownJSON(h.shown())
		}
		expected := d.seq > 0 && d.seq <= w.reached
		switch {
		case a.broken != nil && (expected || there):
			d.Reason = a.broken.Error()
		case expected:
			rows++
			d.want, d.Want = &a.want, shownJSON(a.want.shown(d.seq))
			if there && h.shown() == a.want.shown(d.seq) {
				continue
			}
		case !there:
			continue
		}
		out = append(out, d)
	}
	return out, rows, nil
}

const heldResultSQL = `
	SELECT r.seq, r.attempt_id, r.job_type, r.environment, coalesce(r.callback_ref, '') AS callback_ref, r.sha256,
	       encode(sha256(r.body), 'hex') AS body_sha256, octet_length(r.body)::bigint AS bytes, r.ended_at
	FROM results r `

// strangers are rows of attempts that have not ended, or that nobody knows.
func (w *resultsFold) strangers(ctx context.Context) (out []resultDifference, err error) {
	held, err := collect[heldResult](ctx, w.s, "results without an attempt", heldResultSQL+`
		WHERE (SELECT e.type FROM events e WHERE e.stream = 'attempt/' || r.attempt_id::text ORDER BY e.version DESC LIMIT 1) = ANY($1) IS NOT TRUE
		ORDER BY r.seq`, ResultEnds())
	for _, h := range held {
		out = append(out, resultDifference{Difference: Difference{Table: resultsTable, Stream: "attempt/" + h.AttemptID.String(), Got: shownJSON(h.shown())}, seq: h.Seq, got: true})
	}
	return out, err
}

func shownJSON(s shownResult) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("projections: a result's row is no JSON: %v", err)) // texts and numbers always are
	}
	return b
}

func collect[T any](ctx context.Context, s Snapshot, what, sql string, args ...any) ([]T, error) {
	rows, err := s.tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, readError(what, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, readError(what, err)
	}
	return out, nil
}
