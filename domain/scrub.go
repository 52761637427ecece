package domain

import (
	"fmt"
	"time"
)

// BundleStateVersion numbers the shape of Bundle as stored in a head.
const BundleStateVersion = 1

// What a stored object can be, that is not what the ledger says.
const (
	ScrubMissing     = "missing"
	ScrubWrongSize   = "wrong_size"
	ScrubWrongDigest = "wrong_digest"
	// ScrubUnreadable: the store serves other objects, and not this one.
	ScrubUnreadable = "unreadable"
)

// Bundle is the folded state of a bundle's own stream, which holds what was found
// when its objects were looked at. The attempt's stream is closed by then.
type Bundle struct {
	Open int `json:"open"` // objects that are wrong
}

// ScrubFailed is issued when a stored object is not what the ledger says.
type ScrubFailed struct {
	AttemptID   AttemptID `json:"attempt_id"`
	Key         string    `json:"key"`
	Problem     string    `json:"problem"`
	SHA256      string    `json:"sha256"`          // that the ledger names
	Bytes       *int64    `json:"bytes,omitempty"` // likewise; nil where it names none
	FoundSHA256 string    `json:"found_sha256,omitempty"`
	FoundBytes  *int64    `json:"found_bytes,omitempty"` // nil where nothing was read
}

// ScrubHealed is issued when such an object is right again.
type ScrubHealed struct {
	AttemptID AttemptID `json:"attempt_id"`
	Key       string    `json:"key"`
	Problem   string    `json:"problem"` // that is over
}

// EventType is the stored name.
func (ScrubFailed) EventType() string { return "artifact.scrub_failed" }

// EventType is the stored name.
func (ScrubHealed) EventType() string { return "artifact.scrub_healed" }

// NoteScrub says what a look at one object gave.
type NoteScrub struct {
	Found ScrubFailed // with no Problem, the object is right
	Known string      // the problem that stands for this object; "" for none
}

// DecideBundle answers a look at a stored object: an event where it changes what is
// known of it.
func DecideBundle(_ Bundle, c NoteScrub, _ time.Time) ([]Event, error) {
	switch {
	case c.Found.Problem == c.Known:
		return nil, nil
	case c.Found.Problem == "":
		return []Event{ScrubHealed{AttemptID: c.Found.AttemptID, Key: c.Found.Key, Problem: c.Known}}, nil
	case c.Known != "":
		// One problem gives way to another: the old one is over.
		return []Event{ScrubHealed{AttemptID: c.Found.AttemptID, Key: c.Found.Key, Problem: c.Known}, c.Found}, nil
	}
	return []Event{c.Found}, nil
}

// EvolveBundle folds one event into the state of a bundle's stream.
func EvolveBundle(b Bundle, e Event, _ time.Time) (Bundle, error) {
	switch e.(type) {
	case ScrubFailed:
		b.Open++
	case ScrubHealed:
		b.Open--
	default:
		return b, fmt.Errorf("event %s does not belong to a bundle", e.EventType())
	}
	return b, nil
}
