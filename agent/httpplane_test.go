package agent

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// serve puts the fake service behind HTTP, as the client and another process
// reach it.
func (f *fakePlane) serve(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(f.handle))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	return s
}

func (f *fakePlane) handle(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/objects/") {
		f.handOut(w, r)
		return
	}
	p := &boundPlane{f, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	answer, err := f.route(p, path, r)
	var e *domain.Error
	switch {
	case err == nil && path[0] == "leases" && path[2] == "inputs":
		at := answer.(InputLocation)
		w.Header().Set("Location", "http://"+r.Host+"/v1/objects/"+at.URL)
		w.Header().Set("Content-SHA256", at.SHA256)
		w.WriteHeader(http.StatusTemporaryRedirect)
	case err == nil && path[0] == "policy":
		_, _ = w.Write(answer.([]byte))
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	case errors.As(err, &e):
		problem := wire.Problem{Title: e.Code, Status: statusOf(e.Kind), Detail: e.Message, Code: e.Code}
		if l, ok := answer.(wire.LogAnswer); ok {
			problem.Details = map[string]any{"offset": l.Offset}
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(problem.Status)
		_ = json.NewEncoder(w).Encode(problem)
	default:
		w.WriteHeader(http.StatusBadGateway)
	}
}

func statusOf(k domain.Kind) int {
	return map[domain.Kind]int{
		domain.KindGone: 410, domain.KindConflict: 409, domain.KindForbidden: 403, domain.KindNotFound: 404,
		domain.KindOffset: 416, domain.KindUnauthenticated: 401, domain.KindUnavailable: 503, domain.KindInvalid: 422,
	}[k]
}

func (f *fakePlane) route(p *boundPlane, path []string, r *http.Request) (any, error) {
	key, _ := uuid.Parse(r.Header.Get(wire.HeaderIdempotencyKey))
	switch {
	case path[0] == "policy":
		return p.PolicyBundle(r.Context(), path[2])
	case path[0] == "objects":
		up := wire.Upload{URL: path[1] + "/" + path[2]}
		return nil, p.Put(r.Context(), up, r.Body, r.ContentLength)
	case path[0] == "runners" && len(path) == 1:
		return with(r, func(req wire.Registration) (any, error) { return p.Register(r.Context(), key, req) })
	case path[0] == "runners" && path[2] == "commands":
		seconds, _ := strconv.Atoi(r.URL.Query().Get("wait"))
		return with(r, func(req wire.CommandsRequest) (any, error) {
			return p.Commands(r.Context(), f.runner, time.Duration(seconds)*time.Second, req)
		})
	case path[0] == "runners" && path[2] == "drain":
		return with(r, func(req struct{ Reason string }) (any, error) {
			return wire.Ack{}, p.Drain(r.Context(), f.runner, key, req.Reason)
		})
	case path[0] == "runners" && path[2] == "revoked":
		return with(r, func(req wire.RevokedRequest) (any, error) {
			return wire.Ack{}, p.Revoked(r.Context(), f.runner, key, req)
		})
	case path[0] == "runners":
		return with(r, func(req wire.ReportRequest) (any, error) { return p.Report(r.Context(), f.runner, key, req) })
	}
	id, err := domain.ParseID[domain.LeaseID](path[1])
	if err != nil {
		return nil, err
	}
	epoch, _ := strconv.ParseInt(r.Header.Get(wire.HeaderLeaseEpoch), 10, 64)
	if path[2] == "inputs" {
		return p.Input(r.Context(), Lease{ID: id, Epoch: epoch, Token: r.Header.Get(wire.HeaderLeaseToken)}, strings.Join(path[3:], "/"))
	}
	return f.routeLease(p, path[2], key, Lease{ID: id, Epoch: epoch, Token: r.Header.Get(wire.HeaderLeaseToken)}, r)
}

func (f *fakePlane) routeLease(p *boundPlane, verb string, key uuid.UUID, l Lease, r *http.Request) (any, error) {
	ctx := r.Context()
	switch verb {
	case "start":
		return with(r, func(req wire.StartRequest) (any, error) { return p.Start(ctx, l, key, req) })
	case "release":
		return with(r, func(req wire.ReleaseRequest) (any, error) { return nil, p.Release(ctx, l, key, req) })
	case "evidence":
		return with(r, func(req wire.EvidenceRequest) (any, error) { return p.Evidence(ctx, l, key, req) })
	case "facts":
		return with(r, func(req wire.FactRequest) (any, error) { return nil, p.Fact(ctx, l, key, req) })
	case "complete":
		return with(r, func(req wire.CompleteRequest) (any, error) { return nil, p.Complete(ctx, l, key, req) })
	case "fingerprints":
		if r.Method == http.MethodGet {
			return p.FingerprintKey(ctx, l)
		}
		certain, _ := strconv.Atoi(r.URL.Query().Get("certain"))
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		prints := make([]uint64, len(raw)/8)
		for i := range prints {
			prints[i] = binary.BigEndian.Uint64(raw[8*i:])
		}
		return wire.FingerprintsAnswer{Prints: len(prints)}, p.Fingerprints(ctx, l, key, certain, prints)
	case "artifacts":
		return with(r, func(req wire.ArtifactRequest) (any, error) {
			answer, err := p.Artifact(ctx, l, key, req)
			if answer.Upload != nil {
				up := *answer.Upload
				up.URL = "http://" + r.Host + "/v1/objects/" + up.URL
				answer.Upload = &up
			}
			return answer, err
		})
	}
	offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	frames, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return p.Log(ctx, l, key, r.URL.Query().Get("stream"), offset, frames)
}

func with[R any](r *http.Request, do func(R) (any, error)) (any, error) {
	var req R
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, err
	}
	return do(req)
}
