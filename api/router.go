package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"github.com/platform-core/execution-plane-service/domain"
)

// newRouter builds the router from the table. Paths are matched as they were
// sent: nothing is cleaned, decoded or redirected, so one thing has one URL.
func newRouter(s *server) http.Handler {
	m := mux.NewRouter().SkipClean(true).UseEncodedPath()
	methods := map[string][]string{}
	for i := range routes {
		r := &routes[i]
		methods[r.Path] = append(methods[r.Path], r.Method)
		m.Handle(r.Path, s.serve(r)).Methods(r.Method)
	}
	// In the table's order: of two paths that both fit, the earlier one answers.
	for _, r := range routes {
		allowed := slices.Sorted(slices.Values(methods[r.Path]))
		m.Handle(r.Path, s.refuse("other method", errMethod, strings.Join(allowed, ", ")))
	}
	m.NotFoundHandler = s.refuse("none", errNoRoute, "")
	m.MethodNotAllowedHandler = m.NotFoundHandler
	return m
}

// pathValue is a variable of the route's path, as it was sent.
func pathValue(r *http.Request, name string) string { return mux.Vars(r)[name] }

var errNoRoute = &domain.Error{Kind: domain.KindNotFound, Code: "route_unknown", Message: "there is no such path", Next: "GET /openapi.json lists those there are"}
