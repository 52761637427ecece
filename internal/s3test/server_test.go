package s3test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
)

func TestServerKeepsItsDataOverAStop(t *testing.T) {
	p := Server(t)
	b := p.Bucket("kept")
	data := []byte("content")
	if err := b.Put(t.Context(), "k", bytes.NewReader(data), int64(len(data)), bundle.Sum(data), objects.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if err := b.Health(t.Context()); err == nil {
		t.Error("a stopped server answers")
	}
	p.Restart()
	r, err := b.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestServersAreApart(t *testing.T) {
	a, b := Server(t), Server(t)
	if a.Endpoint == b.Endpoint || a.SecretKey == b.SecretKey {
		t.Errorf("two servers share %s or their keys", a.Endpoint)
	}
}

// Without the binary a test must fail with the line that builds it.
func TestMissingBinaryIsNamed(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "make peers-s3") {
		t.Errorf("nothing built: %q, %v", path, err)
	}
	dir := filepath.Join(cache, "execution-plane", "peers", "s3")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	stamp := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "stamp"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stamp("another module\ngo version")
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("another one built: %q, %v", path, err)
	}
	sum, err := moduleSum()
	if err != nil {
		t.Fatal(err)
	}
	stamp(sum + "\ngo version")
	if path, err := binary(); err == nil || !strings.Contains(err.Error(), "make peers-s3") {
		t.Errorf("a stamp without a binary: %q, %v", path, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "versitygw"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := binary(); err != nil || path != filepath.Join(dir, "versitygw") {
		t.Errorf("all there: %q, %v", path, err)
	}
}
