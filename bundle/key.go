package bundle

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// keyRoot is where everything of every attempt lies.
const keyRoot = "operations/"

const (
	escapeByte    = '!'
	maxSegment    = 120 // escaped bytes of a segment kept whole; servers on file systems stop at 255
	keptOfSegment = 80
	hexUpper      = "0123456789ABCDEF"
)

// Prefix returns operations/<operation_id>/<plan_node_id>/<attempt_id>/, under
// which an attempt's objects lie. The plan node's id is escaped.
func Prefix(operationID uuid.UUID, planNodeID string, attemptID uuid.UUID) string {
	return keyRoot + operationID.String() + "/" + EscapeSegment(planNodeID) + "/" + attemptID.String() + "/"
}

// Every key below carries the digest of the object's bytes, so that a key never
// names two contents and a write can be conditional on its absence.

// LogChunkKey names a chunk. Offset is the content offset of its first byte; it
// is padded so that keys sort in the order of the log.
func LogChunkKey(prefix string, stream Stream, offset int64, sum SHA256) string {
	return prefix + "logs/" + string(stream) + "/" + fmt.Sprintf("%019d", offset) + "-" + sum.String() + ".frames"
}

// OutputKey names a generated output.
func OutputKey(prefix, name string, sum SHA256) string {
	return prefix + "outputs/" + EscapeSegment(name) + "/" + sum.String()
}

// ArtifactKey names an artifact.
func ArtifactKey(prefix, name string, sum SHA256) string {
	return prefix + "artifacts/" + EscapeSegment(name) + "/" + sum.String()
}

// JobSpecKey names the accepted bytes of the JobSpec.
func JobSpecKey(prefix string, sum SHA256) string {
	return prefix + "job_spec-" + sum.String() + ".json"
}

// EnvironmentKey names the description of where and with what the attempt ran.
func EnvironmentKey(prefix string, sum SHA256) string {
	return prefix + "environment-" + sum.String() + ".json"
}

// EventsKey names the attempt's stream up to the event before .sealed.
func EventsKey(prefix string, sum SHA256) string {
	return prefix + "events-" + sum.String() + ".jsonl"
}

// ManifestKey names the manifest itself.
func ManifestKey(prefix string, sum SHA256) string {
	return prefix + "manifest-" + sum.String() + ".json"
}

// OperationArtifactKey names what the control plane put to an operation. It lies
// beside the attempts' objects, never among them.
func OperationArtifactKey(operationID uuid.UUID, name string, sum SHA256) string {
	return "operation-artifacts/" + operationID.String() + "/" + EscapeSegment(name) + "/" + sum.String()
}

// InlineKey names a copy of bytes that an event holds itself.
func InlineKey(sum SHA256) string { return "inline/" + sum.String() }

// PackageKey names a package of playbooks.
func PackageKey(sum SHA256) string { return "package/" + sum.String() }

// EscapeSegment turns any string into one path segment that is no ".", "..",
// empty or hidden name, holds no separator, and differs for differing strings.
//
// Letters, digits, '-', '_' and '.' stay, except a leading '.'; every other byte
// becomes '!' and two upper-case hex digits. The empty string is "!". What is
// longer than 120 bytes then keeps its head and ends in "!!" and 32 hex digits
// of the SHA-256 of the whole string. '!' needs no escaping in S3 keys.
func EscapeSegment(s string) string {
	if s == "" {
		return string(escapeByte)
	}
	var b strings.Builder
	cut := 0 // length of the longest prefix that fits the kept head
	for i := range len(s) {
		c := s[i]
		if plain(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
		} else {
			b.WriteByte(escapeByte)
			b.WriteByte(hexUpper[c>>4])
			b.WriteByte(hexUpper[c&15])
		}
		if b.Len() <= keptOfSegment {
			cut = b.Len()
		}
		if b.Len() > maxSegment {
			sum := Sum([]byte(s))
			return b.String()[:cut] + "!!" + sum.String()[:32]
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// AttemptOfKey reads the attempt id out of a key made here, for a janitor that
// lists a bucket. ok is false for any other key.
func AttemptOfKey(key string) (attemptID uuid.UUID, ok bool) {
	rest, found := strings.CutPrefix(key, keyRoot)
	if !found {
		return uuid.Nil, false
	}
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) != 4 || parts[1] == "" || parts[3] == "" {
		return uuid.Nil, false
	}
	if op, err := uuid.Parse(parts[0]); err != nil || op.String() != parts[0] {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(parts[2])
	if err != nil || id.String() != parts[2] {
		return uuid.Nil, false
	}
	return id, true
}
