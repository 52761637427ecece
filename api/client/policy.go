package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// PutPolicyBundle keeps a bundle, in the form of policy.Bundle.Bytes, under its
// digest. It decides nothing before ActivatePolicy.
func (c *Client) PutPolicyBundle(ctx context.Context, key domain.CommandID, digest string, archive []byte) (wire.PolicyBundle, error) {
	k := &call{method: http.MethodPut, path: "/v1/policy/bundles/" + url.PathEscape(digest), body: archive, contentType: "application/x-tar"}
	k.key(key)
	return do[wire.PolicyBundle](ctx, c, k)
}

// ActivatePolicy makes a bundle that is kept the active one.
func (c *Client) ActivatePolicy(ctx context.Context, key domain.CommandID, r wire.ActivatePolicyRequest) (wire.ActivePolicy, error) {
	return post[wire.ActivePolicy](ctx, c, key, "/v1/policy/active", r)
}

// ActivePolicy says which bundle is the active one.
func (c *Client) ActivePolicy(ctx context.Context) (wire.ActivePolicy, error) {
	return get[wire.ActivePolicy](ctx, c, "/v1/policy/active", nil)
}
