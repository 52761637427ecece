package domain

import (
	"fmt"
	"time"
)

// ParkedStateVersion numbers the shape of Parked as stored in a head.
const ParkedStateVersion = 1

// WholeTopic stands for every key of a topic.
const WholeTopic = "*"

// Parked is the folded state of a key whose events a broker refuses,
// forwarder/<topic>/<key>.
type Parked struct {
	ForwarderParked
	ParkedAt     *time.Time `json:"parked_at,omitempty"` // nil: its events are published
	Requested    bool       `json:"requested,omitempty"` // somebody wants it tried again
	SkippedEvent EventID    `json:"skipped_event,omitzero"`
}

// ParkedCommand is what happens to a key.
type ParkedCommand interface{ parkedCommand() }

// ParkKey says that the broker refused an event: the key's later ones are passed
// over.
type ParkKey struct{ Parked ForwarderParked }

// RetryKey asks for another try from the refused event on.
type RetryKey struct{ ReasonText TextRef }

// SkipEvent gives up one refused event and asks for the ones behind it.
type SkipEvent struct {
	EventID    EventID
	ReasonText TextRef
}

// UnparkKey says that all was published that had been passed over.
type UnparkKey struct{ Published int64 }

func (ParkKey) parkedCommand()   {}
func (RetryKey) parkedCommand()  {}
func (SkipEvent) parkedCommand() {}
func (UnparkKey) parkedCommand() {}

// ErrNotParked is returned for a key whose events are published.
var ErrNotParked = &Error{Kind: KindNotFound, Code: "not_parked", Message: "this key of this topic is not parked", Next: "see what is: execution-plane forwarder status"}

// DecideParked answers a command on a key.
func DecideParked(p Parked, c ParkedCommand, _ time.Time) ([]Event, error) {
	switch c := c.(type) {
	case ParkKey:
		// A refusal of an event that was given up meanwhile undoes nothing: those behind
		// it are still asked for.
		if p.ParkedAt != nil && p.EventID == c.Parked.EventID && (!p.Requested || p.SkippedEvent == c.Parked.EventID) {
			return nil, nil
		}
		return []Event{c.Parked}, nil
	case UnparkKey:
		if p.ParkedAt == nil {
			return nil, nil
		}
		return []Event{ForwarderUnparked{Topic: p.Topic, Key: p.Key, Published: c.Published}}, nil
	}
	if p.ParkedAt == nil {
		return nil, ErrNotParked
	}
	switch c := c.(type) {
	case RetryKey:
		if p.Requested {
			return nil, nil
		}
		return []Event{ForwarderRetryRequested{Topic: p.Topic, Key: p.Key, ReasonText: c.ReasonText}}, nil
	case SkipEvent:
		if c.EventID != p.EventID {
			return nil, &Error{Kind: KindConflict, Code: "other_event_refused", Message: "the broker refuses another event of this key now",
				Next: "look at what is refused and name that event: execution-plane forwarder status", Details: map[string]any{"event_id": p.EventID.String()}}
		}
		if p.SkippedEvent == c.EventID {
			return nil, nil
		}
		return []Event{ForwarderEventSkipped{Topic: p.Topic, Key: p.Key, EventID: c.EventID, ReasonText: c.ReasonText}}, nil
	}
	return nil, fmt.Errorf("command %T on a key is not known", c)
}

// EvolveParked folds one event into a key's state.
func EvolveParked(p Parked, e Event, at time.Time) (Parked, error) {
	switch e := e.(type) {
	case ForwarderParked:
		since := p.ParkedAt
		if since == nil {
			since = &at
		}
		return Parked{ForwarderParked: e, ParkedAt: since}, nil
	case ForwarderRetryRequested:
		p.Requested = true
	case ForwarderEventSkipped:
		p.Requested, p.SkippedEvent = true, e.EventID
	case ForwarderUnparked:
		return Parked{}, nil
	default:
		return p, fmt.Errorf("event %s does not belong to a key of the forwarder", e.EventType())
	}
	return p, nil
}
