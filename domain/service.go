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
	// PolicyOrdered says that an operator made this bundle the active one: a replica
	// that starts with an older one of its own does not undo it.
	PolicyOrdered bool `json:"policy_ordered,omitempty"`
}

// ServiceCommand is what happens to the service itself.
type ServiceCommand interface{ serviceCommand() }

// Resume moves resumed_at.
type Resume struct {
	Reason string
	Gap    time.Duration
	// SweptAt is when timers were last looked at, where the reason is that nobody did
	// for so long; zero where it is another. Whoever comes late, and finds that another
	// has swept or recorded the return meanwhile, has nothing to record.
	SweptAt time.Time
}

// ActivatePolicy says which bundle decides from now on.
type ActivatePolicy struct{ BundleDigest string }

// ReplacePolicy is an operator's word that another bundle decides from now on.
type ReplacePolicy struct {
	BundleDigest string
	ReasonText   TextRef
}

func (ReplacePolicy) serviceCommand() {}

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
func DecideService(s Service, c ServiceCommand, now time.Time) ([]Event, error) {
	switch c := c.(type) {
	case Resume:
		if !c.SweptAt.IsZero() && now.Sub(later(c.SweptAt, s.ResumedAt)) <= AwayAfter {
			return nil, nil
		}
		return []Event{ServiceResumed{Reason: c.Reason, GapSeconds: int(c.Gap / time.Second)}}, nil
	case ActivatePolicy:
		if s.PolicyDigest == c.BundleDigest {
			return nil, nil
		}
		return []Event{PolicyActivated(c)}, nil
	case ReplacePolicy:
		if s.PolicyDigest == c.BundleDigest && s.PolicyOrdered {
			return nil, nil
		}
		return []Event{PolicyReplaced{BundleDigest: c.BundleDigest, Before: s.PolicyDigest, ReasonText: c.ReasonText}}, nil
	case NoteRebuild:
		return []Event{ProjectionRebuilt(c)}, nil
	case NoteForwarderReplay:
		return []Event{c.Replayed}, nil
	}
	return nil, fmt.Errorf("service command %T is not known", c)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// EvolveService folds one event into the service's state.
func EvolveService(s Service, e Event, at time.Time) (Service, error) {
	switch e := e.(type) {
	case ServiceResumed:
		s.ResumedAt = at
	case PolicyActivated:
		s.PolicyDigest, s.PolicyOrdered = e.BundleDigest, false
	case PolicyReplaced:
		s.PolicyDigest, s.PolicyOrdered = e.BundleDigest, true
	case ProjectionRebuilt, ForwarderReplayed:
	default:
		return s, fmt.Errorf("event %s does not belong to the service", e.EventType())
	}
	return s, nil
}
