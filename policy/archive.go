package policy

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Bytes is the bundle as one file, a plain tar of its YAML files in order of
// name without times or owners: the same bundle gives the same bytes. A runner
// fetches it by digest and opens it with Open.
func (b *Bundle) Bytes() []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, name := range sortedKeys(b.files) {
		data := b.files[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}
		// A buffer takes every write, and the names went through an fs.FS.
		if err := w.WriteHeader(header); err != nil {
			panic(fmt.Sprintf("policy: archiving %q: %v", name, err))
		}
		if _, err := w.Write(data); err != nil {
			panic(fmt.Sprintf("policy: archiving %q: %v", name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(fmt.Sprintf("policy: closing the archive: %v", err))
	}
	return buf.Bytes()
}

// archiveEnd is how many zero bytes end an archive: one that was cut off between two
// files would be read without complaint.
const archiveEnd = 1024

// Open reads what Bytes wrote. The caller compares Digest with the digest that
// it asked for: the archive's own bytes are not what the digest is over.
func Open(archive []byte) (*Bundle, error) {
	if !bytes.HasSuffix(archive, make([]byte, archiveEnd)) {
		return nil, errors.New("opening the policy archive: its end is missing")
	}
	files := map[string][]byte{}
	total := 0
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("opening the policy archive: %w", err)
		}
		if err := checkEntry(header, files); err != nil {
			return nil, fmt.Errorf("opening the policy archive: %w", err)
		}
		data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
		if err != nil {
			return nil, fmt.Errorf("opening the policy archive: reading %q: %w", header.Name, err)
		}
		files[header.Name] = data
		total += len(data)
		if len(data) > maxFileBytes || len(files) > maxFiles || total > maxTotalBytes {
			return nil, errors.New("opening the policy archive: it is larger than a bundle may be")
		}
	}
	return build(files)
}

func checkEntry(header *tar.Header, files map[string][]byte) error {
	name := header.Name
	ext := path.Ext(name)
	if header.Typeflag != tar.TypeReg || !fs.ValidPath(name) || (ext != ".yaml" && ext != ".yml") {
		return fmt.Errorf("entry %q is no YAML file of a bundle", name)
	}
	if _, ok := files[name]; ok {
		return fmt.Errorf("entry %q stands twice", name)
	}
	return nil
}
