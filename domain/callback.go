package domain

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// CallbackStateVersion numbers the shape of Callback and Endpoint as stored in a
// head.
const CallbackStateVersion = 1

// CallbackState is where the delivery of one result to one endpoint is.
type CallbackState string

// The states of a callback.
const (
	CallbackPending   CallbackState = "pending"   // will be tried at NextAt
	CallbackDone      CallbackState = "delivered" // the endpoint took it
	CallbackAbandoned CallbackState = "exhausted" // its window is over; it can be replayed
)

// Why the tries of a round end without a delivery.
const ExhaustedWindow = "window_over"

// Callback is the folded state of one delivery, callback/<endpoint>/<attempt_id>.
type Callback struct {
	CallbackScheduled
	State       CallbackState `json:"state"`
	ScheduledAt time.Time     `json:"scheduled_at"`
	Round       int           `json:"round"` // 1, and one more with every replay
	Tries       int           `json:"tries"` // of this round
	NextAt      time.Time     `json:"next_at"`
	LastTryAt   *time.Time    `json:"last_try_at,omitempty"`
	LastStatus  int           `json:"last_status,omitempty"` // HTTP; 0: there was no answer
	LastError   string        `json:"last_error,omitempty"`
	DeliveredAt *time.Time    `json:"delivered_at,omitempty"`
}

// CallbackIDOf is the id of the delivery of an attempt's result to an endpoint,
// the same over every try and replay.
func CallbackIDOf(endpoint string, a AttemptID) CallbackID {
	return CallbackID{uuid.NewSHA1(a.uuid, []byte("callback/"+endpoint))}
}

// ResultDigest names the bytes of a result.
type ResultDigest struct {
	SHA256 string // hex
	Bytes  int64
}

// CallbackTry says what one try gave.
type CallbackTry struct {
	Round, Try     int // which it was; Try counts from 1 in its round
	Delivered      bool
	Gone           bool   // the endpoint said 410: it wants no more
	Status         int    // HTTP; 0 for no answer
	ErrorClass     string // stable code; empty for a delivery
	LatencyMS      int64
	ResponseBytes  int64
	ResponseSHA256 string        // hex, of what was read; empty where nothing was
	Delay          time.Duration // until the next try, if there is one
}

// CallbackCommand is what happens to a callback.
type CallbackCommand interface{ callbackCommand() }

// ScheduleCallback makes the delivery; again is no change.
type ScheduleCallback struct {
	Endpoint  string
	AttemptID AttemptID
	Result    ResultDigest
	Window    time.Duration // how long it is tried
}

// RecordTry says what a try gave.
type RecordTry struct{ Try CallbackTry }

// ReplayCallback begins another round now, whatever became of the last one.
type ReplayCallback struct {
	ReasonText TextRef
	Window     time.Duration
}

func (ScheduleCallback) callbackCommand() {}
func (RecordTry) callbackCommand()        {}
func (ReplayCallback) callbackCommand()   {}

// ErrUnknownCallback is returned for a delivery that was never scheduled.
var ErrUnknownCallback = &Error{Kind: KindNotFound, Code: "callback_unknown", Message: "there is no such callback", Next: "list them: execution-plane callbacks list"}

// DecideCallback answers a command on a callback. A try that is not the next one of
// the present round is no news: somebody else told of it, or a replay overtook it.
func DecideCallback(c Callback, cmd CallbackCommand, now time.Time) ([]Event, error) {
	if s, ok := cmd.(ScheduleCallback); ok {
		return scheduleCallback(c, s, now)
	}
	if c.AttemptID.IsZero() {
		return nil, ErrUnknownCallback
	}
	switch cmd := cmd.(type) {
	case RecordTry:
		return recordTry(c, cmd.Try, now), nil
	case ReplayCallback:
		return []Event{CallbackReplayed{Round: c.Round + 1, ReasonText: cmd.ReasonText, GiveUpAt: now.Add(cmd.Window)}}, nil
	}
	return nil, fmt.Errorf("callback command %T is not known", cmd)
}

func scheduleCallback(c Callback, s ScheduleCallback, now time.Time) ([]Event, error) {
	if !c.AttemptID.IsZero() {
		if c.ResultSHA256 != s.Result.SHA256 {
			return nil, &Error{Kind: KindConflict, Code: "result_changed", Message: "the result of " + s.AttemptID.String() + " is not the one that was scheduled",
				Next: "run: execution-plane projections check", Details: map[string]any{"stored_sha256": c.ResultSHA256, "sent_sha256": s.Result.SHA256}}
		}
		return nil, nil
	}
	return []Event{CallbackScheduled{Endpoint: s.Endpoint, AttemptID: s.AttemptID, CallbackID: CallbackIDOf(s.Endpoint, s.AttemptID),
		ResultSHA256: s.Result.SHA256, ResultBytes: s.Result.Bytes, GiveUpAt: now.Add(s.Window)}}, nil
}

func recordTry(c Callback, t CallbackTry, now time.Time) []Event {
	if c.State != CallbackPending || t.Round != c.Round || t.Try != c.Tries+1 {
		return nil
	}
	answer := CallbackAnswer{Round: t.Round, Try: t.Try, Status: t.Status, LatencyMS: t.LatencyMS, ResponseBytes: t.ResponseBytes, ResponseSHA256: t.ResponseSHA256}
	if t.Delivered {
		return []Event{CallbackDelivered{answer}}
	}
	failed := CallbackFailed{CallbackAnswer: answer, ErrorClass: t.ErrorClass}
	// A stopped endpoint is not tried, so its callbacks cannot run out meanwhile.
	if next := now.Add(t.Delay); t.Gone || !next.After(c.GiveUpAt) {
		failed.NextAt = &next
		return []Event{failed}
	}
	return []Event{failed, CallbackExhausted{Round: t.Round, Tries: t.Try, Reason: ExhaustedWindow}}
}

// EvolveCallback folds one event into a callback's state.
func EvolveCallback(c Callback, e Event, at time.Time) (Callback, error) {
	switch e := e.(type) {
	case CallbackScheduled:
		return Callback{CallbackScheduled: e, State: CallbackPending, ScheduledAt: at, Round: 1, NextAt: at}, nil
	case CallbackDelivered:
		c = c.answered(e.CallbackAnswer, at)
		c.State, c.LastError, c.DeliveredAt = CallbackDone, "", &at
	case CallbackFailed:
		c = c.answered(e.CallbackAnswer, at)
		c.LastError = e.ErrorClass
		if e.NextAt != nil {
			c.NextAt = *e.NextAt
		}
	case CallbackExhausted:
		c.State = CallbackAbandoned
	case CallbackReplayed:
		c.State, c.Round, c.Tries, c.NextAt, c.GiveUpAt = CallbackPending, e.Round, 0, at, e.GiveUpAt
	default:
		return c, fmt.Errorf("event %s does not belong to a callback", e.EventType())
	}
	return c, nil
}

func (c Callback) answered(a CallbackAnswer, at time.Time) Callback {
	c.Tries, c.LastStatus, c.LastTryAt = a.Try, a.Status, &at
	return c
}
