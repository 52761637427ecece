package domain

import (
	"fmt"

	"github.com/google/uuid"
)

// ID is a UUID that cannot be confused with one of another kind. Its only text
// form is the canonical one: 36 characters, lower case, never nil.
type ID[K any] struct{ uuid uuid.UUID }

type (
	attemptKind   struct{}
	operationKind struct{}
	runnerKind    struct{}
	leaseKind     struct{}
	commandKind   struct{}
	artifactKind  struct{}
	evidenceKind  struct{}
	tokenKind     struct{}
	enrolmentKind struct{}
	callbackKind  struct{}
	eventKind     struct{}
)

// The kinds of id.
type (
	AttemptID   = ID[attemptKind]
	OperationID = ID[operationKind]
	RunnerID    = ID[runnerKind]
	LeaseID     = ID[leaseKind]
	CommandID   = ID[commandKind]
	ArtifactID  = ID[artifactKind]
	EvidenceID  = ID[evidenceKind]
	TokenID     = ID[tokenKind]
	EnrolmentID = ID[enrolmentKind]
	CallbackID  = ID[callbackKind]
	EventID     = ID[eventKind]
)

// NewID wraps a UUID; the caller made it.
func NewID[T ID[K], K any](u uuid.UUID) T { return T(ID[K]{u}) }

// ParseID reads the canonical text form of an id.
func ParseID[T ID[K], K any](s string) (T, error) {
	u, err := ParseUUID(s)
	return T(ID[K]{u}), err
}

// ParseUUID reads a UUID in its canonical spelling only: one id has one spelling
// in keys, URLs, object names and locks.
func ParseUUID(s string) (uuid.UUID, error) {
	if len(s) != 36 {
		return uuid.Nil, fmt.Errorf("%q is not a canonical UUID (36 characters, lower case)", clip(s, 60))
	}
	u, err := uuid.Parse(s)
	if err != nil || u.String() != s {
		return uuid.Nil, fmt.Errorf("%q is not a canonical UUID (36 characters, lower case)", clip(s, 60))
	}
	if u == uuid.Nil {
		return uuid.Nil, fmt.Errorf("the nil UUID is not an id")
	}
	return u, nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

// UUID returns the id as a plain UUID.
func (i ID[K]) UUID() uuid.UUID { return i.uuid }

// IsZero reports whether the id was never set.
func (i ID[K]) IsZero() bool { return i.uuid == uuid.Nil }

func (i ID[K]) String() string {
	if i.IsZero() {
		return ""
	}
	return i.uuid.String()
}

// MarshalText writes the canonical form.
func (i ID[K]) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText accepts the canonical form only; the empty text is the zero id.
func (i *ID[K]) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		i.uuid = uuid.Nil
		return nil
	}
	u, err := ParseUUID(string(b))
	if err != nil {
		return err
	}
	i.uuid = u
	return nil
}

// LeaseIDOf is the id of an attempt's lease at an epoch: UUIDv5(attempt, epoch).
func LeaseIDOf(a AttemptID, epoch int64) LeaseID {
	return LeaseID{uuid.NewSHA1(a.uuid, fmt.Appendf(nil, "lease/%d", epoch))}
}

// ArtifactIDOf is the id of an attempt's artifact of this name.
func ArtifactIDOf(a AttemptID, name string) ArtifactID {
	return ArtifactID{uuid.NewSHA1(a.uuid, []byte("artifact/"+name))}
}

// DeriveCommandID is the id of a command that follows from another id and a
// reason, so that repeating it has one effect.
func DeriveCommandID(from uuid.UUID, reason string) CommandID {
	return CommandID{uuid.NewSHA1(from, []byte("command/"+reason))}
}
