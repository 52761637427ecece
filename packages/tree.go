package packages

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrChanged says that an unpacked package is not what was unpacked.
var ErrChanged = errors.New("the unpacked package was changed")

// treeDigest is the SHA-256, in hex, of a list of all entries: kind, mode, content
// and name of each. Names have no line ends, so no two trees give one list.
func treeDigest(entries []Entry) string {
	sum := sha256.New()
	fmt.Fprintln(sum, "execution-plane package tree 1")
	for _, e := range entries {
		switch e.Kind {
		case File:
			mode := "-"
			if e.Executable {
				mode = "x"
			}
			fmt.Fprintf(sum, "f %s %d %s %s\n", mode, e.Bytes, e.SHA256, e.Name)
		case Folder:
			fmt.Fprintf(sum, "d %s\n", e.Name)
		case Link:
			fmt.Fprintf(sum, "l %q %s\n", e.Target, e.Name)
		}
	}
	return hexOf(sum.Sum(nil))
}

// TreeDigest reads an unpacked package whole and gives the digest that Unpack gave
// as Contents.Tree. ErrChanged is in the error's chain where it cannot be the same:
// another kind of file, another mode, more than Limits allow. It ends with ctx.
func TreeDigest(ctx context.Context, dir string, l Limits) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("look at the unpacked package: %w", err)
	}
	defer root.Close()
	t := tree{ctx: ctx, root: root, limit: l}
	if err := fs.WalkDir(root.FS(), ".", t.visit); err != nil {
		return "", fmt.Errorf("look at the unpacked package: %w", err)
	}
	slices.SortFunc(t.entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return treeDigest(t.entries), nil
}

type tree struct {
	ctx     context.Context
	root    *os.Root
	limit   Limits
	entries []Entry
	bytes   int64
}

func changed(name, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrChanged, shown(name), fmt.Sprintf(format, args...))
}

func (t *tree) visit(name string, d fs.DirEntry, err error) error {
	if err == nil {
		err = t.ctx.Err()
	}
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if name == "." {
		if info.Mode().Perm() != modeFolder {
			return changed(name, "its mode is %s", info.Mode())
		}
		return nil
	}
	if len(t.entries) >= t.limit.Entries {
		return changed(name, "there are more entries than a package may have")
	}
	e := Entry{Name: name}
	special := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	switch perm := info.Mode().Perm(); {
	case info.Mode()&fs.ModeSymlink != 0:
		e.Kind = Link
		e.Target, err = t.root.Readlink(name)
	case info.IsDir() && perm == modeFolder && special == 0:
		e.Kind = Folder
	case info.Mode().IsRegular() && (perm == modeFile || perm == modeExecutable) && special == 0:
		e.Kind, e.Executable = File, perm == modeExecutable
		err = t.file(&e)
	default:
		return changed(name, "its mode is %s", info.Mode())
	}
	t.entries = append(t.entries, e)
	return err
}

func (t *tree) file(e *Entry) error {
	// It may have become something that blocks, or a link.
	f, err := t.root.OpenFile(e.Name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	e.Bytes, err = io.Copy(sum, io.LimitReader(contextReader{t.ctx, f}, t.limit.Size-t.bytes+1))
	if err != nil {
		return err
	}
	if t.bytes += e.Bytes; t.bytes > t.limit.Size {
		return changed(e.Name, "there are more bytes than a package may have")
	}
	e.SHA256 = hexOf(sum.Sum(nil))
	return nil
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
