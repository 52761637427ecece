package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/internal/s3test"
)

func TestOpenRefuses(t *testing.T) {
	good := objects.Config{Endpoint: "127.0.0.1:9", Bucket: "bundles", AccessKey: "a", SecretKey: "s"}
	if _, err := objects.Open(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*objects.Config){
		"no endpoint":          func(c *objects.Config) { c.Endpoint = "" },
		"endpoint with scheme": func(c *objects.Config) { c.Endpoint = "http://127.0.0.1:9" },
		"no bucket":            func(c *objects.Config) { c.Bucket = "" },
		"bucket with a slash":  func(c *objects.Config) { c.Bucket = "a/b" },
		"no access key":        func(c *objects.Config) { c.AccessKey = "" },
		"no secret key":        func(c *objects.Config) { c.SecretKey = "" },
	} {
		c := good
		change(&c)
		if _, err := objects.Open(c); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// every runs each call of a Bucket that goes to the server.
func every(ctx context.Context, b *objects.Bucket) map[string]error {
	_, getErr := b.Get(ctx, "k", 0, -1)
	_, statErr := b.Stat(ctx, "k")
	return map[string]error{
		"put": put(ctx, b, "k", []byte("x")), "get": getErr, "stat": statErr,
		"verify": b.Verify(ctx, "k", 1, bundle.Sum([]byte("x"))), "delete": b.Delete(ctx, "k"),
		"health": b.Health(ctx), "ensure": b.EnsureBucket(ctx), "probe": b.Probe(ctx),
	}
}

func TestServerGoneAndBack(t *testing.T) {
	server := s3test.Server(t)
	b := server.Bucket("test")
	mustPut(t, b, "k", []byte("x"))
	server.Stop()
	begin := time.Now()
	for what, err := range every(t.Context(), b) {
		wantError(t, what, err, objects.ErrUnavailable)
		if errors.Is(err, objects.ErrNotFound) || errors.Is(err, objects.ErrNoBucket) {
			t.Errorf("%s: %v claims to know what is stored", what, err)
		}
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("seven calls to a server that is gone took %s", took)
	}
	server.Restart()
	for what, err := range every(t.Context(), b) {
		if err != nil && what != "get" {
			t.Errorf("after the restart: %s: %v", what, err)
		}
	}
}

func TestFrozenServerIsBoundedByTheContext(t *testing.T) {
	server := s3test.Server(t)
	b := server.Bucket("test")
	server.Pause()
	defer server.Resume()
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return put(ctx, b, "k", pattern(8<<20)) },
		b.Health,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := call(ctx)
		cancel()
		wantError(t, "frozen", err, objects.ErrUnavailable)
		wantError(t, "frozen", err, context.DeadlineExceeded)
	}
}

// A server that dies while it answers must not look like a short object.
func TestBodyCutByTheServer(t *testing.T) {
	b := fakeBucket(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		if _, err := w.Write(make([]byte, 10)); err != nil {
			t.Error(err)
		}
	})
	r, err := b.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	wantError(t, "read", err, objects.ErrUnavailable)
}

func TestAnswersAreClassified(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   error
	}{
		{500, "InternalError", objects.ErrUnavailable},
		{503, "SlowDown", objects.ErrUnavailable},
		{503, "", objects.ErrUnavailable},
		{502, "BadGateway", objects.ErrUnavailable},
		{429, "TooManyRequests", objects.ErrUnavailable},
		{409, "ConditionalRequestConflict", objects.ErrUnavailable},
		{403, "AccessDenied", objects.ErrDenied},
		{401, "", objects.ErrDenied},
		{400, "BadDigest", objects.ErrDigestMismatch},
		{400, "XAmzContentSHA256Mismatch", objects.ErrDigestMismatch},
		{400, "EntityTooLarge", objects.ErrTooLarge},
		{404, "NoSuchBucket", objects.ErrNoBucket},
	} {
		b := fakeBucket(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead { // what a lost conflict looks at
				w.WriteHeader(http.StatusNotFound)
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			w.WriteHeader(tt.status)
			if tt.code != "" {
				fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", tt.code)
			}
		})
		wantError(t, fmt.Sprintf("%d %s", tt.status, tt.code), put(t.Context(), b, "k", []byte("x")), tt.want)
	}
}

func fakeBucket(t *testing.T, handler http.HandlerFunc) *objects.Bucket {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return open(t, objects.Config{
		Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "test", AccessKey: "a", SecretKey: "s", PathStyle: true,
	})
}

// laxServer stores whatever comes under whatever checksum it is told, and gives
// that checksum back, as some S3 servers do.
type laxServer struct {
	mu      sync.Mutex
	objects map[string][]byte
	headers map[string]http.Header
}

func (s *laxServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.objects[r.URL.Path], s.headers[r.URL.Path] = data, r.Header.Clone()
	case http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	default:
		data, ok := s.objects[r.URL.Path]
		if !ok && strings.Count(r.URL.Path, "/") > 2 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		for _, name := range []string{"X-Amz-Checksum-Sha256", "X-Amz-Meta-Sha256"} {
			if v := s.headers[r.URL.Path].Get(name); v != "" {
				w.Header().Set(name, v)
			}
		}
		http.ServeContent(w, r, "", time.Now(), bytes.NewReader(data))
	}
}

func TestChecksumOfALaxServerIsNotBelieved(t *testing.T) {
	lax := &laxServer{objects: map[string][]byte{}, headers: map[string]http.Header{}}
	b := fakeBucket(t, lax.ServeHTTP)
	announced, sent := []byte("announced"), []byte("different")
	if status := upload(t, presignPut(t, b, "k", announced), sent); status != http.StatusOK {
		t.Fatalf("upload: %d", status)
	}
	info, err := b.Stat(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if info.Verified {
		t.Error("the server's word is called verified")
	}
	wantError(t, "verify", b.Verify(t.Context(), "k", int64(len(announced)), bundle.Sum(announced)), objects.ErrDigestMismatch)
	if err := b.Verify(t.Context(), "k", int64(len(sent)), bundle.Sum(sent)); err != nil {
		t.Error(err)
	}
	if len(lax.objects) != 1 {
		t.Errorf("the probe left something behind: %d objects", len(lax.objects))
	}
	// Even there Put never completes a request with wrong bytes.
	err = b.Put(t.Context(), "k2", bytes.NewReader(sent), int64(len(announced)), bundle.Sum(announced), objects.PutOptions{})
	wantError(t, "put", err, objects.ErrDigestMismatch)
	lax.mu.Lock()
	defer lax.mu.Unlock()
	if data, ok := lax.objects["/test/k2"]; ok {
		t.Errorf("%q was stored", data)
	}
}

// The source must be left alone once Put has returned, whatever the transport does.
func TestSourceIsNotReadAfterPut(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				buf := make([]byte, 100)
				// Refuse in the middle of the request.
				if _, err := conn.Read(buf); err == nil {
					fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				}
			})
		}
	}()
	defer conns.Wait()
	defer listener.Close()
	b := open(t, objects.Config{Endpoint: listener.Addr().String(), Bucket: "test", AccessKey: "a", SecretKey: "s", PathStyle: true})
	data := pattern(4 << 20)
	source := &watchedReader{Reader: bytes.NewReader(data)}
	if err := b.Put(t.Context(), "k", source, int64(len(data)), bundle.Sum(data), objects.PutOptions{}); err == nil {
		t.Fatal("the refused put succeeded")
	}
	source.over = true // a later Read would race with this line, which -race reports
}

type watchedReader struct {
	io.Reader
	over bool
}

func (w *watchedReader) Read(p []byte) (int, error) {
	if w.over {
		return 0, errors.New("read after put")
	}
	return w.Reader.Read(p)
}

func TestSpool(t *testing.T) {
	data := pattern(100_000)
	dir := t.TempDir()
	s, err := objects.Spool(t.Context(), dir, iotest.OneByteReader(bytes.NewReader(data)), 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, data) || s.Size != int64(len(data)) || s.SHA256 != bundle.Sum(data) {
		t.Errorf("spooled %d bytes, %s, read %d, %v", s.Size, s.SHA256, len(got), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err := objects.Spool(t.Context(), dir, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Errorf("exactly the limit: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, err = objects.Spool(t.Context(), dir, bytes.NewReader(data), int64(len(data))-1)
	wantError(t, "one byte too many", err, objects.ErrTooLarge)
	broken := errors.New("pipe broke")
	_, err = objects.Spool(t.Context(), dir, iotest.ErrReader(broken), 0)
	wantError(t, "broken source", err, broken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = objects.Spool(ctx, dir, bytes.NewReader(data), 0)
	wantError(t, "canceled", err, context.Canceled)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// A probe that was answered once needs no right to write any more, and believes no
// other bytes.
func TestProbeReadsFirst(t *testing.T) {
	server := s3test.Server(t)
	b := server.Bucket("test")
	if err := b.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	page := "what was stored can be read\n"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		fmt.Fprint(w, page)
	}))
	t.Cleanup(proxy.Close)
	reader, err := objects.Open(objects.Config{Endpoint: strings.TrimPrefix(proxy.URL, "http://"), Bucket: "test", AccessKey: "a", SecretKey: "s", Region: "us-east-1", PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	if err := reader.Probe(t.Context()); err != nil {
		t.Errorf("who may only read: %v", err)
	}
	page = "<html>back soon</html>"
	if err := reader.Probe(t.Context()); !errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("a page in its place: %v", err)
	}
}
