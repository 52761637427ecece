package s3test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const howToBuild = "build it with `make peers-s3`"

// binary finds the server and makes sure that it was built from the module as it
// stands in the checkout.
func binary() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the S3 peer: %w; set XDG_CACHE_HOME or HOME", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "execution-plane", "peers", "s3")
	stamp, err := os.ReadFile(filepath.Join(dir, "stamp"))
	if err != nil {
		return "", fmt.Errorf("the S3 peer is not built: %w; %s", err, howToBuild)
	}
	want, err := moduleSum()
	if err != nil {
		return "", err
	}
	if got, _, _ := strings.Cut(string(stamp), "\n"); got != want {
		return "", fmt.Errorf("the S3 peer in %s was built from another test/peers/s3/go.mod; %s", dir, howToBuild)
	}
	path := filepath.Join(dir, "versitygw")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the S3 peer is not built: %w; %s", err, howToBuild)
	}
	return path, nil
}

// moduleSum is the first line of the stamp that test/peers/s3/build.sh writes.
// Tests run in their package's folder, so the checkout lies above.
func moduleSum() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding test/peers/s3: %w", err)
	}
	for {
		peer := filepath.Join(dir, "test", "peers", "s3")
		mod, err := os.ReadFile(filepath.Join(peer, "go.mod"))
		if err == nil {
			sum, err := os.ReadFile(filepath.Join(peer, "go.sum"))
			if err != nil {
				return "", fmt.Errorf("reading the S3 peer's module: %w", err)
			}
			digest := sha256.Sum256(append(mod, sum...))
			return hex.EncodeToString(digest[:]), nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, os.ErrNotExist) || parent == dir {
			return "", fmt.Errorf("finding test/peers/s3 above the test's folder: %w", err)
		}
		dir = parent
	}
}
