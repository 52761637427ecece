package domain

import "time"

// CallbackScheduled is issued when the result of an attempt is to be delivered to
// an endpoint.
type CallbackScheduled struct {
	Endpoint     string     `json:"endpoint"`
	AttemptID    AttemptID  `json:"attempt_id"`
	CallbackID   CallbackID `json:"callback_id"`
	ResultSHA256 string     `json:"result_sha256"`
	ResultBytes  int64      `json:"result_bytes"`
	GiveUpAt     time.Time  `json:"give_up_at"`
}

// CallbackAnswer is what a try gave. Nothing that the endpoint wrote is kept but
// its length and digest.
type CallbackAnswer struct {
	Round          int    `json:"round"`
	Try            int    `json:"try"`
	Status         int    `json:"status,omitempty"`
	LatencyMS      int64  `json:"latency_ms"`
	ResponseBytes  int64  `json:"response_bytes"`
	ResponseSHA256 string `json:"response_sha256,omitempty"`
}

// CallbackDelivered is issued when the endpoint took the result.
type CallbackDelivered struct {
	CallbackAnswer
}

// CallbackFailed is issued when a try did not deliver.
type CallbackFailed struct {
	CallbackAnswer
	ErrorClass string     `json:"error_class"`
	NextAt     *time.Time `json:"next_at,omitempty"` // nil: there is no other try
}

// CallbackExhausted is issued when a callback is given up.
type CallbackExhausted struct {
	Round  int    `json:"round"`
	Tries  int    `json:"tries"`
	Reason string `json:"reason"`
}

// CallbackReplayed is issued when somebody wants a result delivered again.
type CallbackReplayed struct {
	Round      int       `json:"round"` // that begins
	ReasonText TextRef   `json:"reason_text"`
	GiveUpAt   time.Time `json:"give_up_at"`
}

// EndpointStopped is issued when nothing is delivered to an endpoint any more.
type EndpointStopped struct {
	Endpoint   string     `json:"endpoint"`
	Cause      string     `json:"cause"`
	AttemptID  *AttemptID `json:"attempt_id,omitempty"` // whose result was answered 410
	ReasonText TextRef    `json:"reason_text,omitempty"`
}

// EndpointResumed is issued when an operator lets an endpoint have its callbacks
// again.
type EndpointResumed struct {
	Endpoint   string  `json:"endpoint"`
	ReasonText TextRef `json:"reason_text"`
}

// The stored names.
func (CallbackScheduled) EventType() string { return "execution.callback.scheduled" }

// EventType is the stored name.
func (CallbackDelivered) EventType() string { return "execution.callback.delivered" }

// EventType is the stored name.
func (CallbackFailed) EventType() string { return "execution.callback.failed" }

// EventType is the stored name.
func (CallbackExhausted) EventType() string { return "execution.callback.exhausted" }

// EventType is the stored name.
func (CallbackReplayed) EventType() string { return "execution.callback.replayed" }

// EventType is the stored name.
func (EndpointStopped) EventType() string { return "execution.callback.endpoint_stopped" }

// EventType is the stored name.
func (EndpointResumed) EventType() string { return "execution.callback.endpoint_resumed" }
