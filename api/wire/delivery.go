package wire

import (
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Callback is the delivery of one result to one endpoint.
type Callback struct {
	CallbackID   domain.CallbackID    `json:"callback_id"` // the header webhook-id of every try
	Endpoint     string               `json:"endpoint"`
	AttemptID    domain.AttemptID     `json:"attempt_id"`
	State        domain.CallbackState `json:"state"`
	Round        int                  `json:"round"`             // one more with every replay
	Tries        int                  `json:"tries"`             // of this round
	NextAt       *time.Time           `json:"next_at,omitempty"` // while pending
	ScheduledAt  time.Time            `json:"scheduled_at"`
	GiveUpAt     time.Time            `json:"give_up_at"`
	LastTryAt    *time.Time           `json:"last_try_at,omitempty"`
	LastStatus   int                  `json:"last_status,omitempty"` // HTTP; left out where there was no answer
	LastError    string               `json:"last_error,omitempty"`  // class of the failure
	DeliveredAt  *time.Time           `json:"delivered_at,omitempty"`
	ResultSHA256 string               `json:"result_sha256"`
	ResultBytes  int64                `json:"result_bytes"`
}

// CallbackHistory is a callback with what happened to it, the oldest first.
type CallbackHistory struct {
	Callback
	History []CallbackEvent `json:"history"`
	Omitted int             `json:"omitted,omitempty"` // older entries that are left out
}

// CallbackEvent is one event of a callback's stream.
type CallbackEvent struct {
	Event          string     `json:"event"` // scheduled, delivered, failed, exhausted, replayed
	At             time.Time  `json:"at"`
	Round          int        `json:"round"`
	Try            int        `json:"try,omitempty"`
	Status         int        `json:"status,omitempty"`
	ErrorClass     string     `json:"error_class,omitempty"`
	LatencyMS      *int64     `json:"latency_ms,omitempty"` // of a try
	ResponseBytes  int64      `json:"response_bytes,omitempty"`
	ResponseSHA256 string     `json:"response_sha256,omitempty"`
	NextAt         *time.Time `json:"next_at,omitempty"` // of a failed try
	GiveUpAt       *time.Time `json:"give_up_at,omitempty"`
	Reason         string     `json:"reason,omitempty"` // of a replay: the operator's words
	Actor          Actor      `json:"actor"`
}

// AttemptCallback is where the delivery of an attempt's result to one endpoint is.
type AttemptCallback struct {
	CallbackID domain.CallbackID    `json:"callback_id"`
	Endpoint   string               `json:"endpoint"`
	State      domain.CallbackState `json:"state"`
	Tries      int                  `json:"tries"` // of this round
	NextAt     *time.Time           `json:"next_at,omitempty"`
	LastError  string               `json:"last_error,omitempty"`
}

// ReplayRequest picks results by their place in the feed, or by the time at which
// their attempts ended; both may be given. One of after and since is required.
type ReplayRequest struct {
	Endpoint string                 `json:"endpoint"`
	After    string                 `json:"after,omitempty"`  // cursor, exclusive
	Until    string                 `json:"until,omitempty"`  // cursor, inclusive
	Since    *time.Time             `json:"since,omitempty"`  // ended at or after this moment
	To       *time.Time             `json:"to,omitempty"`     // ended before this moment
	States   []domain.CallbackState `json:"states,omitempty"` // only callbacks in one of these; empty: all, and results that have no callback yet
	Reason   string                 `json:"reason"`
	Limit    int                    `json:"limit,omitempty"` // results looked at; 1 to 500, default 200
}

// ReplayAnswer says what one request did. Next is the after of the next one; null at
// the end of the range.
type ReplayAnswer struct {
	Scheduled  int             `json:"scheduled"` // results that had no callback yet
	Replayed   int             `json:"replayed"`
	PassedOver int             `json:"passed_over"` // not for this endpoint, or in another state
	Refused    []ReplayRefusal `json:"refused"`
	Next       *string         `json:"next"`
}

// ReplayRefusal is a result that cannot be delivered again; the others are.
type ReplayRefusal struct {
	AttemptID domain.AttemptID `json:"attempt_id"`
	Code      string           `json:"code"`
	Detail    string           `json:"detail"`
}

// CallbackEndpoints are all of them. Trouble and Unknown are told by the replica that
// delivers.
type CallbackEndpoints struct {
	Items   []CallbackEndpoint `json:"items"`
	Trouble string             `json:"trouble,omitempty"` // why new results get no callbacks at present
	Unknown int64              `json:"unknown,omitempty"` // results that named an endpoint which is not configured, since that replica began to deliver
}

// CallbackEndpoint is where results are delivered, and how that goes.
type CallbackEndpoint struct {
	Name          string            `json:"name"`
	State         string            `json:"state"`            // delivering, stopped, not_configured; unknown where this replica has no configuration
	Origin        string            `json:"origin,omitempty"` // scheme, host and port
	JobTypes      []string          `json:"job_types,omitempty"`
	Environments  []string          `json:"environments,omitempty"`
	OnlyNamed     bool              `json:"only_named,omitempty"` // only jobs that name it
	WindowSeconds int64             `json:"window_seconds,omitempty"`
	Cause         string            `json:"cause,omitempty"` // of a stop: gone, operator
	StoppedAt     *time.Time        `json:"stopped_at,omitempty"`
	StoppedBy     *domain.AttemptID `json:"stopped_by,omitempty"` // whose result was answered 410
	Pending       int64             `json:"pending"`
	OldestPending *time.Time        `json:"oldest_pending,omitempty"` // when it was scheduled
	Exhausted     int64             `json:"exhausted"`
	// Sender is given by the replica that delivers.
	Sender *CallbackSender `json:"sender,omitempty"`
}

// CallbackSender is what the replica that delivers knows of an endpoint.
type CallbackSender struct {
	FailuresInRow int    `json:"failures_in_row"`
	LastError     string `json:"last_error,omitempty"`     // class of the last failure
	SecretProblem string `json:"secret_problem,omitempty"` // why its secret file is not read again
}

// Forwarder is how publishing to Kafka goes.
type Forwarder struct {
	Enabled    bool             `json:"enabled"` // at this replica
	Leader     *ForwarderLeader `json:"leader,omitempty"`
	Checkpoint string           `json:"checkpoint,omitempty"` // cursor: everything up to it was published or parked
	FeedEnd    string           `json:"feed_end"`
	LagEvents  int64            `json:"lag_events"`
	LagSeconds int64            `json:"lag_seconds"`       // age of the first event that is not published
	Trouble    string           `json:"trouble,omitempty"` // why it stands still, where this replica leads
	Topics     []string         `json:"topics"`
	Parked     []ParkedKey      `json:"parked"`
}

// ForwarderLeader is the replica that publishes.
type ForwarderLeader struct {
	Holder string    `json:"holder"` // one run of one replica
	Here   bool      `json:"here"`   // the replica that answers
	Until  time.Time `json:"until"`
}

// ParkedKey is a key of a topic whose events the broker refuses, from one event on.
type ParkedKey struct {
	Topic          string          `json:"topic"`
	Key            string          `json:"key"` // "*": the whole topic
	EventID        domain.EventID  `json:"event_id"`
	Stream         string          `json:"stream"`
	Version        int64           `json:"version"`
	Type           string          `json:"type"`
	Reason         string          `json:"reason"`
	Detail         string          `json:"detail,omitempty"`
	ParkedAt       time.Time       `json:"parked_at"`
	AgeSeconds     int64           `json:"age_seconds"`
	RetryRequested bool            `json:"retry_requested"`
	SkippedEvent   *domain.EventID `json:"skipped_event,omitempty"`
}

// RetryRequest asks for another try of a parked key.
type RetryRequest struct {
	Topic  string `json:"topic"`
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

// SkipRequest gives up publishing the event that the broker refuses.
type SkipRequest struct {
	Topic   string         `json:"topic"`
	Key     string         `json:"key"`
	EventID domain.EventID `json:"event_id"`
	Reason  string         `json:"reason"`
}

// EventSchema names the JSON Schema of an event's payload.
type EventSchema struct {
	Type   string `json:"type"`
	Schema int    `json:"schema"`
	URN    string `json:"urn"` // $id, and ce_dataschema of a Kafka record
}
