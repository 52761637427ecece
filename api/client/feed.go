package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// Results returns the results of attempts that ended after the cursor, in the
// order of the feed, and waits at most wait (0 to 30 s) for the first. Next is
// always set: it is where to go on from.
func (c *Client) Results(ctx context.Context, after string, limit int, wait time.Duration) (wire.Page[wire.ResultItem], error) {
	v := url.Values{}
	if after != "" {
		v.Set("after", after)
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	if wait > 0 {
		v.Set("wait", seconds(wait))
	}
	return get[wire.Page[wire.ResultItem]](ctx, c, "/v1/results", v)
}

// Events calls yield for every event after the cursor that the feed holds now,
// in feed order, at most limit (0 for the service's default). It returns the
// cursor of the last one, or after if there was none, or yield's error.
func (c *Client) Events(ctx context.Context, after string, limit int, yield func(wire.Event) error) (string, error) {
	k := &call{method: http.MethodGet, path: "/v1/events", query: url.Values{}, accept: "application/x-ndjson"}
	if after != "" {
		k.query.Set("after", after)
	}
	if limit > 0 {
		k.query.Set("limit", strconv.Itoa(limit))
	}
	resp, err := c.send(ctx, k)
	if err != nil {
		return after, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return after, nil
		}
		if err != nil {
			return after, transportError(ctx, k.method, k.path, fmt.Errorf("the answer was cut off: %w", err))
		}
		var e wire.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return after, fmt.Errorf("%s %s: a line is no event: %w", k.method, k.path, err)
		}
		if err := yield(e); err != nil {
			return after, err
		}
		after = e.Cursor
	}
}
