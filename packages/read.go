package packages

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Contents is what is in a package.
type Contents struct {
	Manifest Manifest `json:"manifest"`
	Entries  []Entry  `json:"entries"` // by name, implied folders included
	// Unlisted are the files and links that package.yaml does not list.
	Unlisted []string `json:"unlisted,omitempty"`
	Bytes    int64    `json:"bytes"` // of all files
	// Tree is the digest that TreeDigest gives of the unpacked package.
	Tree string `json:"tree"`
}

// sink takes a package while it is read. Its errors are the disk's. What it was
// given counts only once read has returned nil.
type sink interface {
	folder(name string) error
	// file reads body to its end; an error of body's comes back as it is.
	file(name string, executable bool, body io.Reader) error
	// link is called when all else is there and every link leads to it.
	link(name, target string) error
}

// reader is one package on its way.
type reader struct {
	stream   *stream
	index    *index
	sink     sink
	bytes    int64
	headers  int
	manifest []byte
}

// read takes a whole package from r, under limits, and gives its parts to s. The
// error is a *Refused, r's own, or the sink's.
func read(r io.Reader, l Limits, s sink) (*Contents, error) {
	in, err := open(r, l)
	if err != nil {
		return nil, err
	}
	defer in.close()
	p := reader{stream: in, index: newIndex(l), sink: s}
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && in.src.err == nil && in.err == nil {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are looked at below
			return nil, in.judge(err)
		}
		if p.headers++; p.headers > l.Entries {
			return nil, refuse(TooManyEntries, "it has more than %d entries", l.Entries)
		}
		if err := p.entry(h, t); err != nil {
			return nil, err
		}
	}
	if p.headers == 0 {
		return nil, refuse(Broken, "its archive is empty or no tar")
	}
	if err := in.finish(); err != nil {
		return nil, err
	}
	return p.conclude()
}

// entry takes one header with its content.
func (p *reader) entry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return globalHeader(h)
	}
	name, err := cleanName(h.Name, p.index.limit)
	if err != nil {
		return err
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuseEntry(Sparse, name, "it is a sparse file; pack without --sparse")
		}
	}
	e := &Entry{Name: name}
	switch h.Typeflag {
	case tar.TypeReg:
		e.Kind, e.Bytes, e.Executable = File, h.Size, h.Mode&0o111 != 0
	case tar.TypeDir:
		e.Kind = Folder
	case tar.TypeSymlink:
		e.Kind, e.Target = Link, h.Linkname
		if err := checkTarget(name, e.Target, p.index.limit); err != nil {
			return err
		}
	default:
		return refuseKind(h.Typeflag, name)
	}
	if name == "" {
		if e.Kind == Folder {
			return nil // the package's own
		}
		return refuseEntry(NameInvalid, h.Name, "a %s has the name of the package's own folder", e.Kind)
	}
	folders, err := p.index.add(e)
	if err != nil {
		return err
	}
	for _, f := range folders {
		if err := p.sink.folder(f); err != nil {
			return err
		}
	}
	if e.Kind == File {
		return p.file(e, body)
	}
	return nil
}

// globalHeader lets the one pass that git archive writes: a comment.
func globalHeader(h *tar.Header) error {
	for key := range h.PAXRecords {
		if key != "comment" {
			return refuse(Extension, "its archive has a header for all entries (%s)", shown(key))
		}
	}
	return nil
}

func refuseKind(flag byte, name string) error {
	switch flag {
	case tar.TypeLink:
		return refuseEntry(HardLink, name, "it is a hard link; pack it as a file of its own (tar --hard-dereference)")
	case tar.TypeChar, tar.TypeBlock:
		return refuseEntry(Device, name, "it is a device")
	case tar.TypeGNUSparse:
		return refuseEntry(Sparse, name, "it is a sparse file; pack without --sparse")
	}
	return refuseEntry(SpecialFile, name, "it is neither a file nor a folder nor a symbolic link (kind %q)", flag)
}

func (p *reader) file(e *Entry, body io.Reader) error {
	l := p.index.limit
	if e.Bytes > l.File {
		return refuseEntry(FileTooLarge, e.Name, "it has %d bytes, %d are the most for one file", e.Bytes, l.File)
	}
	if p.bytes += e.Bytes; p.bytes > l.Size {
		return refuse(TooLarge, "unpacked it has more than %d bytes", l.Size)
	}
	sum := sha256.New()
	content := &content{r: io.TeeReader(body, sum)}
	var from io.Reader = content
	var manifest bytes.Buffer
	if e.Name == ManifestName {
		if e.Bytes > maxManifest {
			return refuseEntry(ManifestInvalid, e.Name, "it has more than %d bytes", maxManifest)
		}
		from = io.TeeReader(content, &manifest)
	}
	if err := p.sink.file(e.Name, e.Executable, from); err != nil {
		if content.err != nil {
			return p.stream.judge(content.err)
		}
		return err
	}
	if content.n != e.Bytes {
		return refuse(Broken, "its archive is cut off")
	}
	e.SHA256 = hexOf(sum.Sum(nil))
	if e.Name == ManifestName {
		p.manifest = manifest.Bytes()
	}
	return nil
}

// content is one file's bytes; it keeps their error apart from the sink's.
type content struct {
	r   io.Reader
	n   int64
	err error
}

func (c *content) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// conclude judges the package as a whole.
func (p *reader) conclude() (*Contents, error) {
	m, err := p.index.judge(p.manifest)
	if err != nil {
		return nil, err
	}
	for _, name := range p.index.names(Link) {
		if err := p.sink.link(name, p.index.entries[name].Target); err != nil {
			return nil, err
		}
	}
	entries := p.index.sorted()
	return &Contents{
		Manifest: m, Entries: entries, Unlisted: p.index.unlisted(m), Bytes: p.bytes, Tree: treeDigest(entries),
	}, nil
}

// judge looks at what only the whole package shows: links, and the manifest.
func (x *index) judge(manifest []byte) (Manifest, error) {
	if err := x.checkLinks(); err != nil {
		return Manifest{}, err
	}
	e := x.entries[ManifestName]
	switch {
	case e == nil:
		return Manifest{}, refuse(NoManifest, "it has no %s at its top", ManifestName)
	case e.Kind != File:
		return Manifest{}, refuse(NoManifest, "its %s is a %s", ManifestName, e.Kind)
	}
	m, err := ParseManifest(manifest)
	if err != nil {
		return m, &Refused{Code: ManifestInvalid, Name: ManifestName, Text: err.Error()}
	}
	return m, x.checkListed(m)
}

// nowhere is the sink of who only looks.
type nowhere struct{}

func (nowhere) folder(string) error       { return nil }
func (nowhere) link(string, string) error { return nil }
func (nowhere) file(_ string, _ bool, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// Inspect reads a package to its end and says what is in it. Nothing is written,
// and memory stays bounded. The error is a *Refused, or r's own.
func Inspect(r io.Reader, l Limits) (*Contents, error) {
	c, err := read(r, l, nowhere{})
	if err != nil {
		return nil, fmt.Errorf("read the package: %w", err)
	}
	return c, nil
}
