package api

import (
	"net/http"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func (s *server) listActions(q *request) error {
	page := wire.Page[wire.Action]{Items: []wire.Action{}}
	for _, a := range s.Actions.List() {
		page.Items = append(page.Items, wire.Action{Name: a.Name, JobType: a.JobType, Title: a.Title, NeedsResources: a.NeedsResources, Destructive: a.Destructive})
	}
	return q.json(http.StatusOK, page)
}

func (s *server) getActionSchema(q *request) error {
	a, ok := s.Actions.Lookup(pathValue(q.Request, "action"))
	if !ok {
		return &domain.Error{Kind: domain.KindNotFound, Code: "action_unknown", Message: "there is no such action", Next: "GET /v1/actions lists those there are"}
	}
	return q.immutable(mediaSchema, a.Schema)
}
