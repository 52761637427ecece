package s3test

import (
	"bytes"
	"io"
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
	if path, err := peer.Find(); err != nil || filepath.Base(path) != "versitygw" {
		t.Errorf("built: %q, %v", path, err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if path, err := peer.Find(); err == nil || !strings.Contains(err.Error(), "make peers-s3") {
		t.Errorf("nothing built: %q, %v", path, err)
	}
}
