package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// Page sizes of the audit list.
const (
	defaultAudit = 100
	maxAudit     = 500
)

// listAudit gives the privileged facts: what else is in the ledger, the feed tells.
func (s *server) listAudit(q *request) error {
	privileged, err := q.query.truth("privileged")
	if err != nil {
		return err
	}
	if q.query.has("privileged") && !privileged {
		return malformed("query_value", "the query parameter privileged is false; only privileged facts are listed here", "GET /v1/events gives every event")
	}
	f, err := auditFilter(q.query)
	if err != nil {
		return err
	}
	events, err := s.Reads.PrivilegedFacts(q.Context(), f)
	if err != nil {
		return err
	}
	page := wire.Page[wire.AuditFact]{Items: make([]wire.AuditFact, len(events))}
	for i, e := range events {
		if page.Items[i], err = s.auditFact(q.Context(), e); err != nil {
			return err
		}
	}
	if len(events) == f.Limit {
		page.Next = strconv.FormatInt(events[len(events)-1].Position, 10)
	}
	return q.json(http.StatusOK, page)
}

func auditFilter(q query) (f projections.PrivilegedFilter, err error) {
	limit, err := q.number("limit", defaultAudit, 1, maxAudit)
	if err != nil {
		return f, err
	}
	f.Limit = int(limit)
	if f.Since, err = q.time("since"); err != nil {
		return f, err
	}
	if f.Until, err = q.time("until"); err != nil {
		return f, err
	}
	if q.has("after") {
		f.Before, err = strconv.ParseInt(q.text("after"), 10, 64)
		if err != nil || f.Before < 1 {
			return f, malformed("cursor_invalid", "the cursor is not one that an earlier answer gave", "begin without a cursor")
		}
	}
	return f, nil
}

func (s *server) auditFact(ctx context.Context, e eventstore.Event) (wire.AuditFact, error) {
	out := wire.AuditFact{Event: eventOf("", e)}
	if e.Actor.Role == domain.RoleOperator {
		out.Kinds = []string{domain.RoleOperator}
	}
	var p struct {
		Privileges []string       `json:"privileges"`
		Reason     domain.TextRef `json:"reason_text"`
	}
	// Every payload is an object of the service's own; one that is not tells nothing.
	_ = json.Unmarshal(e.Payload, &p)
	if e.Type == (domain.PrivilegesGranted{}).EventType() {
		out.Kinds = append(out.Kinds, p.Privileges...)
	}
	var err error
	out.Reason, err = s.text(ctx, p.Reason)
	return out, err
}
