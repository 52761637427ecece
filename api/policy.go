package api

import (
	"fmt"

	"github.com/platform-core/execution-plane-service/domain"
)

func (s *server) getPolicyBundle(q *request) error {
	digest := pathValue(q.Request, "digest")
	if !isSHA256(digest) {
		return malformed("invalid_digest", fmt.Sprintf("%s is not a digest of 64 lower-case hex digits", quote(digest)), "")
	}
	b, ok := s.Policies.Bundle(digest)
	if !ok {
		return &domain.Error{Kind: domain.KindNotFound, Code: "bundle_unknown", Message: "this service has no policy bundle with this digest",
			Next: "give the lease back; the next offer names the active bundle"}
	}
	return q.immutable(mediaTar, b.Bytes())
}
