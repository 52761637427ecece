package domain

import (
	"fmt"
	"strings"
)

// Limits of the files that a job is given.
const (
	MaxInputArtifacts = 100
	// MaxInputBytes is the largest file that a job may be given, and the largest that
	// the control plane may put to an operation.
	MaxInputBytes = 1 << 30

	maxArtifactRef = 1200 // bytes of a reference
)

// PackageInput begins the name under which a runner asks for an approved package:
// package:<sha256>. No input artifact may be called so.
const PackageInput = "package:"

// InputArtifact is an input as it was resolved when the job was submitted: what the
// executor gets under Name is this and nothing newer.
type InputArtifact struct {
	Name   string `json:"name,omitempty"`
	Ref    string `json:"artifact_ref"` // as the JobSpec gives it
	SHA256 string `json:"sha256"`
	// Bytes is its size; absent where object storage did not answer when it was asked
	// about an object outside the ledger.
	Bytes int64 `json:"bytes,omitempty"`
	// ID is absent for s3://: such an object is no artifact of the ledger.
	ID ArtifactID `json:"artifact_id,omitzero"`
	// AttemptID is the attempt that made it; absent for what the control plane put to
	// the operation.
	AttemptID AttemptID `json:"attempt_id,omitzero"`
}

// ArtifactReference is a readable inputs.artifacts[].artifact_ref: exactly one of
// ID, Name and Bucket is set.
type ArtifactReference struct {
	ID     ArtifactID // artifact://<id>
	Name   string     // artifact://operation/<name>
	Bucket string     // s3://<bucket>/<key>
	Key    string
}

const (
	artifactScheme  = "artifact://"
	operationPrefix = artifactScheme + "operation/"
	s3Scheme        = "s3://"
)

// ParseArtifactRef reads a reference. It does not repeat the text in its errors.
func ParseArtifactRef(ref string) (ArtifactReference, error) {
	if len(ref) > maxArtifactRef || !plainText(ref) {
		return ArtifactReference{}, fmt.Errorf("has at most %d bytes of text without control characters", maxArtifactRef)
	}
	if name, ok := strings.CutPrefix(ref, operationPrefix); ok {
		if name == "" || len(name) > 200 {
			return ArtifactReference{}, fmt.Errorf("names an artifact of 1 to 200 bytes: %s<name>", operationPrefix)
		}
		return ArtifactReference{Name: name}, nil
	}
	if id, ok := strings.CutPrefix(ref, artifactScheme); ok {
		parsed, err := ParseID[ArtifactID](id)
		if err != nil {
			return ArtifactReference{}, fmt.Errorf("is %s<artifact id> or %s<name>", artifactScheme, operationPrefix)
		}
		return ArtifactReference{ID: parsed}, nil
	}
	place, ok := strings.CutPrefix(ref, s3Scheme)
	if !ok {
		return ArtifactReference{}, fmt.Errorf("is %s<artifact id>, %s<name>, or %s<bucket>/<key> with sha256", artifactScheme, operationPrefix, s3Scheme)
	}
	bucket, key, _ := strings.Cut(place, "/")
	if bucket == "" || !ValidObjectKey(key) {
		return ArtifactReference{}, fmt.Errorf("is %s<bucket>/<key> in which no part of the key is empty, and none is . or .. by itself", s3Scheme)
	}
	return ArtifactReference{Bucket: bucket, Key: key}, nil
}

// ValidObjectKey reports whether a key has one spelling in URLs and on file systems:
// no part of it is empty, "." or "..".
func ValidObjectKey(key string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return len(key) <= 1024
}

// ValidArtifactName reports whether the control plane may give an artifact this name:
// a letter or digit, then letters, digits and . _ / : @ -, at most 200 in all.
func ValidArtifactName(name string) bool { return namePattern.MatchString(name) }

// validate says what is wrong with an entry by itself; what it leads to is looked for
// when the job is submitted.
func (a ArtifactInput) validate(v *violations, at string, names map[string]bool) {
	checkName(v, at+"/name", a.Name, names, optional)
	if strings.HasPrefix(a.Name, PackageInput) {
		v.add(at+"/name", "reserved", "begins with %s, under which runners ask for packages", PackageInput)
	}
	if a.ArtifactRef == "" {
		v.add(at+"/artifact_ref", "required", "is required")
		return
	}
	ref, err := ParseArtifactRef(a.ArtifactRef)
	switch {
	case err != nil:
		v.add(at+"/artifact_ref", "scheme", "%v", err)
	case a.SHA256 != "" && !sha256Hex.MatchString(a.SHA256):
		v.add(at+"/sha256", "pattern", "is 64 lower-case hex digits")
	case a.SHA256 == "" && ref.Bucket != "":
		v.add(at+"/sha256", "required", "is required with s3://: the runner checks the bytes by it")
	}
}
