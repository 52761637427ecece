package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// AuditQuery narrows Audit. Zero values leave out.
type AuditQuery struct {
	Since, Until time.Time
	After        string // next of an earlier page
	Limit        int
}

// Audit lists what operators did and what jobs were let do beyond others, the
// newest first.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (wire.Page[wire.AuditFact], error) {
	v := url.Values{"privileged": {"true"}}
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.After != "" {
		v.Set("after", q.After)
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return get[wire.Page[wire.AuditFact]](ctx, c, "/v1/audit", v)
}
