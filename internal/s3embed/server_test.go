package s3embed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/internal/s3embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, dir string) *s3embed.Server {
	t.Helper()
	s, err := s3embed.Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func client(t *testing.T, s *s3embed.Server, trailers bool) *minio.Core {
	t.Helper()
	transport, err := minio.DefaultTransport(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := minio.NewCore(s.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Transport: transport,
		Region: "us-east-1", TrailingHeaders: trailers, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func withBucket(t *testing.T) (*s3embed.Server, *minio.Core) {
	t.Helper()
	s := start(t, t.TempDir())
	c := client(t, s, false)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return s, c
}

func put(ctx context.Context, c *minio.Core, key string, data []byte, opts minio.PutObjectOptions) error {
	_, err := c.Client.PutObject(ctx, "bucket", key, bytes.NewReader(data), int64(len(data)), opts)
	return err
}

func get(t *testing.T, c *minio.Core, key string) string {
	t.Helper()
	r, _, _, err := c.GetObject(t.Context(), "bucket", key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func code(err error) string { return minio.ToErrorResponse(err).Code }

func TestObjectsAndKeysSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "s3")
	first := start(t, dir)
	c := client(t, first, false)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	opts := minio.PutObjectOptions{ContentType: "text/x-test", UserMetadata: map[string]string{"Note": "kept"}}
	if err := put(t.Context(), c, "a/b", []byte("content"), opts); err != nil {
		t.Fatal(err)
	}
	if _, err := s3embed.Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second server on the same folder: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "incoming", "put-killed"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := start(t, dir)
	if second.AccessKey != first.AccessKey || second.SecretKey != first.SecretKey {
		t.Error("the keys changed")
	}
	c = client(t, second, false)
	if got := get(t, c, "a/b"); got != "content" {
		t.Errorf("got %q", got)
	}
	info, err := c.StatObject(t.Context(), "bucket", "a/b", minio.StatObjectOptions{})
	if err != nil || info.ContentType != "text/x-test" || info.UserMetadata["Note"] != "kept" {
		t.Errorf("info %+v, %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "incoming")); err != nil || len(left) > 0 {
		t.Errorf("half uploads are left: %v, %v", left, err)
	}
	keys, err := os.Stat(filepath.Join(dir, "keys.json"))
	if err != nil || keys.Mode().Perm() != 0o600 {
		t.Errorf("keys file: %v, %v", keys.Mode(), err)
	}
}

func TestTwoServersHaveDifferentKeys(t *testing.T) {
	a, b := start(t, t.TempDir()), start(t, t.TempDir())
	if a.AccessKey == b.AccessKey || a.SecretKey == b.SecretKey || len(a.SecretKey) < 32 {
		t.Error("keys are not random")
	}
	host, _, err := net.SplitHostPort(a.Endpoint)
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("endpoint %s is not loopback", a.Endpoint)
	}
}

func TestEndOfContextStopsTheServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := s3embed.Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", s.Endpoint); err == nil {
		conn.Close()
		t.Error("the port still answers")
	}
}

func TestStartUnderAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	s, err := s3embed.Start(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	start(t, dir) // the folder is free again
}

func TestDamagedKeysAreNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s3embed.Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "keys.json")); err != nil {
		t.Fatal(err)
	}
	start(t, dir) // the failed start gave the folder back
}

// The forms in which other clients send a body.
func TestChunkedBodies(t *testing.T) {
	s, plain := withBucket(t)
	trailing := client(t, s, true)
	data := bytes.Repeat([]byte("0123456789"), 20_000) // several chunks of 64 KiB
	for name, send := range map[string]func(key string) error{
		"signed chunks": func(key string) error {
			return put(t.Context(), plain, key, data, minio.PutObjectOptions{})
		},
		"signed chunks, signed trailer": func(key string) error {
			return put(t.Context(), trailing, key, data, minio.PutObjectOptions{Checksum: minio.ChecksumCRC32C})
		},
		"unsigned chunks, trailer": func(key string) error {
			return put(t.Context(), trailing, key, data, minio.PutObjectOptions{Checksum: minio.ChecksumCRC64NVME, DisableContentSha256: true})
		},
		"trailer sha256": func(key string) error {
			return put(t.Context(), trailing, key, data, minio.PutObjectOptions{Checksum: minio.ChecksumSHA256, DisableContentSha256: true})
		},
		"trailer sha1": func(key string) error {
			return put(t.Context(), trailing, key, data, minio.PutObjectOptions{Checksum: minio.ChecksumSHA1})
		},
		"trailer crc32": func(key string) error {
			return put(t.Context(), trailing, key, data, minio.PutObjectOptions{Checksum: minio.ChecksumCRC32})
		},
		"unsigned": func(key string) error {
			return put(t.Context(), plain, key, data, minio.PutObjectOptions{DisableContentSha256: true})
		},
		"md5": func(key string) error {
			return put(t.Context(), plain, key, data, minio.PutObjectOptions{SendContentMd5: true})
		},
	} {
		if err := send(name); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if get(t, plain, name) != string(data) {
			t.Errorf("%s: other bytes are stored", name)
		}
	}
}

func TestNotServed(t *testing.T) {
	_, c := withBucket(t)
	ctx := t.Context()
	if err := put(ctx, c, "k", []byte("x"), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	_, multipart := c.NewMultipartUpload(ctx, "bucket", "big", minio.PutObjectOptions{})
	_, copying := c.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: "bucket", Object: "k2"}, minio.CopySrcOptions{Bucket: "bucket", Object: "k"})
	_, tagging := c.GetObjectTagging(ctx, "bucket", "k", minio.GetObjectTaggingOptions{})
	_, policy := c.GetBucketPolicy(ctx, "bucket")
	_, version := c.StatObject(ctx, "bucket", "k", minio.StatObjectOptions{VersionID: "v"})
	for what, err := range map[string]error{
		"multipart": multipart, "copy": copying, "tagging": tagging, "policy": policy, "version": version,
		"versioning": c.EnableVersioning(ctx, "bucket"),
	} {
		if status := minio.ToErrorResponse(err).StatusCode; err == nil || status != http.StatusNotImplemented {
			t.Errorf("%s: %d, %v, want 501", what, status, err)
		}
	}
}

func TestBuckets(t *testing.T) {
	_, c := withBucket(t)
	ctx := t.Context()
	if err := c.MakeBucket(ctx, "bucket", minio.MakeBucketOptions{}); code(err) != "BucketAlreadyExists" {
		t.Errorf("making a bucket twice: %v", err)
	}
	if err := put(ctx, c, "dir/k", []byte("x"), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveBucket(ctx, "bucket"); code(err) != "BucketNotEmpty" {
		t.Errorf("removing a bucket with an object: %v", err)
	}
	if err := c.RemoveObject(ctx, "bucket", "dir/k", minio.RemoveObjectOptions{}); err != nil {
		t.Error(err)
	}
	buckets, err := c.ListBuckets(ctx)
	if err != nil || len(buckets) != 1 || buckets[0].Name != "bucket" {
		t.Errorf("buckets %v, %v", buckets, err)
	}
	if err := c.RemoveBucket(ctx, "bucket"); err != nil {
		t.Errorf("removing an empty bucket: %v", err)
	}
	if found, err := c.BucketExists(ctx, "bucket"); found || err != nil {
		t.Errorf("the removed bucket: %v, %v", found, err)
	}
}

func TestKeysThatFileSystemsDislike(t *testing.T) {
	s, c := withBucket(t)
	keys := []string{"a", "a/b", "a/b/c", "A", "a//b", "..a", "d-x/o-y", "o-a", "é\u2028", strings.Repeat("l", 1000), "trailing/", "%2e%2e/x", "a b+c"}
	for _, key := range keys {
		if err := put(t.Context(), c, key, []byte(key), minio.PutObjectOptions{}); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range keys {
		if got := get(t, c, key); got != key {
			t.Errorf("%q holds %q", key, got)
		}
	}
	var listed []string
	for o := range c.Client.ListObjects(t.Context(), "bucket", minio.ListObjectsOptions{Recursive: true, MaxKeys: 3}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		listed = append(listed, o.Key)
	}
	if len(listed) != len(keys) {
		t.Errorf("listed %d of %d: %q", len(listed), len(keys), listed)
	}
	// Requests that climb; a client library would not send them.
	for _, path := range []string{"/../../etc/passwd", "/bucket/../../../../etc/passwd", "/..%2f..%2fetc/passwd", "/bucket/..%2f..%2fkeys.json"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Endpoint, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = "//" + s.Endpoint + path
		if status, body := do(t, req); status < 400 || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func do(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestListing(t *testing.T) {
	_, c := withBucket(t)
	for _, key := range []string{"a/1", "a/2", "a/b/3", "a1", "b/1", "c"} {
		if err := put(t.Context(), c, key, []byte("x"), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		opts minio.ListObjectsOptions
		want []string
	}{
		{minio.ListObjectsOptions{Recursive: true}, []string{"a/1", "a/2", "a/b/3", "a1", "b/1", "c"}},
		{minio.ListObjectsOptions{}, []string{"a/", "a1", "b/", "c"}},
		{minio.ListObjectsOptions{Prefix: "a"}, []string{"a/", "a1"}},
		{minio.ListObjectsOptions{Prefix: "a/"}, []string{"a/1", "a/2", "a/b/"}},
		{minio.ListObjectsOptions{Prefix: "a/b/", Recursive: true}, []string{"a/b/3"}},
		{minio.ListObjectsOptions{Prefix: "none/x"}, nil},
		{minio.ListObjectsOptions{Recursive: true, StartAfter: "a/b/3"}, []string{"a1", "b/1", "c"}},
	} {
		for _, page := range []int{0, 1, 2} {
			for _, v1 := range []bool{false, true} {
				opts := tt.opts
				opts.MaxKeys, opts.UseV1 = page, v1
				var got []string
				for o := range c.Client.ListObjects(t.Context(), "bucket", opts) {
					if o.Err != nil {
						t.Fatal(o.Err)
					}
					got = append(got, o.Key)
				}
				sortedEqual(t, fmt.Sprintf("%+v", opts), got, tt.want)
			}
		}
	}
}

func sortedEqual(t *testing.T, what string, got, want []string) {
	t.Helper()
	seen := map[string]int{}
	for _, k := range got {
		seen[k]++
	}
	wanted := map[string]int{}
	for _, k := range want {
		wanted[k]++
	}
	if diff := cmp.Diff(wanted, seen); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A file that the disk has damaged is an error of the server, not another object.
func TestDamagedObjectIsNotServed(t *testing.T) {
	dir := t.TempDir()
	c := client(t, start(t, dir), false)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), c, "k", []byte("content"), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "buckets", "bucket", "o-k")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, len("content"), len(whole) / 2, len(whole) - 1} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.StatObject(t.Context(), "bucket", "k", minio.StatObjectOptions{})
		if status := minio.ToErrorResponse(err).StatusCode; status != http.StatusInternalServerError {
			t.Fatalf("cut at byte %d: %d, %v, want 500", cut, status, err)
		}
	}
}

// A writer that goes away in the middle leaves nothing.
func TestHalfUploadLeavesNothing(t *testing.T) {
	_, c := withBucket(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	gone := errors.New("writer gone")
	body := io.MultiReader(strings.NewReader("half"), &failing{gone})
	_, err := c.PutObject(ctx, "bucket", "k", body, 100, "", "", minio.PutObjectOptions{DisableContentSha256: true})
	if !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
	if _, err := c.StatObject(t.Context(), "bucket", "k", minio.StatObjectOptions{}); code(err) != "NoSuchKey" {
		t.Errorf("stat: %v", err)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }
