package packages_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/platform-core/execution-plane-service/packages"
)

// FuzzUnpack: whatever the bytes are, nothing is written outside of the folder,
// what is refused leaves nothing, what is taken is read-only and within the limits,
// and Inspect says the same.
func FuzzUnpack(f *testing.F) {
	entries := []entry{
		file("package.yaml", manifest+"playbooks: [site.yml]\n"), file("site.yml", "- hosts: all\n"), folder("roles/"),
		executable("roles/x/y", "z"), link("l", "roles"), link("out", "../x"), file("../x", "y"), file("/x", "y"), special("fifo", '6'),
		link("roles/up", ".."), link("away", "roles/up/.."), link("l/below", "x"), {kind: 'g', records: map[string]string{"comment": "c"}},
	}
	for i := range entries {
		f.Add(tarOf(f, entries[:i+1]...), byte(i%3))
	}
	f.Fuzz(func(t *testing.T, data []byte, how byte) {
		switch how % 3 {
		case 0:
			data = gzipped(t, data)
		case 1:
			data = zstded(t, data)
		}
		parent := t.TempDir()
		dest := filepath.Join(parent, "in", "unpacked")
		if err := os.Mkdir(filepath.Dir(dest), 0o755); err != nil {
			t.Fatal(err)
		}
		c, err := packages.Unpack(bytes.NewReader(data), dest, tight())
		looked, lerr := packages.Inspect(bytes.NewReader(data), tight())
		if packages.CodeOf(err) != packages.CodeOf(lerr) || (err == nil) != (lerr == nil) {
			t.Fatalf("unpacked: %v; inspected: %v", err, lerr)
		}
		outside := 0
		_ = filepath.WalkDir(parent, func(p string, _ fs.DirEntry, _ error) error {
			if rel, err := filepath.Rel(dest, p); err == nil && (rel == ".." || len(rel) > 2 && rel[:3] == "../") {
				outside++
			}
			return nil
		})
		if outside != 2 { // parent and in
			t.Fatalf("%d things lie outside", outside-2)
		}
		if err != nil {
			var refused *packages.Refused
			if !errors.As(err, &refused) {
				t.Fatalf("no refusal: %v", err)
			}
			if _, err := os.Lstat(dest); !os.IsNotExist(err) {
				t.Fatal("something is left")
			}
			return
		}
		tree, err := packages.TreeDigest(t.Context(), dest, tight())
		if err != nil || tree != c.Tree || tree != looked.Tree || c.Bytes > tight().Size || len(c.Entries) > tight().Entries {
			t.Fatalf("tree %s and %s, %v; %d bytes, %d entries", tree, c.Tree, err, c.Bytes, len(c.Entries))
		}
		if err := packages.Remove(dest); err != nil {
			t.Fatal(err)
		}
	})
}
