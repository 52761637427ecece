package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/domain"
)

var putPath = "/v1/operations/" + operationID.String() + "/artifacts/"

// The body goes through as it comes, with what the headers say of it.
func TestPutArtifactPassesTheBodyOn(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	body := strings.Repeat("a: 1\n", 100_000)
	key := uuid.NewString()
	resp, answer := ask(t, srv, "PUT", putPath+"site%2Fvars.yml?sensitivity=public", token, body, wire.HeaderIdempotencyKey, key,
		wire.HeaderContentSHA256, digestHex(body), "Content-Type", "text/yaml; charset=utf-8", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	got := decode[wire.PutArtifact](t, answer)
	if resp.StatusCode != http.StatusCreated || got.Name != "site/vars.yml" || got.SHA256 != digestHex(body) || got.Sensitivity != "public" || got.MediaType != "text/yaml; charset=utf-8" {
		t.Fatalf("%d: %s", resp.StatusCode, answer)
	}
	u := w.received[0]
	if u.body != body || u.incoming.Bytes != int64(len(body)) || u.incoming.SHA256.String() != digestHex(body) {
		t.Errorf("%d bytes of %d with %s came", len(u.body), u.incoming.Bytes, u.incoming.SHA256)
	}
	if m := w.lastMeta(); m.CommandID.String() != key || m.Actor.Role != domain.RoleControlPlane || m.TraceParent == "" {
		t.Errorf("the command is %+v", m)
	}
	if resp, _ := ask(t, srv, "PUT", putPath+"site%2Fvars.yml?sensitivity=public", token, body, wire.HeaderIdempotencyKey, key, "Content-Type", "text/yaml; charset=utf-8"); resp.StatusCode != http.StatusOK {
		t.Errorf("the same again: %d", resp.StatusCode)
	}
	// The request's digest is the same without Content-SHA256, and another one for
	// other bytes, another name, another sensitivity or another media type.
	others := []struct{ path, body, media string }{
		{"site%2Fvars.yml?sensitivity=public", "x", "text/yaml; charset=utf-8"}, {"vars.yml?sensitivity=public", body, "text/yaml; charset=utf-8"},
		{"site%2Fvars.yml", body, "text/yaml; charset=utf-8"}, {"site%2Fvars.yml?sensitivity=public", body, "text/plain"},
	}
	for _, o := range others {
		ask(t, srv, "PUT", putPath+o.path, token, o.body, "Content-Type", o.media)
	}
	if w.received[1].digest != u.digest {
		t.Error("the same request has another digest")
	}
	for i, r := range w.received[2:] {
		if r.digest == u.digest {
			t.Errorf("%+v has the same digest", others[i])
		}
	}
	last := w.received[len(w.received)-3]
	if last.incoming.MediaType != "text/yaml; charset=utf-8" || w.received[len(w.received)-1].incoming.MediaType != "text/plain" {
		t.Errorf("media types: %+v", last.incoming.MediaType)
	}
}

// A body that is announced as too large is not waited for.
func TestPutArtifactTooLarge(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	for path, role := range map[string]string{putPath + "plan": domain.RoleControlPlane, "/v1/packages/" + hash64: domain.RoleOperator} {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", srv.URL+path, io.LimitReader(zeros{}, domain.MaxInputBytes+1))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = domain.MaxInputBytes + 1
		req.Header.Set("Authorization", "Bearer "+w.token(role, nil))
		req.Header.Set("Expect", "100-continue")
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), "too_large") {
			t.Errorf("%s: %d %s, %v", path, resp.StatusCode, b, err)
		}
		resp.Body.Close()
	}
	if len(w.received) != 0 {
		t.Errorf("%d bodies were taken", len(w.received))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// So many bodies at once, and no more: each may hold a file.
func TestTooManyUploads(t *testing.T) {
	const places = 32
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	ended := make(chan error, places)
	var bodies []*io.PipeWriter
	for i := range places {
		r, body := io.Pipe()
		bodies = append(bodies, body)
		req, err := http.NewRequestWithContext(t.Context(), "PUT", srv.URL+putPath+fmt.Sprint("plan-", i), r)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		go func() {
			resp, err := srv.Client().Do(req)
			if err == nil {
				err = resp.Body.Close()
				if resp.StatusCode > 201 {
					err = fmt.Errorf("status %d", resp.StatusCode)
				}
			}
			ended <- err
		}()
		// What is written is read by the handler, so it has its place.
		if _, err := body.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	resp, body := ask(t, srv, "PUT", putPath+"one-more", token, "x")
	if p := problemIn(t, resp, body); resp.StatusCode != http.StatusTooManyRequests || p.Code != "too_many_uploads" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", resp.StatusCode, body)
	}
	for _, body := range bodies {
		if err := body.Close(); err != nil {
			t.Error(err)
		}
	}
	for range places {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if resp, body := ask(t, srv, "PUT", putPath+"one-more", token, "x"); resp.StatusCode > 201 {
		t.Errorf("afterwards: %d %s", resp.StatusCode, body)
	}
}

// A runner is told where the bytes are and how to check them; nothing of the answer
// may be kept.
func TestInputIsARedirect(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	lease := []string{wire.HeaderLeaseToken, leaseToken, wire.HeaderLeaseEpoch, "1"}
	for name, want := range map[string]struct {
		status int
		bytes  string
	}{"site%2Fvars.yml": {307, "3"}, "unsized": {307, ""}, "nothing": {404, ""}, "a%00b": {400, ""}, strings.Repeat("x", 201): {400, ""}, "package:" + hash64: {307, "3"}} {
		resp, body := ask(t, srv, "GET", "/v1/leases/"+leaseID.String()+"/inputs/"+name, w.token(domain.RoleRunner, nil), "", lease...)
		h := resp.Header
		if resp.StatusCode != want.status || h.Get(wire.HeaderBytes) != want.bytes || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v %s", name, resp.StatusCode, h, body)
		}
		if want.status == 307 && (h.Get("Location") != "http://store.invalid/x?X-Amz-Signature=s" || h.Get(wire.HeaderContentSHA256) != hash64 || body != "") {
			t.Errorf("%s: %v %q", name, h, body)
		}
	}
}

func TestPackageRoutes(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator := w.token(domain.RoleOperator, nil)
	for name, header := range map[string][]string{"another digest in the header": {wire.HeaderContentSHA256, digestHex("x")}, "no digest in the header": {wire.HeaderContentSHA256, "x"}} {
		if resp, body := ask(t, srv, "PUT", "/v1/packages/"+hash64, operator, "p", header...); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	for _, bad := range []string{"x", strings.ToUpper(hash64), hash64[1:]} {
		for _, method := range []string{"PUT", "GET"} {
			resp, body := ask(t, srv, method, "/v1/packages/"+bad, operator, "")
			if p := problemIn(t, resp, body); resp.StatusCode != 400 || p.Code != "invalid_digest" {
				t.Errorf("%s %s: %d %s", method, bad, resp.StatusCode, body)
			}
		}
	}
	if len(w.received) != 0 {
		t.Errorf("%d bodies were taken", len(w.received))
	}
	resp, _ := ask(t, srv, "PUT", "/v1/packages/"+hash64, operator, "p", wire.HeaderContentSHA256, hash64)
	if resp.StatusCode != 201 || w.received[0].incoming.SHA256.String() != hash64 || w.lastMeta().Actor.Role != domain.RoleOperator {
		t.Errorf("%d, %+v", resp.StatusCode, w.received)
	}
	resp, _ = ask(t, srv, "GET", "/v1/artifacts/"+attemptID.String(), operator, "")
	if resp.StatusCode != 307 || resp.Header.Get("Location") == "" || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get(wire.HeaderContentSHA256) != hash64 || resp.Header.Get(wire.HeaderBytes) != "7" {
		t.Errorf("%d, %v", resp.StatusCode, resp.Header)
	}
	resp, _ = ask(t, srv, "GET", "/v1/packages/"+hash64, operator, "")
	if resp.StatusCode != 307 || resp.Header.Get(wire.HeaderContentSHA256) != hash64 || resp.Header.Get(wire.HeaderBytes) != "5" {
		t.Errorf("%d, %v", resp.StatusCode, resp.Header)
	}
}

var (
	_ api.Inputs   = (*artifacts.Inputs)(nil)
	_ api.Packages = (*artifacts.Packages)(nil)
)
