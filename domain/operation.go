package domain

import (
	"fmt"
	"time"

	"github.com/google/uuid"
)

// OperationStateVersion numbers the shape of Operation as stored in a head.
const OperationStateVersion = 1

// MaxOperationArtifacts bounds what may be put to one operation.
const MaxOperationArtifacts = 1000

// Operation is the folded state of operation/<operation_id>: what the control plane
// put there for the operation's jobs. The operation itself is the control plane's.
type Operation struct {
	Artifacts int `json:"artifacts"` // put so far, earlier ones of a name included
}

// PutArtifact records an artifact whose bytes are durable.
type PutArtifact struct {
	Artifact ArtifactCreated
	// Newest is the newest artifact of this name that was put before; nil if none was.
	Newest *ArtifactCreated
}

// Named refusals of what is put to an operation.
var (
	ErrSecretInput = &Error{Kind: KindInvalid, Code: "artifact_secret", Message: "a secret is not put to an operation: its bytes would lie in object storage in clear",
		Next: "put it into Vault and name it in inputs.secrets"}
	ErrOperationFull = &Error{Kind: KindInvalid, Code: "operation_full", Message: fmt.Sprintf("the operation has %d artifacts, and may have no more", MaxOperationArtifacts),
		Next: "put the files into one archive"}
)

// DecideOperation answers a put. The newest of a name counts: the same bytes again
// are no change, other bytes are another artifact.
func DecideOperation(o Operation, c PutArtifact, _ time.Time) ([]Event, error) {
	a := c.Artifact
	switch {
	case a.Sensitivity == SensitivitySecret:
		return nil, ErrSecretInput
	case a.Sensitivity != "public" && a.Sensitivity != "internal":
		return nil, &Error{Kind: KindInvalid, Code: "artifact_invalid", Message: "the sensitivity of an artifact is public or internal"}
	case !ValidArtifactName(a.Name):
		return nil, &Error{Kind: KindInvalid, Code: "artifact_invalid", Message: "the name of an artifact begins with a letter or digit and holds letters, digits and . _ / : @ - only, at most 200"}
	case c.Newest != nil && c.Newest.SHA256 == a.SHA256 && c.Newest.Bytes == a.Bytes && c.Newest.Sensitivity == a.Sensitivity:
		return nil, nil
	case o.Artifacts >= MaxOperationArtifacts:
		return nil, ErrOperationFull
	}
	return []Event{a}, nil
}

// EvolveOperation folds one event into an operation's state.
func EvolveOperation(o Operation, e Event, _ time.Time) (Operation, error) {
	if _, ok := e.(ArtifactCreated); ok {
		o.Artifacts++
		return o, nil
	}
	return o, fmt.Errorf("event %s does not belong to an operation", e.EventType())
}

// PutArtifactIDOf is the id of the artifact that a command puts to an operation.
func PutArtifactIDOf(op OperationID, command CommandID) ArtifactID {
	return ArtifactID{uuid.NewSHA1(op.uuid, []byte("artifact/"+command.String()))}
}
