package packages

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Built is a package that was made.
type Built struct {
	Reference Reference `json:"-"`
	Contents
	SHA256     string `json:"sha256"`     // of the file
	Compressed int64  `json:"compressed"` // bytes of the file
	// LeftOut are the folders and files that never go into a package.
	LeftOut []string `json:"left_out,omitempty"`
}

// leftOut are names of what tools leave behind, and no package has.
var leftOut = []string{".git", ".hg", ".svn", "__pycache__", ".DS_Store"}

// Build writes the package of a folder to w: the tar of its files and links, sorted,
// without times and owners, in zstd. The same folder gives the same bytes. A folder
// that no package can be made of is a *Refused; nothing useful is in w then.
//
// What is built may still be refused where it is opened, if its content shrinks more
// than Limits.Ratio allows; BuildFile looks.
func Build(dir string, w io.Writer, l Limits) (*Built, error) {
	b, err := build(dir, w, l)
	if err != nil {
		return nil, fmt.Errorf("build a package of %s: %w", dir, err)
	}
	return b, nil
}

func build(dir string, w io.Writer, l Limits) (*Built, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	x, skipped, err := scan(root, l)
	if err != nil {
		return nil, err
	}
	var text []byte
	if e := x.entries[ManifestName]; e != nil && e.Kind == File {
		if text, err = root.ReadFile(ManifestName); err != nil {
			return nil, err
		}
	}
	m, err := x.judge(text)
	if err != nil {
		return nil, err
	}
	sum, size := sha256.New(), new(counter)
	if err := pack(root, x, io.MultiWriter(w, sum, size), text); err != nil {
		return nil, err
	}
	out := &Built{SHA256: hexOf(sum.Sum(nil)), Compressed: int64(*size), LeftOut: skipped}
	if out.Compressed > l.Compressed {
		return nil, refuse(CompressedLarge, "the package's file has more than %d bytes", l.Compressed)
	}
	out.Reference = Reference{m.Name, out.SHA256}
	out.Manifest, out.Entries, out.Unlisted = m, x.sorted(), x.unlisted(m)
	out.Tree = treeDigest(out.Entries)
	for _, e := range out.Entries {
		out.Bytes += e.Bytes
	}
	return out, nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// scan lists a folder as a package's entries. Folders come with what is in them, so
// that an empty one, which version control does not keep, makes no difference.
func scan(root *os.Root, l Limits) (*index, []string, error) {
	x := newIndex(l)
	var skipped []string
	total := int64(0)
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if slices.Contains(leftOut, path.Base(name)) {
			skipped = append(skipped, name)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if _, err := cleanName(name, l); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := &Entry{Name: name}
		switch {
		case d.IsDir():
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			e.Kind = Link
			if e.Target, err = root.Readlink(name); err != nil {
				return err
			}
			if err := checkTarget(name, e.Target, l); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			e.Kind, e.Bytes, e.Executable = File, info.Size(), info.Mode()&0o111 != 0
		default:
			return refuseEntry(SpecialFile, name, "it is neither a file nor a folder nor a symbolic link")
		}
		if e.Bytes > l.File {
			return refuseEntry(FileTooLarge, name, "it has %d bytes, %d are the most for one file", e.Bytes, l.File)
		}
		if total += e.Bytes; total > l.Size {
			return refuse(TooLarge, "unpacked it has more than %d bytes", l.Size)
		}
		_, err = x.add(e)
		return err
	})
	return x, skipped, err
}

// pack writes the tar. The manifest comes from memory: it was judged as it is there.
func pack(root *os.Root, x *index, w io.Writer, manifest []byte) error {
	// One at a time, or the bytes depend on the number of processors.
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range x.sorted() {
		if err := packEntry(root, x.entries[e.Name], t, manifest); err != nil {
			return errors.Join(err, z.Close())
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func packEntry(root *os.Root, e *Entry, t *tar.Writer, manifest []byte) error {
	h := &tar.Header{Name: e.Name, ModTime: time.Unix(0, 0), Mode: 0o644}
	switch e.Kind {
	case Folder:
		h.Typeflag, h.Name, h.Mode = tar.TypeDir, e.Name+"/", 0o755
		return t.WriteHeader(h)
	case Link:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Target, 0o777
		return t.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.Bytes
	if e.Executable {
		h.Mode = 0o755
	}
	var from io.Reader = bytes.NewReader(manifest)
	if e.Name != ManifestName {
		f, err := root.OpenFile(e.Name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(t, sum), io.LimitReader(from, e.Bytes+1))
	if n != e.Bytes && (err == nil || errors.Is(err, tar.ErrWriteTooLong)) {
		return fmt.Errorf("%s changed while it was packed; build again", shown(e.Name))
	}
	e.SHA256 = hexOf(sum.Sum(nil))
	return err
}

// BuildFile builds a package as a file, and opens it once as a runner will. The file
// appears whole, or not at all.
func BuildFile(dir, file string, l Limits) (b *Built, err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".package-*")
	if err != nil {
		return nil, fmt.Errorf("build a package: %w", err)
	}
	defer func() {
		err = errors.Join(err, tmp.Close())
		if err != nil {
			b = nil
			_ = os.Remove(tmp.Name())
		}
	}()
	if b, err = Build(dir, tmp, l); err != nil {
		return nil, err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if _, err := Inspect(tmp, l); err != nil {
		return nil, err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return nil, err
	}
	if err := tmp.Sync(); err != nil {
		return nil, err
	}
	return b, os.Rename(tmp.Name(), file)
}
