package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds of a bundle. A real one is far below them.
const (
	maxFiles      = 1000
	maxFileBytes  = 256 << 10
	maxTotalBytes = 4 << 20
)

// Bundle is one loaded policy bundle. It never changes after Load and may be
// used by any number of goroutines.
type Bundle struct {
	files  map[string][]byte
	digest string

	rules        map[string]place // by rule id
	order        []string         // of rule ids, as they were read
	pools        map[string]Pool
	runners      []RunnerRule
	targets      []TargetRule
	retries      map[string]RetryPolicy
	commands     map[string]CommandSet
	operations   map[string]OperationPolicy
	secrets      []SecretMapping
	stores       []SecretStore
	packages     []packageRule
	hostKeys     map[string]hostKeyRule
	isolation    []isolationRule
	images       map[string]Image
	probes       map[string]probeRule
	capabilities []capabilityRule

	conditional bool // some rule has a condition

	late *lateChecks // while it is read
}

// Load reads a folder of YAML files. Files that end in neither .yaml nor .yml,
// and names that begin with a dot, are no part of the bundle. Every mistake in
// every file is told, as a *LoadError.
func Load(fsys fs.FS) (*Bundle, error) {
	files, err := readFiles(fsys)
	if err != nil {
		return nil, fmt.Errorf("reading the policy bundle: %w", err)
	}
	return build(files)
}

// Overlay gives a new bundle that holds the files of base and those of extra.
// Two files of one path are an error: an overlay adds rules, and a rule under
// an id that exists is a mistake.
func Overlay(base *Bundle, extra fs.FS) (*Bundle, error) {
	files, err := readFiles(extra)
	if err != nil {
		return nil, fmt.Errorf("reading the policy overlay: %w", err)
	}
	for name, data := range base.files {
		if _, ok := files[name]; ok {
			return nil, &LoadError{Mistakes: []Mistake{{File: name, Text: "the base bundle has a file of this name: give the overlay's file another"}}}
		}
		files[name] = data
	}
	return build(files)
}

func readFiles(fsys fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	total := 0
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if hidden := strings.HasPrefix(path.Base(name), "."); hidden && name != "." {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(name); entry.IsDir() || (ext != ".yaml" && ext != ".yml") {
			return nil
		}
		data, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		files[name] = data
		total += len(data)
		if len(files) > maxFiles || total > maxTotalBytes {
			return fmt.Errorf("more than %d files or %d bytes", maxFiles, maxTotalBytes)
		}
		return nil
	})
	return files, err
}

// readFile follows links, since a mounted ConfigMap consists of them, and
// refuses what is no regular file behind them.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes)
	}
	return data, nil
}

func build(files map[string][]byte) (*Bundle, error) {
	b := &Bundle{
		files:      files,
		digest:     digestFiles(files),
		rules:      map[string]place{},
		pools:      map[string]Pool{},
		retries:    map[string]RetryPolicy{},
		commands:   map[string]CommandSet{},
		operations: map[string]OperationPolicy{},
		hostKeys:   map[string]hostKeyRule{},
		images:     map[string]Image{},
		probes:     map[string]probeRule{},
		late:       newLateChecks(),
	}
	var mistakes []Mistake
	for _, name := range sortedKeys(files) {
		d := &document{file: name}
		if root := d.parse(files[name]); root != nil {
			d.read(root, b)
		}
		mistakes = append(mistakes, d.mistakes...)
	}
	mistakes = append(mistakes, b.late.mistakes()...)
	b.late = nil
	if len(mistakes) > 0 {
		slices.SortStableFunc(mistakes, func(x, y Mistake) int {
			return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line))
		})
		return nil, &LoadError{Mistakes: mistakes}
	}
	return b, nil
}

// digestFiles is SHA-256 over the files in order of name: each name and each
// content behind its length, so that no two bundles share the bytes hashed.
func digestFiles(files map[string][]byte) string {
	h := sha256.New()
	h.Write([]byte("execution-plane policy bundle 1\n"))
	var size [8]byte
	put := func(data []byte) {
		binary.BigEndian.PutUint64(size[:], uint64(len(data)))
		h.Write(size[:])
		h.Write(data)
	}
	for _, name := range sortedKeys(files) {
		put([]byte(name))
		put(files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Digest identifies the bundle: SHA-256 in lower-case hex over the sorted file
// names and bytes.
func (b *Bundle) Digest() string { return b.digest }

// Size is how many rules the bundle has.
func (b *Bundle) Size() int { return len(b.order) }

// Pool gives the pool of that name.
func (b *Bundle) Pool(name string) (Pool, bool) {
	p, ok := b.pools[name]
	return p, ok
}

// Pools gives all pools, sorted by name.
func (b *Bundle) Pools() []Pool {
	out := make([]Pool, 0, len(b.pools))
	for _, name := range sortedKeys(b.pools) {
		out = append(out, b.pools[name])
	}
	return out
}

// DefaultRetry is the policy of a job that names none.
const DefaultRetry = "retry/default"

// Retry gives the retry policy of that name; the empty name is DefaultRetry.
func (b *Bundle) Retry(name string) (RetryPolicy, bool) {
	if name == "" {
		name = DefaultRetry
	}
	p, ok := b.retries[name]
	return p, ok
}

// IsMistake says whether err is about the bundle's content and not about
// reading it.
func IsMistake(err error) bool {
	var e *LoadError
	return errors.As(err, &e)
}
