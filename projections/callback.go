package projections

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// callbackRow is the delivery of one result to one endpoint.
type callbackRow struct {
	CallbackID   domain.CallbackID `json:"callback_id"`
	Endpoint     string            `json:"endpoint"`
	AttemptID    domain.AttemptID  `json:"attempt_id"`
	State        string            `json:"state"`
	Round        int               `json:"round"`
	Tries        int               `json:"tries"`
	NextAt       time.Time         `json:"next_at"`
	ScheduledAt  time.Time         `json:"scheduled_at"`
	GiveUpAt     time.Time         `json:"give_up_at"`
	LastTryAt    *time.Time        `json:"last_try_at"`
	LastStatus   *int              `json:"last_status"`
	LastError    *string           `json:"last_error"`
	DeliveredAt  *time.Time        `json:"delivered_at"`
	ResultSHA256 string            `json:"result_sha256"`
	ResultBytes  int64             `json:"result_bytes"`
}

func callbackChanges(_, c domain.Callback, _ []domain.Event, _ time.Time) []change {
	return []change{set("callbacks", callbackRow{
		CallbackID: c.CallbackID, Endpoint: c.Endpoint, AttemptID: c.AttemptID, State: string(c.State), Round: c.Round, Tries: c.Tries,
		NextAt: c.NextAt, ScheduledAt: c.ScheduledAt, GiveUpAt: c.GiveUpAt, LastTryAt: c.LastTryAt, LastStatus: ptr(c.LastStatus),
		LastError: ptr(c.LastError), DeliveredAt: c.DeliveredAt, ResultSHA256: c.ResultSHA256, ResultBytes: c.ResultBytes,
	})}
}

// stoppedEndpointRow is an endpoint that nothing is delivered to.
type stoppedEndpointRow struct {
	Endpoint  string            `json:"endpoint"`
	Cause     string            `json:"cause"`
	AttemptID *domain.AttemptID `json:"attempt_id"`
	StoppedAt time.Time         `json:"stopped_at"`
}

type endpointKey struct {
	Endpoint string `json:"endpoint"`
}

func endpointChanges(_, _ domain.Endpoint, events []domain.Event, at time.Time) []change {
	var out []change
	for _, e := range events {
		switch e := e.(type) {
		case domain.EndpointStopped:
			out = append(out, set("stopped_endpoints", stoppedEndpointRow{e.Endpoint, e.Cause, e.AttemptID, at}))
		case domain.EndpointResumed:
			out = append(out, remove("stopped_endpoints", endpointKey{e.Endpoint}))
		}
	}
	return out
}

// Callback is the delivery of one result to one endpoint.
type Callback struct {
	CallbackID   uuid.UUID
	Endpoint     string
	AttemptID    uuid.UUID
	State        string // pending, delivered, exhausted
	Round        int
	Tries        int // of this round
	NextAt       time.Time
	ScheduledAt  time.Time
	GiveUpAt     time.Time
	LastTryAt    *time.Time
	LastStatus   *int    // nil: no try was answered
	LastError    *string // class
	DeliveredAt  *time.Time
	ResultSHA256 string `db:"result_sha256"`
	ResultBytes  int64
}

const callbackColumns = `SELECT callback_id, endpoint, attempt_id, state, round, tries, next_at, scheduled_at, give_up_at, last_try_at, last_status,
	last_error, delivered_at, result_sha256, result_bytes FROM callbacks`

// DueCallbacks lists the callbacks of an endpoint that are to be tried by now, by
// the database's clock, the longest due first; at most limit.
func (r *Reader) DueCallbacks(ctx context.Context, endpoint string, limit int) ([]Callback, error) {
	return many[Callback](ctx, r, "due callbacks of "+endpoint, callbackColumns+`
		WHERE endpoint = $1 AND state = 'pending' AND next_at <= clock_timestamp() ORDER BY next_at, callback_id LIMIT $2`, endpoint, limit)
}

// NextCallbackIn is how long it is until the next callback of an endpoint is due, by
// the database's clock, zero or less where one is; false where none waits.
func (r *Reader) NextCallbackIn(ctx context.Context, endpoint string) (time.Duration, bool, error) {
	v, err := many[struct{ Microseconds int64 }](ctx, r, "the next callback of "+endpoint, `
		SELECT (extract(epoch FROM next_at - clock_timestamp()) * 1000000)::bigint AS microseconds
		FROM callbacks WHERE endpoint = $1 AND state = 'pending' ORDER BY next_at LIMIT 1`, endpoint)
	if err != nil || len(v) == 0 {
		return 0, false, err
	}
	return time.Duration(v[0].Microseconds) * time.Microsecond, true, nil
}

// Callback returns one; kind not_found if there is none.
func (r *Reader) Callback(ctx context.Context, id domain.CallbackID) (Callback, error) {
	return one[Callback](ctx, r, "callback", domain.ErrUnknownCallback, callbackColumns+" WHERE callback_id = $1", id.UUID())
}

// CallbackFilter picks callbacks; zero members pick all. Before and BeforeID are
// when the last one of the page before was scheduled, and which it was.
type CallbackFilter struct {
	Endpoint, State string
	AttemptID       domain.AttemptID
	Before          time.Time
	BeforeID        uuid.UUID
	Limit           int
}

// Callbacks lists callbacks, the last scheduled first.
func (r *Reader) Callbacks(ctx context.Context, f CallbackFilter) ([]Callback, error) {
	sql, args := f.query()
	return many[Callback](ctx, r, "callbacks", sql, args...)
}

// query holds only the conditions that are asked for, and states as they stand in
// the indexes' own conditions: a plan for all filters at once would fit none, and
// read the whole table for a few rows.
func (f CallbackFilter) query() (sql string, args []any) {
	var where []string
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if f.Endpoint != "" {
		where = append(where, "endpoint = "+arg(f.Endpoint))
	}
	switch state := domain.CallbackState(f.State); state {
	case "":
	case domain.CallbackPending, domain.CallbackDone, domain.CallbackAbandoned:
		where = append(where, "state = '"+string(state)+"'")
	default:
		where = append(where, "state = "+arg(f.State))
	}
	if !f.AttemptID.IsZero() {
		where = append(where, "attempt_id = "+arg(f.AttemptID.UUID()))
	}
	if !f.Before.IsZero() {
		where = append(where, "(scheduled_at, callback_id) < ("+arg(f.Before)+", "+arg(f.BeforeID)+")")
	}
	sql = callbackColumns
	if len(where) > 0 {
		sql += " WHERE " + strings.Join(where, " AND ")
	}
	return sql + " ORDER BY scheduled_at DESC, callback_id DESC LIMIT " + arg(f.Limit), args
}

// StoppedEndpoint is an endpoint that nothing is delivered to.
type StoppedEndpoint struct {
	Endpoint  string
	Cause     string
	AttemptID *uuid.UUID // whose result was answered 410
	StoppedAt time.Time
}

// StoppedEndpoints lists them by name.
func (r *Reader) StoppedEndpoints(ctx context.Context) ([]StoppedEndpoint, error) {
	return many[StoppedEndpoint](ctx, r, "stopped endpoints", "SELECT endpoint, cause, attempt_id, stopped_at FROM stopped_endpoints ORDER BY endpoint")
}

// CallbackCount is how many callbacks of an endpoint wait or were given up.
type CallbackCount struct {
	Endpoint string
	State    string // pending, exhausted
	N        int64
	OldestAt time.Time // when the oldest of them was scheduled
}

// CallbackCounts counts them; endpoints that have none are left out. Those that were
// delivered are not counted: there is no end of them.
func (r *Reader) CallbackCounts(ctx context.Context) ([]CallbackCount, error) {
	return many[CallbackCount](ctx, r, "callbacks", `
		SELECT endpoint, state, count(*) AS n, min(scheduled_at) AS oldest_at FROM callbacks WHERE state <> 'delivered'
		GROUP BY endpoint, state ORDER BY endpoint, state DESC`)
}
