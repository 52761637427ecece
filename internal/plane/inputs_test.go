package plane_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// Of a name the newest counts: the same bytes again are the same artifact, others
// are a new one, and what was there before comes back as a new one.
func TestPutArtifact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	put := func(body string, f client.File) (wire.PutArtifact, bool) {
		t.Helper()
		f.Body, f.ContentType = strings.NewReader(body), "text/yaml"
		a, created, err := w.control.PutArtifact(t.Context(), newKey(), op, "site/vars.yml", "public", f)
		w.must(err)
		return a, created
	}
	sized := func(body string) client.File { return client.File{Bytes: int64(len(body)), SHA256: sha(body)} }
	first, created := put("a: 1\n", sized("a: 1\n"))
	key := "operation-artifacts/" + op.String() + "/site!2Fvars.yml/" + sha("a: 1\n")
	want := wire.PutArtifact{ArtifactID: first.ArtifactID, Name: "site/vars.yml", SHA256: sha("a: 1\n"), Bytes: 5, URI: "s3://artifacts/" + key, Sensitivity: "public", MediaType: "text/yaml"}
	if d := cmp.Diff(want, first, ids); d != "" || !created || first.ArtifactID.IsZero() {
		t.Errorf("created %v: %s", created, d)
	}
	for name, f := range map[string]client.File{"streamed": sized("a: 1\n"), "without a digest": {Bytes: 5}, "without a size": {Bytes: -1}} {
		if again, created := put("a: 1\n", f); created || again != first {
			t.Errorf("%s again: %v, %+v", name, created, again)
		}
	}
	second, created := put("a: 2\n", client.File{Bytes: -1})
	back, createdBack := put("a: 1\n", sized("a: 1\n"))
	if !created || !createdBack || second.ArtifactID == first.ArtifactID || back.ArtifactID == first.ArtifactID || back.URI != first.URI {
		t.Errorf("other bytes: %v %+v; the first ones again: %v %+v", created, second, createdBack, back)
	}
	items, err := w.viewer.PutArtifacts(t.Context(), op)
	w.must(err)
	var got []domain.ArtifactID
	for _, a := range items {
		got = append(got, a.ArtifactID)
	}
	if d := cmp.Diff([]domain.ArtifactID{back.ArtifactID, second.ArtifactID, first.ArtifactID}, got, ids); d != "" {
		t.Errorf("the list: %s", d)
	}
	empty, created, err := w.control.PutArtifact(t.Context(), newKey(), op, "empty", "", client.File{Body: strings.NewReader(""), SHA256: sha("")})
	if err != nil || !created || empty.Bytes != 0 || empty.Sensitivity != "internal" {
		t.Errorf("an empty file: %v, %+v, %v", created, empty, err)
	}
	r, err := projections.Check(t.Context(), w.p.Pool, nil)
	if err != nil || len(r.Differences) > 0 {
		t.Errorf("the read models: %v, %v", r.Differences, err)
	}
}

// A repeated request has one effect and one answer, and another one under its key is
// refused.
func TestPutArtifactIsRepeatable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op, key := newOperation(), newKey()
	put := func(body string) (wire.PutArtifact, bool, error) {
		return w.control.PutArtifact(t.Context(), key, op, "plan", "", client.File{Body: strings.NewReader(body), Bytes: int64(len(body)), SHA256: sha(body)})
	}
	first, created, err := put("one")
	if err != nil || !created {
		t.Fatalf("%v, %v", created, err)
	}
	w.put(op, "plan", "two") // meanwhile
	again, created, err := put("one")
	if err != nil || created || again != first {
		t.Errorf("again: %v, %+v, %v", created, again, err)
	}
	if _, _, err := put("three"); client.CodeOf(err) != "command_id_reused" {
		t.Errorf("another body under the key: %v", err)
	}
	if n := w.events(commands.OperationStream(op)); n != 2 {
		t.Errorf("%d events", n)
	}
}

// Bytes that were stored and not recorded do no harm, and the request again records
// them: the process can end between the two.
func TestPutArtifactHeals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op, key := newOperation(), newKey()
	put := func() (wire.PutArtifact, bool, error) {
		return w.control.PutArtifact(t.Context(), key, op, "plan", "", client.File{Body: strings.NewReader("bytes"), Bytes: 5, SHA256: sha("bytes")})
	}
	w.broken.prefix = "operation/"
	if _, _, err := put(); !client.IsUnavailable(err) {
		t.Fatalf("the append failed: %v", err)
	}
	orphan := bundle.OperationArtifactKey(op.UUID(), "plan", bundle.Sum([]byte("bytes")))
	if err := w.bucket.Verify(t.Context(), orphan, 5, bundle.Sum([]byte("bytes"))); err != nil {
		t.Errorf("the bytes: %v", err)
	}
	if n := w.events(commands.OperationStream(op)); n != 0 {
		t.Errorf("%d events before", n)
	}
	if d, err := w.control.DryRun(t.Context(), encode(t, tcp(op, domain.ArtifactInput{Name: "plan", ArtifactRef: "artifact://operation/plan"}))); err != nil || d.Valid {
		t.Errorf("a job that names them: %+v, %v", d, err)
	}
	if a, created, err := put(); err != nil || !created || a.SHA256 != sha("bytes") {
		t.Errorf("again: %v, %+v, %v", created, a, err)
	}
}

// Whatever goes wrong on the way in, nothing is recorded.
func TestPutArtifactRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	path := "/v1/operations/" + op.String() + "/artifacts/"
	cases := []struct {
		name, path, body string
		header           []string
		status           int
		code             string
	}{
		{"a secret", "plan?sensitivity=secret", "x", nil, 422, "artifact_secret"},
		{"no sensitivity", "plan?sensitivity=private", "x", nil, 400, "query_value"},
		{"a name with a blank", "a%20plan", "x", nil, 422, "artifact_invalid"},
		{"a name with a line end", "plan%0A", "x", nil, 400, "invalid_name"},
		{"a long name", strings.Repeat("x", 201), "x", nil, 400, "invalid_name"},
		{"no digest", "plan", "x", []string{wire.HeaderContentSHA256, "abc"}, 400, "invalid_digest"},
		{"an upper case digest", "plan", "x", []string{wire.HeaderContentSHA256, strings.ToUpper(sha("x"))}, 400, "invalid_digest"},
		{"another digest", "plan", "x", []string{wire.HeaderContentSHA256, sha("y")}, 422, "digest_mismatch"},
		{"another digest of a body of unknown size", "plan", "chunked", []string{wire.HeaderContentSHA256, sha("y"), "unsized", "yes"}, 422, "digest_mismatch"},
		{"no media type", "plan", "x", []string{"Content-Type", ";text"}, 400, "content_type"},
		{"a key that is none", "plan", "x", []string{wire.HeaderIdempotencyKey, "again"}, 400, "invalid_id"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var body io.Reader = strings.NewReader(c.body)
			var header []string
			for i := 0; i < len(c.header); i += 2 {
				if c.header[i] == "unsized" {
					body = io.MultiReader(body) // its length is not told
					continue
				}
				header = append(header, c.header[i], c.header[i+1])
			}
			status, code := w.send(http.MethodPut, path+c.path, w.controlToken, body, header...)
			if status != c.status || code != c.code {
				t.Errorf("%d %s, want %d %s", status, code, c.status, c.code)
			}
		})
	}
	if n := w.events(commands.OperationStream(op)); n != 0 {
		t.Errorf("%d events", n)
	}
	for _, body := range []string{"x", "chunked"} {
		key := bundle.OperationArtifactKey(op.UUID(), "plan", bundle.Sum([]byte(body)))
		if _, err := w.bucket.Stat(t.Context(), key); !errors.Is(err, objects.ErrNotFound) {
			t.Errorf("bytes that were refused are stored: %v", err)
		}
	}
}

// A body that breaks off leaves nothing, whether the size was told or not.
func TestPutArtifactBrokenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	at, err := url.Parse(w.p.URL())
	w.must(err)
	for name, head := range map[string]string{
		"streamed": "Content-Length: 100000\r\nContent-SHA256: " + sha(strings.Repeat("x", 100000)) + "\r\n",
		"spooled":  "Content-Length: 100000\r\n",
		"chunked":  "Transfer-Encoding: chunked\r\n",
	} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
		w.must(err)
		body := strings.Repeat("x", 50000)
		if name == "chunked" {
			body = fmt.Sprintf("%x\r\n%s", 60000, body)
		}
		_, err = fmt.Fprintf(c, "PUT /v1/operations/%s/artifacts/plan HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n%s", op, w.controlToken, head, body)
		w.must(err)
		w.must(c.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(answer), "400 Bad Request") || !strings.Contains(string(answer), "body_broken") {
			t.Errorf("%s: %s, %v", name, answer, err)
		}
		w.must(c.Close())
	}
	if n := w.events(commands.OperationStream(op)); n != 0 {
		t.Errorf("%d events", n)
	}
}

func TestPutArtifactWithoutObjectStorage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	w.stopS3()
	for name, f := range map[string]client.File{"streamed": {Bytes: 1, SHA256: sha("x")}, "spooled": {Bytes: -1}} {
		f.Body = strings.NewReader("x")
		if _, _, err := w.control.PutArtifact(t.Context(), newKey(), op, "plan", "", f); client.CodeOf(err) != "storage_unavailable" || !client.IsUnavailable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.events(commands.OperationStream(op)); n != 0 {
		t.Errorf("%d events", n)
	}
}
