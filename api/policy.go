package api

import (
	"fmt"
	"net/http"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

func (s *server) getPolicyBundle(q *request) error {
	digest, err := pathDigest(q)
	if err != nil {
		return err
	}
	b, err := s.Policies.Archive(q.Context(), digest)
	if err != nil {
		return err
	}
	return q.immutable(mediaTar, b)
}

func pathDigest(q *request) (string, error) {
	digest := pathValue(q.Request, "digest")
	if !isSHA256(digest) {
		return "", malformed("invalid_digest", fmt.Sprintf("%s is not a digest of 64 lower-case hex digits", quote(digest)), "")
	}
	return digest, nil
}

// putPolicyBundle keeps a bundle. It decides nothing before it is made the active
// one.
func (s *server) putPolicyBundle(q *request) error {
	digest, err := pathDigest(q)
	if err != nil {
		return err
	}
	b, err := policy.Open(q.body)
	if err != nil {
		return &domain.Error{Kind: domain.KindInvalid, Code: "policy_bundle_invalid", Message: "the body is no policy bundle: " + clipText(err.Error(), 4000),
			Next: "execution-plane policy check DIR names every mistake with its line"}
	}
	if b.Digest() != digest {
		return &domain.Error{Kind: domain.KindInvalid, Code: "policy_digest_mismatch", Message: fmt.Sprintf("the body is the bundle %s, not %s", b.Digest(), digest)}
	}
	if b.Size() == 0 {
		return &domain.Error{Kind: domain.KindInvalid, Code: "policy_bundle_invalid", Message: "the bundle holds no rule: it would refuse every job",
			Next: "execution-plane policy build DIR makes the body of a folder"}
	}
	if err := s.Policies.Keep(q.Context(), b); err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.PolicyBundle{BundleDigest: digest})
}

// activatePolicy makes a bundle that is kept the active one.
func (s *server) activatePolicy(q *request) error {
	body, err := decodeBody[wire.ActivatePolicyRequest](q.body)
	if err != nil {
		return err
	}
	if !isSHA256(body.BundleDigest) {
		return violation("/bundle_digest", "pattern", "is 64 lower-case hex digits")
	}
	archive, err := s.Policies.Archive(q.Context(), body.BundleDigest)
	if err != nil {
		return err
	}
	b, err := policy.Open(archive)
	if err != nil {
		return fmt.Errorf("open the policy bundle to be activated: %w", err)
	}
	// The one in memory may never have reached object storage, where the other
	// replicas look for it.
	if err := s.Policies.Keep(q.Context(), b); err != nil {
		return err
	}
	if err := s.Commands.ReplacePolicy(q.Context(), q.meta, body.BundleDigest, body.Reason); err != nil {
		return err
	}
	// This replica decides with it before it answers.
	if s.PolicyReplaced != nil {
		if err := s.PolicyReplaced(q.Context()); err != nil {
			return err
		}
	}
	return s.showPolicy(q)
}

// showPolicy says what the ledger calls the active bundle.
func (s *server) showPolicy(q *request) error {
	digest, ordered, err := s.Commands.ActivePolicy(q.Context())
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.ActivePolicy{BundleDigest: digest, Ordered: ordered})
}

func clipText(text string, most int) string {
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
