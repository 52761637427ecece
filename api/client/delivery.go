package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// CallbackQuery narrows a list of callbacks; zero fields do not narrow.
type CallbackQuery struct {
	Endpoint  string
	State     domain.CallbackState
	AttemptID domain.AttemptID
	After     string // Page.Next of the page before
	Limit     int    // 1 to 500; 0 for the service's default
}

// Callbacks lists callbacks, the last scheduled first.
func (c *Client) Callbacks(ctx context.Context, q CallbackQuery) (wire.Page[wire.Callback], error) {
	v := url.Values{}
	for name, value := range map[string]string{"endpoint": q.Endpoint, "state": string(q.State), "attempt_id": q.AttemptID.String(), "after": q.After} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[wire.Page[wire.Callback]](ctx, c, "/v1/callbacks", v)
}

func callbackPath(id domain.CallbackID, rest string) string {
	return "/v1/callbacks/" + url.PathEscape(id.String()) + rest
}

// Callback returns one callback with its tries.
func (c *Client) Callback(ctx context.Context, id domain.CallbackID) (wire.CallbackHistory, error) {
	return get[wire.CallbackHistory](ctx, c, callbackPath(id, ""), nil)
}

// ReplayCallback delivers a result once more, whatever became of it before.
func (c *Client) ReplayCallback(ctx context.Context, key domain.CommandID, id domain.CallbackID, reason string) (wire.Callback, error) {
	return post[wire.Callback](ctx, c, key, callbackPath(id, "/replay"), wire.ReasonRequest{Reason: reason})
}

// ReplayResults delivers a page of a range of results once more. Where the answer has
// a Next, it is the After of the next page, which needs a new key.
func (c *Client) ReplayResults(ctx context.Context, key domain.CommandID, r wire.ReplayRequest) (wire.ReplayAnswer, error) {
	return post[wire.ReplayAnswer](ctx, c, key, "/v1/callbacks/replay", r)
}

// CallbackEndpoints lists where results are delivered, and how that goes.
func (c *Client) CallbackEndpoints(ctx context.Context) (wire.CallbackEndpoints, error) {
	return get[wire.CallbackEndpoints](ctx, c, "/v1/callback-endpoints", nil)
}

// ChangeEndpoint stops or resumes an endpoint: change is "stop" or "resume".
func (c *Client) ChangeEndpoint(ctx context.Context, key domain.CommandID, name, change, reason string) (wire.CallbackEndpoint, error) {
	path := "/v1/callback-endpoints/" + url.PathEscape(name) + "/" + url.PathEscape(change)
	return post[wire.CallbackEndpoint](ctx, c, key, path, wire.ReasonRequest{Reason: reason})
}

// Forwarder says how publishing to Kafka goes, and what is parked.
func (c *Client) Forwarder(ctx context.Context) (wire.Forwarder, error) {
	return get[wire.Forwarder](ctx, c, "/v1/forwarder", nil)
}

// RetryKey asks for another try of a parked key.
func (c *Client) RetryKey(ctx context.Context, key domain.CommandID, r wire.RetryRequest) (wire.Ack, error) {
	return post[wire.Ack](ctx, c, key, "/v1/forwarder/retry", r)
}

// SkipEvent gives up publishing the event that the broker refuses.
func (c *Client) SkipEvent(ctx context.Context, key domain.CommandID, r wire.SkipRequest) (wire.Ack, error) {
	return post[wire.Ack](ctx, c, key, "/v1/forwarder/skip", r)
}

// EventSchemas lists the JSON Schemas of the events' payloads.
func (c *Client) EventSchemas(ctx context.Context) ([]wire.EventSchema, error) {
	p, err := get[wire.Page[wire.EventSchema]](ctx, c, "/v1/event-schemas", nil)
	return p.Items, err
}

// EventSchema returns one of them, byte for byte.
func (c *Client) EventSchema(ctx context.Context, eventType string, schema int) ([]byte, error) {
	path := "/v1/event-schemas/" + url.PathEscape(eventType) + "/" + strconv.Itoa(schema)
	a, err := c.read(ctx, &call{method: http.MethodGet, path: path})
	return a.body, err
}
