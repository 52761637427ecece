package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Peer is a server that build.sh in test/peers/<Folder> builds.
type Peer struct {
	Name   string // in texts: "Vault"
	Folder string // in test/peers, in the cache, and after "make peers-"
	Binary string // what was built: the name of a file, or of a folder of files
	// Sources are patterns of files in the folder, in the order in which build.sh
	// adds them up for its stamp.
	Sources []string
}

// Find gives the path of the binary, if it was built from the folder as it stands
// in the checkout above the working folder, which for a test is its package's. Its
// error says how to build it.
func (p Peer) Find() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the %s peer: %w; set XDG_CACHE_HOME or HOME", p.Name, err)
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "execution-plane", "peers", p.Folder)
	stamp, err := os.ReadFile(filepath.Join(dir, "stamp"))
	if err != nil {
		return "", p.notBuilt(err)
	}
	want, err := p.sum()
	if err != nil {
		return "", err
	}
	if got, _, _ := strings.Cut(string(stamp), "\n"); got != want {
		return "", fmt.Errorf("the %s peer in %s was built from another test/peers/%s; %s", p.Name, dir, p.Folder, p.howToBuild())
	}
	path := filepath.Join(dir, p.Binary)
	if _, err := os.Stat(path); err != nil {
		return "", p.notBuilt(err)
	}
	return path, nil
}

func (p Peer) notBuilt(err error) error {
	return fmt.Errorf("the %s peer is not built: %w; %s", p.Name, err, p.howToBuild())
}

func (p Peer) howToBuild() string { return "build it with `make peers-" + p.Folder + "`" }

// sum is the first line of the stamp that build.sh writes.
func (p Peer) sum() (string, error) {
	dir, err := p.module()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, pattern := range p.Sources {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err == nil && len(names) == 0 {
			err = os.ErrNotExist
		}
		if err != nil {
			return "", fmt.Errorf("reading %s of the %s peer's module in %s: %w", pattern, p.Name, dir, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return "", fmt.Errorf("reading the %s peer's module: %w", p.Name, err)
			}
			h.Write(text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// module is the folder test/peers/<Folder> of the checkout.
func (p Peer) module() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding test/peers/%s: %w", p.Folder, err)
	}
	for {
		module := filepath.Join(dir, "test", "peers", p.Folder)
		_, err := os.Stat(module)
		if err == nil {
			return module, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("looking for test/peers/%s: %w", p.Folder, err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("there is no test/peers/%s above the working folder; run the tests in the checkout", p.Folder)
		}
		dir = parent
	}
}
