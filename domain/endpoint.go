package domain

import (
	"fmt"
	"regexp"
	"time"
)

// What stops an endpoint.
const (
	EndpointGone       = "gone"     // it answered 410
	EndpointByOperator = "operator" // somebody said so
)

// endpointName is what an operator may call an endpoint: it is part of a stream's
// name.
var endpointName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidEndpointName reports whether an endpoint may have this name: 1 to 63 lower
// case letters, digits and hyphens, no hyphen first.
func ValidEndpointName(name string) bool { return endpointName.MatchString(name) }

// Endpoint is the folded state of an endpoint's stream, endpoint/<name>. Where it
// is and how it is spoken to is configuration, not a fact of the ledger.
type Endpoint struct {
	Endpoint  string     `json:"endpoint"`
	Cause     string     `json:"cause,omitempty"`
	StoppedAt *time.Time `json:"stopped_at,omitempty"` // nil: callbacks are delivered
}

// EndpointCommand is what happens to an endpoint.
type EndpointCommand interface{ endpointCommand() }

// StopEndpoint lets its callbacks wait; again is no change.
type StopEndpoint struct{ Stopped EndpointStopped }

// ResumeEndpoint delivers to it again.
type ResumeEndpoint struct{ Resumed EndpointResumed }

func (StopEndpoint) endpointCommand()   {}
func (ResumeEndpoint) endpointCommand() {}

// DecideEndpoint answers a command on an endpoint.
func DecideEndpoint(n Endpoint, c EndpointCommand, _ time.Time) ([]Event, error) {
	switch c := c.(type) {
	case StopEndpoint:
		if n.StoppedAt != nil {
			return nil, nil
		}
		return []Event{c.Stopped}, nil
	case ResumeEndpoint:
		if n.StoppedAt == nil {
			return nil, nil
		}
		return []Event{c.Resumed}, nil
	}
	return nil, fmt.Errorf("endpoint command %T is not known", c)
}

// EvolveEndpoint folds one event into an endpoint's state.
func EvolveEndpoint(n Endpoint, e Event, at time.Time) (Endpoint, error) {
	switch e := e.(type) {
	case EndpointStopped:
		return Endpoint{Endpoint: e.Endpoint, Cause: e.Cause, StoppedAt: &at}, nil
	case EndpointResumed:
		return Endpoint{Endpoint: e.Endpoint}, nil
	}
	return n, fmt.Errorf("event %s does not belong to an endpoint", e.EventType())
}
