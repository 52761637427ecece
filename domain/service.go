package domain

import (
	"fmt"
	"time"
)

// ServiceStateVersion numbers the shape of Service as stored in a head.
const ServiceStateVersion = 1

// Service is the folded state of the service's own stream.
type Service struct {
	// ResumedAt is when the service last came back from being away: no lease is
	// dead before its term has passed since then.
	ResumedAt    time.Time `json:"resumed_at,omitzero"`
	PolicyDigest string    `json:"policy_digest,omitempty"`
}

// ServiceCommand is what happens to the service itself.
type ServiceCommand interface{ serviceCommand() }

// Resume moves resumed_at.
type Resume struct {
	Reason string
	Gap    time.Duration
}

// ActivatePolicy says which bundle decides from now on.
type ActivatePolicy struct{ BundleDigest string }

// NoteRebuild says that a rebuilt projection took the live one's place.
type NoteRebuild struct {
	Projection string
	Rows       int64
}

// NoteForwarderReplay says that history is published again.
type NoteForwarderReplay struct{ Replayed ForwarderReplayed }

func (NoteForwarderReplay) serviceCommand() {}

func (Resume) serviceCommand()         {}
func (ActivatePolicy) serviceCommand() {}
func (NoteRebuild) serviceCommand()    {}

// DecideService answers a command on the service.
func DecideService(s Service, c ServiceCommand, _ time.Time) ([]Event, error) {
	switch c := c.(type) {
	case Resume:
		return []Event{ServiceResumed{Reason: c.Reason, GapSeconds: int(c.Gap / time.Second)}}, nil
	case ActivatePolicy:
		if s.PolicyDigest == c.BundleDigest {
			return nil, nil
		}
		return []Event{PolicyActivated(c)}, nil
	case NoteRebuild:
		return []Event{ProjectionRebuilt(c)}, nil
	case NoteForwarderReplay:
		return []Event{c.Replayed}, nil
	}
	return nil, fmt.Errorf("service command %T is not known", c)
}

// EvolveService folds one event into the service's state.
func EvolveService(s Service, e Event, at time.Time) (Service, error) {
	switch e := e.(type) {
	case ServiceResumed:
		s.ResumedAt = at
	case PolicyActivated:
		s.PolicyDigest = e.BundleDigest
	case ProjectionRebuilt, ForwarderReplayed:
	default:
		return s, fmt.Errorf("event %s does not belong to the service", e.EventType())
	}
	return s, nil
}
