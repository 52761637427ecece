package strictjson

import (
	"errors"

	"github.com/google/uuid"
)

var errUUID = errors.New("must be a UUID in its canonical spelling: 36 characters, lower case, with dashes, not all zero")

// ParseUUID accepts the canonical lower-case spelling of a non-nil UUID and
// nothing else, so that one id has one spelling in keys, URLs, paths and locks.
func ParseUUID(s string) (uuid.UUID, error) {
	if len(s) != 36 {
		return uuid.Nil, errUUID
	}
	id, err := uuid.Parse(s)
	if err != nil || id == uuid.Nil || id.String() != s {
		return uuid.Nil, errUUID
	}
	return id, nil
}
