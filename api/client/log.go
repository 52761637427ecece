package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/platform-core/execution-plane-service/domain"
)

// LogPart is a run of bytes of one log stream.
type LogPart struct {
	Data []byte
	// Offset is the content offset after Data: where to go on from.
	Offset int64
	// Complete says that the attempt has ended and nothing will follow.
	Complete bool
}

// Log reads at most limit bytes (0 for the service's default, 1 MiB) of a stream
// (stdout, stderr, events) from a content offset on. The bytes are raw: escape
// sequences of a terminal are in them as they were written.
func (c *Client) Log(ctx context.Context, id domain.AttemptID, stream string, offset int64, limit int) (LogPart, error) {
	v := url.Values{"stream": {stream}, "offset": {strconv.FormatInt(offset, 10)}}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	a, err := c.read(ctx, &call{method: http.MethodGet, path: attemptPath(id, "/log"), query: v})
	if err != nil {
		return LogPart{}, err
	}
	next, err := strconv.ParseInt(a.header.Get("Log-Offset"), 10, 64)
	if err != nil || next != offset+int64(len(a.body)) {
		return LogPart{}, fmt.Errorf("reading the log of %s: the answer names offset %q after %d bytes from %d", id, a.header.Get("Log-Offset"), len(a.body), offset)
	}
	return LogPart{Data: a.body, Offset: next, Complete: a.header.Get("Log-Complete") == "true"}, nil
}
