package api

import (
	"context"
	"net/http"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// The words of readiness.
const (
	CheckOK       = "ok"
	CheckDegraded = "degraded" // something waits, nothing is lost
	CheckFailed   = "failed"   // requests cannot be carried out

	statusReady    = "ready"
	statusDegraded = "degraded"
	statusNotReady = "not_ready"
)

func (s *server) live(q *request) error {
	q.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	q.w.Header().Set("Cache-Control", "no-store")
	q.w.send([]byte("ok\n"))
	return nil
}

// readyTimeout bounds all checks of readiness together.
const readyTimeout = 3 * time.Second

func (s *server) ready(q *request) error {
	ctx, cancel := context.WithTimeout(q.Context(), readyTimeout)
	defer cancel()
	out := wire.Ready{Status: statusReady, Checks: s.Health.Checks(ctx)}
	if out.Checks == nil {
		out.Checks = map[string]wire.Check{}
	}
	for _, c := range out.Checks {
		switch {
		case c.Status == CheckDegraded && out.Status == statusReady:
			out.Status = statusDegraded
		case c.Status != CheckOK && c.Status != CheckDegraded:
			out.Status = statusNotReady
		}
	}
	if out.Status == statusNotReady {
		return q.json(http.StatusServiceUnavailable, out)
	}
	return q.json(http.StatusOK, out)
}

func (s *server) serveMetrics(q *request) error {
	s.Metrics.handler.ServeHTTP(q.w, q.Request)
	return nil
}
