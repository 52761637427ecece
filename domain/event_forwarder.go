package domain

// ForwarderParked is issued when a broker refused an event for good: the later
// events of the same key are passed over until somebody asks for them. Key is
// WholeTopic where it refuses all of a topic.
type ForwarderParked struct {
	Topic   string  `json:"topic"`
	Key     string  `json:"key"`
	EventID EventID `json:"event_id"`
	Stream  string  `json:"stream"`
	Version int64   `json:"version"`
	Type    string  `json:"type"`
	Reason  string  `json:"reason"` // too_large, denied, unknown_topic, invalid_record, refused
	Detail  string  `json:"detail,omitempty"`
}

// ForwarderRetryRequested is issued when an operator wants a parked key tried
// again.
type ForwarderRetryRequested struct {
	Topic      string  `json:"topic"`
	Key        string  `json:"key"`
	ReasonText TextRef `json:"reason_text"`
}

// ForwarderEventSkipped is issued when an operator gives up publishing one event.
type ForwarderEventSkipped struct {
	Topic      string  `json:"topic"`
	Key        string  `json:"key"`
	EventID    EventID `json:"event_id"`
	ReasonText TextRef `json:"reason_text"`
}

// ForwarderUnparked is issued when everything of a key was published that had been
// passed over.
type ForwarderUnparked struct {
	Topic     string `json:"topic"`
	Key       string `json:"key"`
	Published int64  `json:"published"`
}

// ForwarderReplayed is issued when somebody has history published again.
type ForwarderReplayed struct {
	From       string   `json:"from"`  // cursor of the feed, exclusive
	Until      string   `json:"until"` // inclusive
	Types      []string `json:"types,omitempty"`
	Topics     []string `json:"topics,omitempty"`
	ReasonText TextRef  `json:"reason_text"`
}

// The stored names.
func (ForwarderParked) EventType() string { return "execution.forwarder.parked" }

// EventType is the stored name.
func (ForwarderRetryRequested) EventType() string { return "execution.forwarder.retry_requested" }

// EventType is the stored name.
func (ForwarderEventSkipped) EventType() string { return "execution.forwarder.event_skipped" }

// EventType is the stored name.
func (ForwarderUnparked) EventType() string { return "execution.forwarder.unparked" }

// EventType is the stored name.
func (ForwarderReplayed) EventType() string { return "execution.forwarder.replayed" }
