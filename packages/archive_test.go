package packages_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/platform-core/execution-plane-service/packages"
)

// entry is one header of a tar that a test makes.
type entry struct {
	name, body, link string
	kind             byte
	mode             int64
	size             int64 // instead of the body's
	records          map[string]string
	format           tar.Format
}

func file(name, body string) entry {
	return entry{name: name, body: body, kind: tar.TypeReg, mode: 0o644}
}
func link(name, target string) entry { return entry{name: name, link: target, kind: tar.TypeSymlink} }
func folder(name string) entry       { return entry{name: name, kind: tar.TypeDir, mode: 0o755} }
func special(n string, k byte) entry { return entry{name: n, kind: k, mode: 0o644} }
func executable(n, body string) entry {
	return entry{name: n, body: body, kind: tar.TypeReg, mode: 0o6755}
}

const manifest = "name: web-base\nversion: 1.0.0\n"

// tarOf makes a tar of entries, as bad as they are.
func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.body)), PAXRecords: e.records, Format: e.format}
		if e.size > 0 {
			h.Size = e.size
		}
		if e.kind == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: e.kind, PAXRecords: e.records}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatalf("%q: %v", e.name, err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close() // a file may be shorter than its header says
	return out.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte, options ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// pkg makes a package of a manifest and entries.
func pkg(t testing.TB, entries ...entry) []byte {
	t.Helper()
	return gzipped(t, tarOf(t, append([]entry{file("package.yaml", manifest)}, entries...)...))
}

// tight are limits that small tests reach.
func tight() packages.Limits {
	return packages.Limits{Compressed: 1 << 20, Size: 64 << 20, File: 32 << 20, Entries: 200, Depth: 5, Name: 150, Ratio: 100}
}

// listing is what lies below a folder: mode, name, and content or target.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			b.WriteString("link " + name + " " + target + "\n")
			return nil
		case info.Mode().IsRegular():
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = " " + string(content)
		}
		b.WriteString(info.Mode().String() + " " + name + text + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// destination is a folder's name to unpack to; what is there is removed.
func destination(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "unpacked")
	t.Cleanup(func() {
		if err := packages.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
