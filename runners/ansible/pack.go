package ansible

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/platform-core/execution-plane-service/runners"
)

// pack is an approved package, unpacked by the agent. Nothing is read past root,
// which no symbolic link leads out of.
type pack struct {
	dir  string // absolute, without symbolic links
	root *os.Root
}

// maxPackageFile bounds one YAML file of a package, in bytes.
const maxPackageFile = 4 << 20

// openPackage opens the folder of the package that the parameters name.
func openPackage(reference string, folders map[string]string) (*pack, error) {
	_, digest, ok := runners.ParsePackage(reference)
	if !ok {
		return nil, rejected("parameter package is no <name>@sha256:<digest>")
	}
	dir, ok := folders[digest]
	if !ok {
		return nil, fmt.Errorf("the task has no folder for package %s", clip(reference, 120))
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the package: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the package: %w", err)
	}
	return &pack{dir, root}, nil
}

func (p *pack) close() {
	if p != nil {
		_ = p.root.Close() // opened for reading only
	}
}

// playbook checks that the path names a regular file of the package, and gives its
// absolute path.
func (p *pack) playbook(name string) (string, error) {
	if !fs.ValidPath(name) || name == "." || path.Clean(name) != name {
		return "", rejected("the playbook's path must be plain and stay inside the package")
	}
	info, err := p.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", rejected("the package has no playbook %q", name)
	case err != nil:
		return "", rejected("the playbook %q cannot be read inside the package", name)
	case !info.Mode().IsRegular():
		return "", rejected("the playbook %q is no regular file", name)
	}
	return filepath.Join(p.dir, filepath.FromSlash(name)), nil
}

// roleDir gives the folder of a role, inside the package. A name with two points
// is that of a role in a collection.
func (p *pack) roleDir(name string) (string, bool) {
	at := path.Join("roles", name)
	if parts := strings.Split(name, "."); len(parts) == 3 {
		in := path.Join("collections/ansible_collections", parts[0], parts[1], "roles", parts[2])
		if p.isDir(in) {
			return in, true
		}
	}
	return at, p.isDir(at)
}

func (p *pack) isDir(name string) bool {
	if !fs.ValidPath(name) {
		return false
	}
	info, err := p.root.Stat(name)
	return err == nil && info.IsDir()
}

// read gives one file's bytes.
func (p *pack) read(name string) ([]byte, error) {
	f, err := p.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s of the package: %w", name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPackageFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s of the package: %w", name, err)
	}
	if len(data) > maxPackageFile {
		return nil, rejected("file %s of the package is longer than %d bytes", name, maxPackageFile)
	}
	return data, nil
}

// yamlFiles gives every YAML file below a folder; files and templates of roles are
// data and not looked at.
func (p *pack) yamlFiles(dir string) ([]string, error) {
	var out []string
	err := fs.WalkDir(p.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			switch d.Name() {
			case "files", "templates", "molecule", ".git":
				return fs.SkipDir
			}
			return nil
		}
		if isYAML(name) {
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking through %s of the package: %w", dir, err)
	}
	return out, nil
}

func isYAML(name string) bool {
	switch path.Ext(name) {
	case ".yml", ".yaml", ".json":
		return true
	}
	return false
}
