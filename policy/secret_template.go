package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Placeholders of a template.
const (
	operationPlaceholder = "{operation_id}"
	attemptPlaceholder   = "{attempt_id}"
	artifactPlaceholder  = "{artifact_name}"
)

// SecretTemplate makes the reference under which an artifact is stored:
// vault://<mount>/<path>, each placeholder a whole segment. {attempt_id} must
// be in it and {artifact_name} must be its end, so that no two artifacts meet
// in one place, even where a name holds slashes.
type SecretTemplate struct {
	segments []string
}

// ParseSecretTemplate reads a template.
func ParseSecretTemplate(text string) (SecretTemplate, error) {
	rest, ok := strings.CutPrefix(text, secretScheme)
	if !ok {
		return SecretTemplate{}, errors.New("it does not begin with vault://")
	}
	t := SecretTemplate{segments: strings.Split(rest, "/")}
	seen := map[string]bool{}
	plain := make([]string, len(t.segments))
	for i, s := range t.segments {
		plain[i] = s
		switch s {
		case operationPlaceholder, attemptPlaceholder, artifactPlaceholder:
			if i == 0 {
				return SecretTemplate{}, errors.New("the mount has no placeholder")
			}
			if seen[s] {
				return SecretTemplate{}, fmt.Errorf("%s stands twice", s)
			}
			seen[s] = true
			plain[i] = "a"
		default:
			if strings.ContainsAny(s, "{}") {
				return SecretTemplate{}, errors.New("a placeholder is a whole segment, {operation_id}, {attempt_id} or {artifact_name}")
			}
		}
	}
	if err := checkSecretPath(strings.Join(plain, "/")); err != nil {
		return SecretTemplate{}, err
	}
	if !seen[attemptPlaceholder] || t.segments[len(t.segments)-1] != artifactPlaceholder {
		return SecretTemplate{}, errors.New("{attempt_id} must be in it and {artifact_name} must be its end, else two artifacts would meet in one place")
	}
	if len(text) > maxSecretReference/2 {
		return SecretTemplate{}, fmt.Errorf("it has more than %d bytes", maxSecretReference/2)
	}
	return t, nil
}

// String is the template as it was written.
func (t SecretTemplate) String() string { return secretScheme + strings.Join(t.segments, "/") }

// Fill gives the reference of one artifact. Its error does not repeat what was
// filled in.
func (t SecretTemplate) Fill(operationID, attemptID, artifact string) (SecretReference, error) {
	for _, id := range []string{operationID, attemptID} {
		if checkSecretSegment("", id) != nil {
			return SecretReference{}, errors.New("the id of the operation or the attempt cannot stand in a reference")
		}
	}
	out := make([]string, len(t.segments))
	for i, s := range t.segments {
		switch s {
		case operationPlaceholder:
			s = operationID
		case attemptPlaceholder:
			s = attemptID
		case artifactPlaceholder:
			s = artifact
		}
		out[i] = s
	}
	ref, err := ParseSecretReference(secretScheme + strings.Join(out, "/"))
	if err != nil || ref.Field != "" || ref.Version != 0 {
		return SecretReference{}, errors.New("the artifact's name cannot stand in a reference: use letters, digits and -._~@:=, with single slashes inside")
	}
	return ref, nil
}

// mount gives the template's mount: its first segment, or what the mapping
// names.
func (t SecretTemplate) mount(named string) (string, error) {
	segments := make([]string, len(t.segments))
	for i, s := range t.segments {
		segments[i] = s
		if strings.HasPrefix(s, "{") {
			segments[i] = anySegment
		}
	}
	return SecretPattern{segments: segments}.mount(named)
}
