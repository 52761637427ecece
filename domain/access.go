package domain

import (
	"fmt"
	"time"
)

// AccessStateVersion numbers the shape of AccessLog as stored in a head.
const AccessStateVersion = 1

// AccessLog is the folded state of one stream of reads, access/<day>/<replica>. It
// holds nothing: whether a read was recorded this minute is asked by the command's
// id, which is derived from actor, object and minute.
type AccessLog struct{}

// NoteAccess records one read.
type NoteAccess struct {
	Access  Access
	Granted bool
}

// DecideAccess answers a read with its event.
func DecideAccess(_ AccessLog, c NoteAccess, _ time.Time) ([]Event, error) {
	if c.Granted {
		return []Event{AccessGranted{c.Access}}, nil
	}
	return []Event{AccessDenied{c.Access}}, nil
}

// EvolveAccess folds an event into the state.
func EvolveAccess(a AccessLog, e Event, _ time.Time) (AccessLog, error) {
	switch e.(type) {
	case AccessGranted, AccessDenied:
		return a, nil
	}
	return a, fmt.Errorf("event %s does not belong to an access log", e.EventType())
}
