package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/internal/s3test"
)

// TestConformance is what every S3 server that this project is used with must do.
func TestConformance(t *testing.T) {
	servers := map[string]func(t *testing.T) objects.Config{
		"embedded": func(t *testing.T) objects.Config {
			s, err := s3embed.Start(t.Context(), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return objects.Config{Endpoint: s.Endpoint, Bucket: "test", AccessKey: s.AccessKey, SecretKey: s.SecretKey, PathStyle: true}
		},
		"peer": func(t *testing.T) objects.Config { return s3test.Server(t).Config("test") },
	}
	cases := []struct {
		name string
		run  func(*testing.T, *objects.Bucket, objects.Config)
	}{
		{"round trip", roundTrip},
		{"keys of a bundle", bundleKeys},
		{"a key is written once", writtenOnce},
		{"writers race with different bytes", raceDifferent},
		{"writers race with the same bytes", raceSame},
		{"a source that is not what was announced", wrongSource},
		{"a source that fails", failingSource},
		{"ranges", ranges},
		{"missing object", missingObject},
		{"missing bucket", missingBucket},
		{"ensuring a bucket twice", ensureTwice},
		{"wrong credentials", wrongCredentials},
		{"unsigned requests", unsignedRequests},
		{"presigned upload", presignedUpload},
		{"presigned upload of other bytes", presignedOtherBytes},
		{"presigned download", presignedDownload},
		{"delete", deleteObject},
		{"canceled", canceled},
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			config := start(t)
			for i, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					config := config
					config.Bucket = fmt.Sprintf("bucket-%d", i)
					b := open(t, config)
					if err := b.EnsureBucket(t.Context()); err != nil {
						t.Fatal(err)
					}
					c.run(t, b, config)
				})
			}
		})
	}
}

func open(t *testing.T, config objects.Config) *objects.Bucket {
	t.Helper()
	b, err := objects.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func put(ctx context.Context, b *objects.Bucket, key string, data []byte) error {
	return b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), bundle.Sum(data), objects.PutOptions{})
}

func mustPut(t *testing.T, b *objects.Bucket, key string, data []byte) {
	t.Helper()
	if err := put(t.Context(), b, key, data); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, b *objects.Bucket, key string, offset, length int64) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), key, offset, length)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	return data
}

func roundTrip(t *testing.T, b *objects.Bucket, _ objects.Config) {
	for _, size := range []int{0, 1, 64 << 10, 1<<20 + 1, 17 << 20} {
		data := pattern(size)
		key := fmt.Sprintf("sizes/%d", size)
		// A reader without Seek, as of a pipe.
		err := b.Put(t.Context(), key, iotest.HalfReader(bytes.NewReader(data)), int64(size), bundle.Sum(data), objects.PutOptions{ContentType: "text/x-test"})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := get(t, b, key, 0, -1); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d other ones", size, len(got))
		}
		info, err := b.Stat(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size != int64(size) || info.SHA256 != bundle.Sum(data) || !info.Verified || info.ContentType != "text/x-test" || info.Modified.IsZero() {
			t.Errorf("%d bytes: info %+v", size, info)
		}
		if err := b.Verify(t.Context(), key, int64(size), bundle.Sum(data)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func bundleKeys(t *testing.T, b *objects.Bucket, _ objects.Config) {
	for _, node := range []string{"n", "..", "a/b c", "é?&=+#%", strings.Repeat("x/", 300)} {
		p := bundle.Prefix(uuid.New(), node, uuid.New())
		data := []byte(node)
		for _, key := range []string{
			bundle.LogChunkKey(p, bundle.Stdout, 0, bundle.Sum(data)),
			bundle.ArtifactKey(p, node, bundle.Sum(data)),
			bundle.ManifestKey(p, bundle.Sum(data)),
		} {
			mustPut(t, b, key, data)
			if got := get(t, b, key, 0, -1); !bytes.Equal(got, data) {
				t.Errorf("%s holds %q", key, got)
			}
		}
	}
}

func writtenOnce(t *testing.T, b *objects.Bucket, _ objects.Config) {
	mustPut(t, b, "k", []byte("first"))
	mustPut(t, b, "k", []byte("first"))
	wantError(t, "other bytes of the same size", put(t.Context(), b, "k", []byte("other")), objects.ErrDifferent)
	wantError(t, "other size", put(t.Context(), b, "k", []byte("first, and more")), objects.ErrDifferent)
	wantError(t, "nothing", put(t.Context(), b, "k", nil), objects.ErrDifferent)
	if got := get(t, b, "k", 0, -1); string(got) != "first" {
		t.Errorf("the object is now %q", got)
	}
}

const writers = 16

func race(t *testing.T, b *objects.Bucket, content func(i int) []byte) (won []int, lost []error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, writers)
	begin := make(chan struct{})
	for i := range writers {
		wg.Go(func() {
			<-begin
			errs[i] = put(t.Context(), b, "raced", content(i))
		})
	}
	close(begin)
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			won = append(won, i)
		} else {
			lost = append(lost, err)
		}
	}
	return won, lost
}

func raceDifferent(t *testing.T, b *objects.Bucket, _ objects.Config) {
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100_000) }
	won, lost := race(t, b, content)
	if len(won) != 1 {
		t.Fatalf("writers %v won, want one; the others: %v", won, lost)
	}
	for _, err := range lost {
		// A server may also ask a loser to come back later.
		if !errors.Is(err, objects.ErrDifferent) && !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("a loser got %v", err)
		}
	}
	if got := get(t, b, "raced", 0, -1); !bytes.Equal(got, content(won[0])) {
		t.Errorf("writer %d won, but other bytes are stored", won[0])
	}
}

func raceSame(t *testing.T, b *objects.Bucket, _ objects.Config) {
	content := pattern(100_000)
	won, lost := race(t, b, func(int) []byte { return content })
	for _, err := range lost {
		if !errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("a writer of the same bytes got %v", err)
		}
	}
	if len(won) == 0 {
		t.Error("nobody won")
	}
	mustPut(t, b, "raced", content)
}

func wrongSource(t *testing.T, b *objects.Bucket, _ objects.Config) {
	data := pattern(200_000)
	sum := bundle.Sum(data)
	changed := bytes.Clone(data)
	changed[len(changed)-1]++
	for name, source := range map[string]io.Reader{
		"a changed byte":             bytes.NewReader(changed),
		"a changed byte, unseekable": io.MultiReader(bytes.NewReader(changed)),
		"too short":                  bytes.NewReader(data[:len(data)-1]),
		"empty":                      strings.NewReader(""),
		"too long":                   io.MultiReader(bytes.NewReader(data), strings.NewReader("x")),
	} {
		err := b.Put(t.Context(), "k", source, int64(len(data)), sum, objects.PutOptions{})
		wantError(t, name, err, objects.ErrDigestMismatch)
		_, err = b.Stat(t.Context(), "k")
		wantError(t, name+": afterwards", err, objects.ErrNotFound)
	}
	err := b.Put(t.Context(), "k", strings.NewReader("x"), 0, bundle.Sum(nil), objects.PutOptions{})
	wantError(t, "something where nothing was announced", err, objects.ErrDigestMismatch)
	err = b.Put(t.Context(), "k", strings.NewReader(""), 0, sum, objects.PutOptions{})
	wantError(t, "nothing with a digest of something", err, objects.ErrDigestMismatch)
	if err := b.Put(t.Context(), "k", bytes.NewReader(data), -1, sum, objects.PutOptions{}); err == nil || !strings.Contains(err.Error(), "spool") {
		t.Errorf("unknown size: error %v, want one that says to spool", err)
	}
	if err := b.Put(t.Context(), "k", bytes.NewReader(data), int64(len(data)), bundle.SHA256{}, objects.PutOptions{}); err == nil {
		t.Error("an unknown digest was accepted")
	}
	err = b.Put(t.Context(), "k", bytes.NewReader(data), objects.MaxObject+1, sum, objects.PutOptions{})
	wantError(t, "too large", err, objects.ErrTooLarge)
	mustPut(t, b, "k", data)
}

func failingSource(t *testing.T, b *objects.Bucket, _ objects.Config) {
	broken := errors.New("disk gone")
	data := pattern(200_000)
	err := b.Put(t.Context(), "k", io.MultiReader(bytes.NewReader(data[:100_000]), iotest.ErrReader(broken)), int64(len(data)), bundle.Sum(data), objects.PutOptions{})
	wantError(t, "put", err, broken)
	if errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("%v blames the server", err)
	}
	_, err = b.Stat(t.Context(), "k")
	wantError(t, "afterwards", err, objects.ErrNotFound)
}

func ranges(t *testing.T, b *objects.Bucket, _ objects.Config) {
	data := pattern(1000)
	mustPut(t, b, "k", data)
	for _, r := range []struct{ offset, length, end int64 }{
		{0, 1, 1}, {0, 1000, 1000}, {0, 5000, 1000}, {999, 1, 1000}, {999, 50, 1000}, {500, -1, 1000}, {10, 20, 30}, {0, 0, 0}, {500, 0, 500},
	} {
		if got := get(t, b, "k", r.offset, r.length); !bytes.Equal(got, data[r.offset:r.end]) {
			t.Errorf("offset %d, length %d: got %d bytes", r.offset, r.length, len(got))
		}
	}
	for _, offset := range []int64{1000, 5000} {
		_, err := b.Get(t.Context(), "k", offset, 10)
		wantError(t, fmt.Sprintf("offset %d", offset), err, objects.ErrRange)
		_, err = b.Get(t.Context(), "k", offset, -1)
		wantError(t, fmt.Sprintf("offset %d to the end", offset), err, objects.ErrRange)
	}
	if _, err := b.Get(t.Context(), "k", -1, 10); err == nil {
		t.Error("a negative offset was accepted")
	}
	mustPut(t, b, "empty", nil)
	if got := get(t, b, "empty", 0, 10); len(got) != 0 {
		t.Errorf("an empty object gave %q", got)
	}
}

func missingObject(t *testing.T, b *objects.Bucket, _ objects.Config) {
	_, err := b.Get(t.Context(), "none", 0, -1)
	wantError(t, "get", err, objects.ErrNotFound)
	_, err = b.Get(t.Context(), "none", 5, 5)
	wantError(t, "get a range", err, objects.ErrNotFound)
	_, err = b.Get(t.Context(), "none", 0, 0)
	wantError(t, "get nothing", err, objects.ErrNotFound)
	_, err = b.Stat(t.Context(), "none")
	wantError(t, "stat", err, objects.ErrNotFound)
	wantError(t, "verify", b.Verify(t.Context(), "none", 1, bundle.Sum(nil)), objects.ErrNotFound)
	if errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("%v says unavailable too", err)
	}
}

func missingBucket(t *testing.T, _ *objects.Bucket, config objects.Config) {
	config.Bucket = "nowhere"
	b := open(t, config)
	_, getErr := b.Get(t.Context(), "k", 0, -1)
	_, statErr := b.Stat(t.Context(), "k")
	for what, err := range map[string]error{
		"health": b.Health(t.Context()), "put": put(t.Context(), b, "k", []byte("x")), "get": getErr, "stat": statErr,
	} {
		wantError(t, what, err, objects.ErrNoBucket)
		wantError(t, what, err, objects.ErrUnavailable)
		if errors.Is(err, objects.ErrNotFound) {
			t.Errorf("%s: %v says that the object does not exist", what, err)
		}
	}
}

func ensureTwice(t *testing.T, b *objects.Bucket, config objects.Config) {
	mustPut(t, b, "k", []byte("x"))
	config.Bucket = "fresh"
	fresh := open(t, config)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := fresh.EnsureBucket(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.EnsureBucket(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := get(t, b, "k", 0, -1); string(got) != "x" {
		t.Errorf("ensuring the bucket changed the object to %q", got)
	}
}

func wrongCredentials(t *testing.T, right *objects.Bucket, config objects.Config) {
	mustPut(t, right, "k", []byte("x"))
	for name, change := range map[string]func(*objects.Config){
		"wrong secret": func(c *objects.Config) { c.SecretKey += "x" },
		"wrong key":    func(c *objects.Config) { c.AccessKey += "x" },
	} {
		config := config
		change(&config)
		b := open(t, config)
		_, err := b.Get(t.Context(), "k", 0, -1)
		wantError(t, name+": get", err, objects.ErrDenied)
		wantError(t, name+": put", put(t.Context(), b, "k2", []byte("x")), objects.ErrDenied)
		// HEAD has no body, and some servers answer it 404 to an unknown key.
		// Nobody may conclude then that the object does not exist.
		_, err = b.Stat(t.Context(), "k")
		for what, err := range map[string]error{"health": b.Health(t.Context()), "stat": err} {
			if !errors.Is(err, objects.ErrDenied) && !errors.Is(err, objects.ErrNoBucket) || errors.Is(err, objects.ErrNotFound) {
				t.Errorf("%s: %s: error %v, want denied or no bucket", name, what, err)
			}
		}
	}
}

func unsignedRequests(t *testing.T, b *objects.Bucket, config objects.Config) {
	mustPut(t, b, "k", []byte("x"))
	url := "http://" + config.Endpoint + "/" + config.Bucket
	for _, r := range []struct{ method, url string }{
		{http.MethodGet, url + "/k"}, {http.MethodPut, url + "/k2"}, {http.MethodDelete, url + "/k"}, {http.MethodGet, url}, {http.MethodGet, "http://" + config.Endpoint + "/"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, r.url, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		if status := do(t, req); status != http.StatusForbidden {
			t.Errorf("%s %s: %d, want 403", r.method, r.url, status)
		}
	}
	if got := get(t, b, "k", 0, -1); string(got) != "x" {
		t.Errorf("the object is now %q", got)
	}
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func do(t *testing.T, req *http.Request) int {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// upload sends data as a runner would that holds nothing but p.
func upload(t *testing.T, p objects.Presigned, data []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), p.Method, p.URL, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = p.Header.Clone()
	return do(t, req)
}

func presignPut(t *testing.T, b *objects.Bucket, key string, data []byte) objects.Presigned {
	t.Helper()
	p, err := b.PresignPut(t.Context(), key, int64(len(data)), bundle.Sum(data), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func presignedUpload(t *testing.T, b *objects.Bucket, _ objects.Config) {
	for _, data := range [][]byte{pattern(300_000), {}} {
		key := fmt.Sprintf("dir/a b+%d", len(data))
		p := presignPut(t, b, key, data)
		if status := upload(t, p, data); status != http.StatusOK {
			t.Fatalf("upload: %d", status)
		}
		if err := b.Verify(t.Context(), key, int64(len(data)), bundle.Sum(data)); err != nil {
			t.Error(err)
		}
		if status := upload(t, p, data); status != http.StatusPreconditionFailed {
			t.Errorf("second upload: %d, want 412", status)
		}
	}
	for _, ttl := range []time.Duration{0, 8 * 24 * time.Hour} {
		if _, err := b.PresignPut(t.Context(), "k", 1, bundle.Sum(nil), ttl); err == nil {
			t.Errorf("a right for %s was given", ttl)
		}
	}
}

func presignedOtherBytes(t *testing.T, b *objects.Bucket, _ objects.Config) {
	data := pattern(1000)
	changed := bytes.Clone(data)
	changed[0]++
	for name, sent := range map[string][]byte{"changed": changed, "shorter": data[:999], "longer": append(data[:1000:1000], 'x')} {
		key := "k-" + name
		status := upload(t, presignPut(t, b, key, data), sent)
		err := b.Verify(t.Context(), key, int64(len(data)), bundle.Sum(data))
		t.Logf("%s: upload answered %d, verification says %v", name, status, err)
		if err == nil || errors.Is(err, objects.ErrUnavailable) {
			t.Errorf("%s: other bytes pass for the announced ones", name)
		}
	}
	// Without the signed headers the right is void.
	p := presignPut(t, b, "k-bare", data)
	p.Header = http.Header{}
	if status := upload(t, p, data); status < 400 {
		t.Errorf("an upload without its signed headers was answered %d", status)
	}
	// The right is for one key.
	p = presignPut(t, b, "k-one", data)
	p.URL = strings.Replace(p.URL, "k-one", "k-two", 1)
	if status := upload(t, p, data); status != http.StatusForbidden {
		t.Errorf("an upload to another key was answered %d", status)
	}
}

func presignedDownload(t *testing.T, b *objects.Bucket, _ objects.Config) {
	mustPut(t, b, "report", []byte("text"))
	p, err := b.PresignGet(t.Context(), "report", time.Minute, "my report.txt")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), p.Method, p.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || string(data) != "text" || resp.StatusCode != http.StatusOK {
		t.Errorf("download: %s, %q, %v", resp.Status, data, err)
	}
	if got := resp.Header.Get("Content-Disposition"); got != "attachment; filename*=UTF-8''my%20report.txt" {
		t.Errorf("Content-Disposition is %q", got)
	}
	put := req.Clone(t.Context())
	put.Method = http.MethodPut
	if status := do(t, put); status != http.StatusForbidden {
		t.Errorf("writing with the right to read: %d, want 403", status)
	}
}

func deleteObject(t *testing.T, b *objects.Bucket, _ objects.Config) {
	mustPut(t, b, "dir/k", []byte("x"))
	for range 2 {
		if err := b.Delete(t.Context(), "dir/k"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Stat(t.Context(), "dir/k")
	wantError(t, "stat", err, objects.ErrNotFound)
	mustPut(t, b, "dir/k", []byte("another"))
}

func canceled(t *testing.T, b *objects.Bucket, _ objects.Config) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := put(ctx, b, "k", []byte("x"))
	wantError(t, "put", err, context.Canceled)
	if errors.Is(err, objects.ErrUnavailable) {
		t.Errorf("%v blames the server", err)
	}
}
