package wire

import (
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Headers of bodies that are files.
const (
	// HeaderContentSHA256 is the hex SHA-256 of a body, or of the bytes that a redirect
	// leads to.
	HeaderContentSHA256 = "Content-SHA256"
	// HeaderBytes is how many bytes a redirect leads to, where that is known.
	HeaderBytes = "Execution-Bytes"
)

// PutArtifact is an artifact that was put to an operation.
type PutArtifact struct {
	ArtifactID  domain.ArtifactID `json:"artifact_id"`
	Name        string            `json:"name"`
	SHA256      string            `json:"sha256"`
	Bytes       int64             `json:"bytes"`
	URI         string            `json:"uri"`
	Sensitivity string            `json:"sensitivity"` // public, internal
	MediaType   string            `json:"media_type,omitempty"`
}

// OperationArtifact is one of those that jobs of the operation may name by
// artifact://operation/<name>; of a name the newest counts.
type OperationArtifact struct {
	PutArtifact
	CreatedAt time.Time `json:"created_at"`
}

// Package is a package of playbooks whose bytes are stored. Policy says who may use it.
type Package struct {
	SHA256  string `json:"sha256"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Bytes   int64  `json:"bytes"` // of the packed file
}

// StoredPackage is a package with when it was pushed.
type StoredPackage struct {
	Package
	PushedAt time.Time `json:"pushed_at"`
}
