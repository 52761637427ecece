package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// CreateToken makes a bearer token. The answer is the only place where its
// secret ever stands; repeat with the same key only if no answer came.
func (c *Client) CreateToken(ctx context.Context, key domain.CommandID, r wire.TokenRequest) (wire.TokenSecret, error) {
	return post[wire.TokenSecret](ctx, c, key, "/v1/tokens", r)
}

// Tokens lists the bearer tokens, without secrets.
func (c *Client) Tokens(ctx context.Context) ([]wire.Token, error) {
	p, err := get[wire.Page[wire.Token]](ctx, c, "/v1/tokens", nil)
	return p.Items, err
}

// RevokeToken ends a token; again is no change. It is refused everywhere within 5 s.
func (c *Client) RevokeToken(ctx context.Context, key domain.CommandID, id domain.TokenID, reason string) (wire.Ack, error) {
	return post[wire.Ack](ctx, c, key, "/v1/tokens/"+url.PathEscape(id.String())+"/revoke", wire.ReasonRequest{Reason: reason})
}

// CreateEnrolment makes a one-time token that lets one runner into a pool.
func (c *Client) CreateEnrolment(ctx context.Context, key domain.CommandID, r wire.EnrolmentRequest) (wire.EnrolmentSecret, error) {
	return post[wire.EnrolmentSecret](ctx, c, key, "/v1/enrolments", r)
}

// Actions lists what a JobSpec can ask for.
func (c *Client) Actions(ctx context.Context) ([]wire.Action, error) {
	p, err := get[wire.Page[wire.Action]](ctx, c, "/v1/actions", nil)
	return p.Items, err
}

// ActionSchema returns the JSON Schema of an action's parameters, byte for byte.
func (c *Client) ActionSchema(ctx context.Context, action string) ([]byte, error) {
	a, err := c.read(ctx, &call{method: http.MethodGet, path: "/v1/actions/" + url.PathEscape(action) + "/schema"})
	return a.body, err
}

// Live reports whether the process answers.
func (c *Client) Live(ctx context.Context) error {
	_, err := c.read(ctx, &call{method: http.MethodGet, path: "/livez"})
	return err
}

// Ready returns the service's readiness; a service that is not ready is no error.
func (c *Client) Ready(ctx context.Context) (wire.Ready, error) {
	return do[wire.Ready](ctx, c, &call{method: http.MethodGet, path: "/readyz", accept: "application/json", also: http.StatusServiceUnavailable})
}

// Metrics returns the service's metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	a, err := c.read(ctx, &call{method: http.MethodGet, path: "/metrics"})
	return a.body, err
}

// OpenAPI returns the service's OpenAPI document as JSON.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/openapi.json", nil)
}
