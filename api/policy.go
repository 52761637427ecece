package api

import (
	"fmt"
)

func (s *server) getPolicyBundle(q *request) error {
	digest := pathValue(q.Request, "digest")
	if !isSHA256(digest) {
		return malformed("invalid_digest", fmt.Sprintf("%s is not a digest of 64 lower-case hex digits", quote(digest)), "")
	}
	b, err := s.Policies.Archive(q.Context(), digest)
	if err != nil {
		return err
	}
	return q.immutable(mediaTar, b)
}
