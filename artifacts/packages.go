package artifacts

import (
	"context"
	"io"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

// Packages keeps packages of playbooks in object storage by digest. None is ever
// removed here: events name them.
type Packages struct {
	Commands *commands.Service
	Reads    *projections.Reader
	Objects  InputStore
	// Inspect opens a package within its limits and gives the name and version of its
	// package.yaml. What is wrong with it is an error of kind invalid.
	Inspect  func(r io.Reader) (name, version string, err error)
	SpoolDir string
}

// MaxPackage is the largest packed file that is taken, in bytes.
const MaxPackage = 256 << 20

// Push takes a package whose digest is u.SHA256: it is read whole and looked at before
// anything is stored, and durable before the ledger names it. first says that it was
// not there.
func (p *Packages) Push(ctx context.Context, u Incoming) (is domain.PackagePushed, first bool, err error) {
	if u.Bytes > MaxPackage {
		return is, false, errUploadLarge
	}
	f, err := u.spool(ctx, p.SpoolDir, MaxPackage)
	if err != nil {
		return is, false, err
	}
	defer f.Close()
	name, version, err := p.Inspect(f)
	if err != nil {
		return is, false, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return is, false, err
	}
	err = p.Objects.Put(ctx, bundle.PackageKey(f.SHA256), f, f.Size, f.SHA256, objects.PutOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return is, false, storageError("store a package", err)
	}
	crashpoint.Here("package.stored")
	m := u.Meta
	m.Digest = u.Digest(f.SHA256)
	return p.Commands.PushPackage(ctx, m, domain.PackagePushed{Name: name, Version: version, Bytes: f.Size, SHA256: f.SHA256.String()})
}

// Locate gives a link to a package that was pushed.
func (p *Packages) Locate(ctx context.Context, sum bundle.SHA256) (Located, error) {
	return locatePackage(ctx, p.Reads, p.Objects, sum)
}

var errNoPackage = &domain.Error{Kind: domain.KindNotFound, Code: "package_unknown", Message: "no package with this digest was pushed", Next: "push it: execution-plane package push FILE"}

func locatePackage(ctx context.Context, reads *projections.Reader, from presigner, sum bundle.SHA256) (Located, error) {
	v, ok, err := reads.Package(ctx, sum.String())
	switch {
	case err != nil:
		return Located{}, err
	case !ok:
		return Located{}, errNoPackage
	}
	url, err := presignGet(ctx, from, bundle.PackageKey(sum), "")
	return Located{SHA256: v.SHA256, Bytes: v.Bytes, URL: url}, err
}
