package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func problemIn(t *testing.T, resp *http.Response, body string) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("status %d, %s: not a problem document: %q", resp.StatusCode, resp.Header.Get("Content-Type"), body)
	}
	if p.Status != resp.StatusCode || p.Code == "" || p.Title == "" || p.Detail == "" {
		t.Errorf("status %d: the problem says %+v", resp.StatusCode, p)
	}
	return p
}

func TestBadJobSpecIsMalformedAndWritesNothing(t *testing.T) {
	edit := func(old, with string) string {
		if !strings.Contains(jobSpec, old) {
			t.Fatalf("the sample does not hold %s", old)
		}
		return strings.Replace(jobSpec, old, with, 1)
	}
	id := attemptID.String()
	cases := []struct{ name, body, pointer string }{
		{"empty", " ", ""},
		{"not JSON", "{", ""},
		{"null", "null", ""},
		{"an array", "[]", ""},
		{"two values", jobSpec + "{}", ""},
		{"wrapped", `{"job_spec":` + jobSpec + `}`, "/job_spec"},
		{"unknown field", edit(`"plan_node_id"`, `"surprise":1,"plan_node_id"`), "/surprise"},
		{"unknown nested field", edit(`"timeout_seconds"`, `"retries":3,"timeout_seconds"`), "/controls/retries"},
		{"duplicate field", edit(`"job_type"`, `"attempt_id":"a0000000-0000-4000-8000-000000000002","job_type"`), "/attempt_id"},
		{"other case", edit(`"plan_node_id"`, `"Plan_Node_Id"`), "/Plan_Node_Id"},
		{"long s", edit(`"resource_id"`, `"reſource_id"`), "/target/resources/0/reſource_id"},
		{"wrong type", edit(`"timeout_seconds":30`, `"timeout_seconds":"30"`), "/controls/timeout_seconds"},
		{"fraction", edit(`"timeout_seconds":30`, `"timeout_seconds":30.5`), "/controls/timeout_seconds"},
		{"large integer", edit(`"resource_id":"db/1"}`, `"n":9007199254740993}`), "/inputs/parameters/n"},
		{"NUL", edit(`"probe"`, `"pro\u0000be"`), "/plan_node_id"},
		{"NUL in parameters", edit(`"parameters":{`, `"parameters":{"a":"x\u0000y",`), "/inputs/parameters/a"},
		{"NUL in a key", edit(`"parameters":{`, `"parameters":{"a\u0000":1,`), "/inputs/parameters"},
		{"half a surrogate", edit(`"probe"`, `"pro\ud800be"`), "/plan_node_id"},
		{"not UTF-8", edit(`"probe"`, "\"pro\xffbe\""), "/plan_node_id"},
		{"upper case id", edit(id, strings.ToUpper(id)), "/attempt_id"},
		{"id without dashes", edit(id, strings.ReplaceAll(id, "-", "")), "/attempt_id"},
		{"id as URN", edit(id, "urn:uuid:"+id), "/attempt_id"},
		{"id in braces", edit(id, "{"+id+"}"), "/attempt_id"},
		{"id in brackets", edit(id, "("+id+")"), "/attempt_id"},
		{"id with a line end", edit(id, id+`\n`), "/attempt_id"},
		{"full-width digits", edit(id, strings.Replace(id, "1", "１", 1)), "/attempt_id"},
		{"nil id", edit(id, uuid.Nil.String()), "/attempt_id"},
		{"empty id", edit(id, ""), "/attempt_id"},
		{"empty optional id", edit(`"job_type"`, `"retry_of":"","job_type"`), "/retry_of"},
		{"too deep", edit(`"parameters":{"resource_id":"db/1"}`, `"parameters":{"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`}`), "/inputs/parameters/a" + strings.Repeat("/0", 29)},
		{"much too large", edit(`"probe"`, `"`+strings.Repeat("x", 5<<20)+`"`), ""},
		{"too large", edit(`"probe"`, `"`+strings.Repeat("x", api.MaxBody)+`"`), ""},
	}
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleControlPlane, nil)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp, body := ask(t, srv, "POST", "/v1/attempts", token, c.body)
			if resp.StatusCode != http.StatusBadRequest {
				t.Fatalf("status %d, want 400: %s", resp.StatusCode, body)
			}
			if p := problemIn(t, resp, body); p.Pointer != c.pointer {
				t.Errorf("the pointer is %q, want %q (%s)", p.Pointer, c.pointer, p.Detail)
			}
		})
	}
	if len(w.metas) != 0 {
		t.Errorf("%d malformed requests reached a command", len(w.metas))
	}
}

func TestInvalidJobSpecNamesEveryViolation(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	resp, body := ask(t, srv, "POST", "/v1/attempts", w.token(domain.RoleControlPlane, nil), strings.Replace(jobSpec, `"verification"`, `"cobol"`, 1))
	if resp.StatusCode != http.StatusUnprocessableEntity {
		t.Fatalf("status %d, want 422: %s", resp.StatusCode, body)
	}
	if p := problemIn(t, resp, body); len(p.Violations) != 2 || p.Violations[0].Pointer != "/job_type" {
		t.Errorf("the violations are %+v", p.Violations)
	}
}

func TestPathIDsAreCanonical(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	operator, runner := w.token(domain.RoleOperator, nil), w.token(domain.RoleRunner, nil)
	for _, r := range api.Routes() {
		if !strings.Contains(r.Path, "{id}") {
			continue
		}
		q := sampleOf(t, r)
		token := operator
		if roleFor(r) == domain.RoleRunner {
			token = runner
		}
		id := strings.Split(q.path, "/")[3]
		for _, bad := range []string{strings.ToUpper(id), strings.ReplaceAll(id, "-", ""), "%7B" + id + "%7D", strings.Replace(id, "0", "%30", 1), id + "%00", id + "%0A", uuid.Nil.String(), "x"} {
			resp, body := ask(t, srv, q.method, strings.Replace(q.path, id, bad, 1), token, q.body, q.header...)
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s %s with the id %s: status %d, want 400: %s", r.Method, r.Path, bad, resp.StatusCode, body)
			} else if p := problemIn(t, resp, body); p.Code != "invalid_id" {
				t.Errorf("%s %s with the id %s: code %s", r.Method, r.Path, bad, p.Code)
			}
		}
	}
}

func TestPathsHaveOneSpelling(t *testing.T) {
	srv := newWorld().serve(t, nil)
	for _, path := range []string{"/v1//attempts", "/v1/attempts/", "/v1/./attempts", "/V1/attempts", "/v1/x/../attempts", "/", "/v2", "/v1/attempts/a/b/c", "/livez/"} {
		resp, body := ask(t, srv, "GET", path, "", "")
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: status %d, want 404: %s", path, resp.StatusCode, body)
		} else {
			problemIn(t, resp, body)
		}
	}
	for path, allow := range map[string]string{"/v1/attempts": "GET, POST", "/v1/callbacks/replay": "POST", "/v1/callbacks/" + callbackID.String(): "GET"} {
		resp, body := ask(t, srv, "DELETE", path, "", "")
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != allow {
			t.Errorf("DELETE %s: status %d, Allow %q: %s", path, resp.StatusCode, resp.Header.Get("Allow"), body)
		}
	}
}

func TestQueriesAreStrict(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleOperator, nil)
	for _, r := range api.Routes() {
		if r.Public() || r.Lease || roleFor(r) == domain.RoleRunner {
			continue
		}
		q := sampleOf(t, r)
		resp, body := ask(t, srv, q.method, q.path+"?surprise=1", token, q.body, q.header...)
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s?surprise=1: status %d, want 400: %s", r.Method, r.Path, resp.StatusCode, body)
		}
		for _, name := range r.Query {
			resp, body := ask(t, srv, q.method, q.path+"?"+name+"=1&"+name+"=1", token, q.body, q.header...)
			if p := problemIn(t, resp, body); p.Code != "query_repeated" {
				t.Errorf("%s %s with %s twice: %d %s, want query_repeated", r.Method, r.Path, name, resp.StatusCode, p.Code)
			}
		}
	}
	a := "/v1/attempts/" + attemptID.String()
	for _, path := range []string{
		"/v1/attempts?limit=0", "/v1/attempts?limit=501", "/v1/attempts?limit=+5", "/v1/attempts?limit=05", "/v1/attempts?limit=", "/v1/attempts?since=yesterday",
		"/v1/attempts?operation_id=" + strings.ToUpper(operationID.String()), "/v1/attempts?status=a%00b", "/v1/attempts?status=%ff", "/v1/attempts?a;b",
		"/v1/attempts?id_prefix=A0", "/v1/attempts?status=%zz", a + "/result?wait=31", a + "/result?wait=-1", a + "/result?wait=1s", a + "/log?stream=stdin", a + "/log?offset=-1",
		a + "/log?follow=1", a + "/log?follow=true&limit=5", a + "/state?version=1&at=2026-01-01T00:00:00Z", a + "/state?version=0", "/v1/events?after=7", "/v1/results?after=1.02", a + "/events?after=-1",
	} {
		if resp, body := ask(t, srv, "GET", path, token, ""); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("GET %s: status %d, want 400: %s", path, resp.StatusCode, body)
		}
	}
	if resp, _ := ask(t, srv, "GET", "/livez?probe=kubelet", "", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("GET /livez with a query: status %d, want 200", resp.StatusCode)
	}
}

func TestHeadersOfWrites(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	for _, r := range api.Routes() {
		if r.Key != api.KeyRequired {
			continue
		}
		q := sampleOf(t, r)
		for name, key := range map[string]string{"none": "", "upper case": strings.ToUpper(uuid.NewString()), "nil": uuid.Nil.String(), "text": "again"} {
			resp, body := ask(t, srv, q.method, q.path, runner, q.body, append(q.header, wire.HeaderIdempotencyKey, key)...)
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with the key %s: status %d, want 400: %s", r.Path, name, resp.StatusCode, body)
			}
		}
		if !r.Lease {
			continue
		}
		for _, h := range [][]string{{wire.HeaderLeaseEpoch, "01"}, {wire.HeaderLeaseEpoch, "0"}, {wire.HeaderLeaseEpoch, ""}, {wire.HeaderLeaseToken, ""}, {wire.HeaderLeaseToken, "with a blank in it"}} {
			resp, body := ask(t, srv, q.method, q.path, runner, q.body, append(q.header, h...)...)
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s with %s %q: status %d, want 400: %s", r.Path, h[0], h[1], resp.StatusCode, body)
			}
		}
	}
	resp, body := ask(t, srv, "POST", "/v1/attempts", w.token(domain.RoleControlPlane, nil), jobSpec, wire.HeaderIdempotencyKey, uuid.NewString())
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a submit under another key than its attempt_id: status %d, want 400: %s", resp.StatusCode, body)
	}
}

func TestLeaseRefusalsFollowTheirOrder(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	for _, r := range api.Routes() {
		if !r.Lease {
			continue
		}
		q := sampleOf(t, r)
		post := func(path string, header ...string) int {
			resp, _ := ask(t, srv, q.method, path, runner, q.body, append(q.header, header...)...)
			return resp.StatusCode
		}
		if got := post(q.path, wire.HeaderLeaseEpoch, "2"); got != http.StatusConflict {
			t.Errorf("%s with another epoch: status %d, want 409", r.Path, got)
		}
		if got := post(q.path, wire.HeaderLeaseToken, "another-lease-token-0"); got != http.StatusForbidden {
			t.Errorf("%s with another's lease token: status %d, want 403", r.Path, got)
		}
		if got := post(strings.Replace(q.path, leaseID.String(), uuid.NewString(), 1)); got != http.StatusNotFound {
			t.Errorf("%s with an unknown lease: status %d, want 404", r.Path, got)
		}
		w.mu.Lock()
		w.closed = true
		w.mu.Unlock()
		if got := post(q.path, wire.HeaderLeaseEpoch, "2"); got != http.StatusGone {
			t.Errorf("%s of an attempt that has ended: status %d, want 410", r.Path, got)
		}
		w.mu.Lock()
		w.closed = false
		w.mu.Unlock()
	}
}

// A runner's report repeats what a tool printed. It is stored, whatever that was.
func TestOddTextOfRunnersIsMadeStorable(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	runner := w.token(domain.RoleRunner, nil)
	odd := `a\u0000b\ud800c` + "\xff" + `\ud83d\ude00\\u0000\u001b[31m`
	want := "a\ufffdb\ufffdc\ufffd😀\\u0000\x1b[31m"
	for path, body := range map[string]string{
		"/v1/leases/{id}/evidence":  `{"name":"up","type":"api_check","result":"passed","source":"stdout","observed_at":"2026-03-01T12:00:00Z","detail":"` + odd + `"}`,
		"/v1/leases/{id}/complete":  `{"result":"task_failed","launched":true,"code":1,"finished_at":"2026-03-01T12:00:00Z","logs":[],"artifacts":0,"environment":{"version":"` + odd + `"}}`,
		"/v1/runners/{id}/report":   `{"leases":[{"lease_id":"` + leaseID.String() + `","epoch":1,"token":"` + leaseToken + `","progress":{"phase":"x","done":0,"total":0,"message":"` + odd + `"}}]}`,
		"/v1/leases/{id}/artifacts": `{"name":"r","type":"report","sensitivity":"internal","bytes":0,"sha256":"","inline":{"version":"` + odd + `"}}`,
	} {
		for _, r := range api.Routes() {
			if r.Path != path {
				continue
			}
			q := sampleOf(t, r)
			resp, answer := ask(t, srv, q.method, q.path, runner, body, q.header...)
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d, want 200: %s", path, resp.StatusCode, answer)
				continue
			}
			got := w.texts[len(w.texts)-1]
			if strings.HasPrefix(got, "{") {
				var v struct{ Version string }
				if err := json.Unmarshal([]byte(got), &v); err != nil {
					t.Fatal(err)
				}
				got = v.Version
			}
			if got != want {
				t.Errorf("%s: the text became %q, want %q", path, got, want)
			}
		}
	}
}

func TestEveryWriteCarriesItsMeta(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	key := uuid.NewString()
	ask(t, srv, "POST", "/v1/attempts/"+attemptID.String()+"/cancel", w.token(domain.RoleControlPlane, nil), `{"reason":"x"}`, wire.HeaderIdempotencyKey, key, "traceparent", trace)
	m := w.lastMeta()
	if m.CommandID.String() != key || m.TraceParent != trace || m.Actor.Kind != domain.RoleControlPlane || m.Actor.ID != "the control-plane" || m.Actor.Auth != "token" {
		t.Errorf("the command's meta is %+v", m)
	}
	ask(t, srv, "POST", "/v1/attempts/"+attemptID.String()+"/cancel", w.token(domain.RoleControlPlane, nil), `{"reason":"y"}`, wire.HeaderIdempotencyKey, key, "traceparent", "nonsense")
	if n := w.lastMeta(); n.Digest == m.Digest || n.TraceParent != "" {
		t.Errorf("another body under the same key has the same digest, or a broken traceparent was kept: %+v", n)
	}
	ask(t, srv, "POST", "/v1/attempts/"+attemptID.String()+"/abort", w.token(domain.RoleOperator, nil), `{"reason":"y"}`)
	if n := w.lastMeta(); n.CommandID.IsZero() {
		t.Error("a request without a key got no command id")
	}
	ask(t, srv, "POST", "/v1/attempts", w.token(domain.RoleControlPlane, nil), jobSpec)
	if n := w.lastMeta(); n.CommandID.String() != attemptID.String() {
		t.Errorf("a submit's command id is %s, want the attempt_id", n.CommandID)
	}
}
