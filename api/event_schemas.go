package api

import (
	"net/http"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/docs/schemas"
	"github.com/platform-core/execution-plane-service/domain"
)

func (s *server) listEventSchemas(q *request) error {
	all := schemas.All()
	page := wire.Page[wire.EventSchema]{Items: make([]wire.EventSchema, len(all))}
	for i, r := range all {
		page.Items[i] = wire.EventSchema{Type: r.Type, Schema: r.Schema, URN: r.URN()}
	}
	return q.json(http.StatusOK, page)
}

func (s *server) getEventSchema(q *request) error {
	number := pathValue(q.Request, "schema")
	n, err := strconv.Atoi(number)
	if err == nil && strconv.Itoa(n) == number {
		if b, ok := schemas.Schema(pathValue(q.Request, "type"), n); ok {
			return q.immutable(mediaSchema, b)
		}
	}
	return &domain.Error{Kind: domain.KindNotFound, Code: "event_schema_unknown", Message: "there is no such event type, or no such schema of it", Next: "GET /v1/event-schemas lists those there are"}
}
