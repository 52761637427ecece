package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/packages"
)

// packageInput begins the name of a package among the inputs.
const packageInput = "package:"

// preparePackages brings the approved packages that the job needs.
func (at *attempt) preparePackages() error {
	at.given.packages = map[string]string{}
	needed, err := at.neededPackages()
	if err != nil {
		return err
	}
	for _, ref := range needed {
		if err := at.preparePackage(ref); err != nil {
			return fmt.Errorf("package %s: %w", ref, err)
		}
	}
	return nil
}

func (at *attempt) preparePackage(ref packages.Reference) error {
	if !sha256Text(ref.SHA256) {
		return rejected("it is not named by a SHA-256")
	}
	tar := filepath.Join(at.dir, "package.tar")
	p, cached, err := at.agent.cache.take(at.launching, ref, tar, func(ctx context.Context) error {
		_, err := at.fetch(ctx, wanted{name: packageInput + ref.SHA256, sha256: ref.SHA256, most: at.agent.config.Fetch.Package.Compressed, path: tar})
		return err
	})
	var refused *packages.Refused
	switch {
	case err == nil:
	case at.launching.Err() != nil:
		return context.Cause(at.launching)
	case errors.As(err, &refused):
		return rejected("%s (%s)", refused.Text, refused.Code)
	default:
		return err
	}
	at.given.held = append(at.given.held, p)
	at.given.packages[ref.SHA256] = at.agent.cache.path(p)
	at.given.pinned = append(at.given.pinned, givenFile{ref.Name, ref.SHA256})
	at.note("package_ready", map[string]any{"sha256": ref.SHA256, "cached": cached})
	return nil
}

// packageCache holds unpacked packages by digest, for all attempts of this runner.
// Each has a folder that nobody writes to, and beside it a record with the digest of
// its tree. The record is there before the folder has its name, and what is in the
// folder is compared with it each time before it is used; so what a crash left, and
// what somebody changed, is found, and fetched anew.
type packageCache struct {
	dir    string
	limits packages.Limits
	most   int64
	log    *slog.Logger

	mu     sync.Mutex
	known  map[string]*cachedPackage // by SHA-256
	flying map[string]chan struct{}  // held by who looks after a digest
	serial int
}

// cachedPackage is one folder of the cache.
type cachedPackage struct {
	packageRecord
	folder string
	used   time.Time
	users  int
	stale  bool // goes with its last user
}

// packageRecord is <folder>.json.
type packageRecord struct {
	SHA256 string `json:"sha256"`
	Name   string `json:"name"` // as package.yaml has it
	Tree   string `json:"tree"` // as packages.TreeDigest gives it
	Bytes  int64  `json:"bytes"`
}

func newPackageCache(c *Config) *packageCache {
	return &packageCache{
		dir: filepath.Join(c.StateDir, "packages"), limits: c.Fetch.Package, most: c.Fetch.CacheBytes, log: c.Log,
		known: map[string]*cachedPackage{}, flying: map[string]chan struct{}{},
	}
}

// load takes up what an earlier agent left. Nobody uses any of it.
func (c *packageCache) load(open bool) error {
	mode := os.FileMode(0o700)
	if open {
		mode = 0o711 // the executor's user passes through to what it is told of
	}
	if err := errors.Join(os.MkdirAll(c.dir, mode), os.Chmod(c.dir, mode)); err != nil {
		return fmt.Errorf("make the cache of packages: %w", err)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("read the cache of packages: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := map[string]bool{}
	for _, e := range entries {
		folder, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		p, err := c.read(folder)
		if err != nil || c.known[p.SHA256] != nil {
			continue
		}
		c.known[p.SHA256] = p
		keep[folder], keep[e.Name()] = true, true
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			c.drop(filepath.Join(c.dir, e.Name()))
		}
	}
	c.shrink(c.most)
	return nil
}

// read reads one record, if its folder is there.
func (c *packageCache) read(folder string) (*cachedPackage, error) {
	path := filepath.Join(c.dir, folder)
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, err
	}
	p := &cachedPackage{folder: folder}
	if err := json.Unmarshal(b, &p.packageRecord); err != nil {
		return nil, err
	}
	digest, _, _ := strings.Cut(folder, ".")
	if info, err := os.Lstat(path); err != nil || !info.IsDir() || !sha256Text(p.SHA256) || p.SHA256 != digest {
		return nil, errors.New("it has no folder")
	}
	info, err := os.Stat(path + ".json")
	if err != nil {
		return nil, err
	}
	p.used = info.ModTime()
	return p, nil
}

func (c *packageCache) path(p *cachedPackage) string { return filepath.Join(c.dir, p.folder) }

// drop removes a file or folder. What does not go is removed by the next agent.
func (c *packageCache) drop(path string) {
	if err := packages.Remove(path); err != nil {
		c.log.Warn("a package does not go from the cache", "path", path, "error", err)
	}
}

// take gives a package that is whole, for as long as release is not called. Where it
// is not there, fetch brings its file to tar, which is removed afterwards. Those who
// want the same wait for each other; who waits may end by its own ctx. The error is
// fetch's, a *packages.Refused, ctx's, or has errInputDisk in its chain.
func (c *packageCache) take(ctx context.Context, ref packages.Reference, tar string, fetch func(context.Context) error) (p *cachedPackage, cached bool, err error) {
	land, err := c.fly(ctx, ref.SHA256)
	if err != nil {
		return nil, false, err
	}
	defer land()
	if p, err = c.lookUp(ctx, ref.SHA256); err != nil {
		return nil, false, err
	}
	cached = p != nil
	if !cached {
		defer os.Remove(tar)
		if err := fetch(ctx); err != nil {
			return nil, false, err
		}
		if p, err = c.unpack(ctx, ref, tar); err != nil {
			return nil, false, err
		}
	}
	if p.Name != ref.Name {
		c.release(p)
		return nil, false, rejected("it calls itself %q", p.Name)
	}
	return p, cached, nil
}

// fly makes the caller the one who looks after a digest.
func (c *packageCache) fly(ctx context.Context, digest string) (land func(), err error) {
	for {
		c.mu.Lock()
		wait, busy := c.flying[digest]
		if !busy {
			done := make(chan struct{})
			c.flying[digest] = done
			c.mu.Unlock()
			return func() {
				c.mu.Lock()
				delete(c.flying, digest)
				c.mu.Unlock()
				close(done)
			}, nil
		}
		c.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// lookUp gives what the cache has, if it is unchanged.
func (c *packageCache) lookUp(ctx context.Context, digest string) (*cachedPackage, error) {
	c.mu.Lock()
	p := c.known[digest]
	if p != nil {
		p.users++
	}
	c.mu.Unlock()
	if p == nil {
		return nil, nil
	}
	tree, err := packages.TreeDigest(ctx, c.path(p), c.limits)
	switch {
	case err == nil && tree == p.Tree:
		now := time.Now()
		c.mu.Lock()
		p.used = now
		c.mu.Unlock()
		// Only the order in which packages go depends on it.
		_ = os.Chtimes(c.path(p)+".json", now, now)
		return p, nil
	case ctx.Err() != nil:
		c.release(p)
		return nil, context.Cause(ctx)
	}
	c.log.Error("a package in the cache is not as it was unpacked; it is fetched anew", "sha256", digest, "error", err)
	c.mu.Lock()
	p.stale = true
	delete(c.known, digest)
	c.mu.Unlock()
	c.release(p)
	return nil, nil
}

// unpack makes a folder of a package's file, which has the right digest.
func (c *packageCache) unpack(ctx context.Context, ref packages.Reference, tar string) (*cachedPackage, error) {
	c.mu.Lock()
	c.serial++
	fresh := filepath.Join(c.dir, fmt.Sprintf(".new-%d-%s", c.serial, ref.SHA256))
	c.mu.Unlock()
	contents, err := c.unpackTo(ctx, fresh, tar)
	if noRoom(err) && c.dropIdle() {
		contents, err = c.unpackTo(ctx, fresh, tar)
	}
	if err != nil {
		return nil, err
	}
	p := &cachedPackage{packageRecord: packageRecord{SHA256: ref.SHA256, Name: contents.Manifest.Name, Tree: contents.Tree, Bytes: contents.Bytes}, used: time.Now(), users: 1}
	if err := c.adopt(p, fresh); err != nil {
		c.drop(fresh)
		return nil, fmt.Errorf("%w: %w", errInputDisk, err)
	}
	return p, nil
}

func (c *packageCache) unpackTo(ctx context.Context, dest, tar string) (*packages.Contents, error) {
	f, err := os.Open(tar)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInputDisk, err)
	}
	defer f.Close()
	contents, err := packages.Unpack(readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return f.Read(p)
	}), dest, c.limits)
	if err != nil && packages.CodeOf(err) == "" && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errInputDisk, err)
	}
	return contents, err
}

// adopt gives a fresh folder its name. One that is in use keeps its own: a changed
// package that somebody runs with is not taken away under it.
func (c *packageCache) adopt(p *cachedPackage, fresh string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.folder = p.SHA256
	for i := 2; ; i++ {
		if _, err := os.Lstat(c.path(p)); errors.Is(err, os.ErrNotExist) {
			break
		}
		p.folder = fmt.Sprintf("%s.%d", p.SHA256, i)
	}
	b, err := json.Marshal(p.packageRecord)
	if err != nil {
		return err
	}
	if err := writeDurable(c.path(p)+".json", append(b, '\n')); err != nil {
		return err
	}
	if err := os.Rename(fresh, c.path(p)); err != nil {
		_ = os.Remove(c.path(p) + ".json")
		return err
	}
	c.known[p.SHA256] = p
	c.shrink(c.most)
	return nil
}

// release says that one user is done with a package.
func (c *packageCache) release(p *cachedPackage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.users--; p.users == 0 && p.stale {
		c.drop(c.path(p) + ".json")
		c.drop(c.path(p))
	}
	c.shrink(c.most)
}

// shrink removes what was not used for longest until no more than most bytes are
// left, and never what is in use. The caller holds the lock.
func (c *packageCache) shrink(most int64) (dropped int) {
	total := int64(0)
	all := slices.Collect(maps.Values(c.known))
	for _, p := range all {
		total += p.Bytes
	}
	slices.SortFunc(all, func(a, b *cachedPackage) int { return a.used.Compare(b.used) })
	for _, p := range all {
		if total <= most {
			break
		}
		if p.users > 0 {
			continue
		}
		delete(c.known, p.SHA256)
		// Without its record the folder is removed at the next start at the latest.
		c.drop(c.path(p) + ".json")
		c.drop(c.path(p))
		total -= p.Bytes
		dropped++
	}
	return dropped
}

// dropIdle empties the cache of what nobody uses, because the disk is full.
func (c *packageCache) dropIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shrink(0) > 0
}
