package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// ManifestSchema is the schema number this package writes.
const ManifestSchema = 1

// MaxManifest is the longest manifest that DecodeManifest reads.
const MaxManifest = 64 << 20

// State says whether the bundle holds all that the attempt left.
type State string

const (
	Complete   State = "complete"   // everything that was announced is there
	Incomplete State = "incomplete" // at least one gap, each one named
	Empty      State = "empty"      // nothing ever ran; lists no object
)

// Kind is the place of an object in the bundle.
type Kind string

const (
	KindLog         Kind = "log"
	KindArtifact    Kind = "artifact"
	KindOutput      Kind = "output"
	KindJobSpec     Kind = "job_spec"
	KindEnvironment Kind = "environment"
	KindEvents      Kind = "events"
)

// Sensitivity of an object, as in artifact_ref.
type Sensitivity string

const (
	Public   Sensitivity = "public"
	Internal Sensitivity = "internal"
	Secret   Sensitivity = "secret"
)

// Manifest lists what an attempt left behind. Slices may be in any order; Encode
// sorts them, so two manifests that say the same have the same bytes. Encode is
// the only writer; the tags are for the reader.
type Manifest struct {
	Schema        int              `json:"schema"`
	BundleID      uuid.UUID        `json:"bundle_id"`
	AttemptID     uuid.UUID        `json:"attempt_id"`
	OperationID   uuid.UUID        `json:"operation_id"`
	PlanNodeID    string           `json:"plan_node_id"`
	JobSpecSHA256 SHA256           `json:"job_spec_sha256"` // of the RFC 8785 form, as in the attempt's events
	FailureCode   string           `json:"failure_code"`    // of an empty bundle: why nothing ran
	State         State            `json:"state"`
	Unverified    bool             `json:"unverified"` // no object was read back: the digests are those that the attempt's events give
	Objects       []Object         `json:"objects"`
	Logs          []Log            `json:"logs"`
	Gaps          []Gap            `json:"gaps"`
	Redactions    map[string]int64 `json:"redactions"` // secret reference → how often its value was masked
}

// Object is one stored object.
type Object struct {
	Name        string      `json:"name"` // of an artifact or output: as in artifact_ref; else of the kind or stream
	Key         string      `json:"key"`
	Kind        Kind        `json:"kind"`
	Type        string      `json:"type"` // artifact type, as "rendered_manifest"; of a log "log_frames"
	Sensitivity Sensitivity `json:"sensitivity"`
	Bytes       int64       `json:"bytes"`
	SHA256      SHA256      `json:"sha256"`
	MediaType   string      `json:"media_type"`
	ProducedBy  string      `json:"produced_by"` // who made it: "runner/<id>", "service"
	Log         *LogPart    `json:"log"`         // of kind log, and only there
}

// LogPart places a chunk object in its stream.
type LogPart struct {
	Stream Stream `json:"stream"`
	Offset int64  `json:"offset"`        // content offset of its first byte
	Length int64  `json:"content_bytes"` // content bytes
}

// Log sums up one stream.
type Log struct {
	Stream   Stream `json:"stream"`
	Bytes    int64  `json:"bytes"`  // content bytes stored
	SHA256   SHA256 `json:"sha256"` // of the whole content; known only of a complete log
	Complete bool   `json:"complete"`
	Chunks   int    `json:"chunks"`
}

// Gap names something that was announced, or must have been there, and is not.
type Gap struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`   // of the object; of a log its stream
	From   int64  `json:"from"`   // content offsets of a log; 0 otherwise
	To     int64  `json:"to"`     // exclusive; equal to From where the length is unknown
	Reason string `json:"reason"` // a code, as "upload_lease_expired"
}

// BundleID is UUIDv5 of the attempt's id and the word "bundle".
func BundleID(attemptID uuid.UUID) uuid.UUID {
	return uuid.NewSHA1(attemptID, []byte("bundle"))
}

// EmptyManifest is the canonical bundle of an attempt that never ran. Its bytes
// and digest depend on the arguments alone, so that whoever decides the attempt's
// end can put the digest into the event before anything is stored.
func EmptyManifest(attemptID, operationID uuid.UUID, planNodeID string, jobSpec SHA256, failureCode string) Manifest {
	return Manifest{
		Schema:        ManifestSchema,
		BundleID:      BundleID(attemptID),
		AttemptID:     attemptID,
		OperationID:   operationID,
		PlanNodeID:    planNodeID,
		JobSpecSHA256: jobSpec,
		FailureCode:   failureCode,
		State:         Empty,
	}
}

// Prefix is where this bundle's objects lie.
func (m Manifest) Prefix() string { return Prefix(m.OperationID, m.PlanNodeID, m.AttemptID) }

// Encode validates m and returns its canonical bytes: the RFC 8785 form, with
// objects sorted by key, logs by stream, and gaps by kind, name, offsets and
// reason. m is not changed.
func (m Manifest) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m.sorted().appendCanonical(nil), nil
}

// Digest is the SHA-256 of Encode's bytes.
func (m Manifest) Digest() (SHA256, error) {
	b, err := m.Encode()
	if err != nil {
		return SHA256{}, err
	}
	return Sum(b), nil
}

// ErrNotCanonical is returned for a manifest whose bytes are not the canonical
// form of what it says. Such bytes are never accepted: their digest would not be
// the manifest's.
var ErrNotCanonical = errors.New("manifest is not in canonical form")

// DecodeManifest reads canonical bytes and nothing else: unknown fields, other
// spacing or order, and anything that Validate refuses are errors.
func DecodeManifest(data []byte) (Manifest, error) {
	if len(data) > MaxManifest {
		return Manifest{}, fmt.Errorf("reading a manifest: %d bytes, the limit is %d", len(data), MaxManifest)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("reading a manifest: %w", err)
	}
	again, err := m.Encode()
	if err != nil {
		return Manifest{}, fmt.Errorf("reading a manifest: %w", err)
	}
	if !bytes.Equal(again, data) {
		return Manifest{}, fmt.Errorf("reading a manifest: %w", ErrNotCanonical)
	}
	return m, nil
}

func (m Manifest) sorted() Manifest {
	m.Objects = slices.SortedFunc(slices.Values(m.Objects), func(a, b Object) int { return cmp.Compare(a.Key, b.Key) })
	m.Logs = slices.SortedFunc(slices.Values(m.Logs), func(a, b Log) int { return cmp.Compare(a.Stream, b.Stream) })
	m.Gaps = slices.SortedFunc(slices.Values(m.Gaps), compareGaps)
	return m
}

func compareGaps(a, b Gap) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.From, b.From),
		cmp.Compare(a.To, b.To), cmp.Compare(a.Reason, b.Reason))
}
