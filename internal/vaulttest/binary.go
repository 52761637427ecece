package vaulttest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const howToBuild = "build it with `make peers-vault`"

// binary finds the server and makes sure that it was built from the module as it
// stands in the checkout.
func binary() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding the Vault peer: %w; set XDG_CACHE_HOME or HOME", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	dir := filepath.Join(cache, "execution-plane", "peers", "vault")
	stamp, err := os.ReadFile(filepath.Join(dir, "stamp"))
	if err != nil {
		return "", fmt.Errorf("the Vault peer is not built: %w; %s", err, howToBuild)
	}
	want, err := moduleSum()
	if err != nil {
		return "", err
	}
	if got, _, _ := strings.Cut(string(stamp), "\n"); got != want {
		return "", fmt.Errorf("the Vault peer in %s was built from another test/peers/vault; %s", dir, howToBuild)
	}
	path := filepath.Join(dir, "vault-peer")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the Vault peer is not built: %w; %s", err, howToBuild)
	}
	return path, nil
}

// moduleSum is the first line of the stamp that test/peers/vault/build.sh writes.
// Tests run in their package's folder, so the checkout lies above.
func moduleSum() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding test/peers/vault: %w", err)
	}
	for {
		peer := filepath.Join(dir, "test", "peers", "vault")
		names, err := filepath.Glob(filepath.Join(peer, "*.go"))
		if err == nil && len(names) > 0 {
			return sumOf(append(names, filepath.Join(peer, "okta", "okta", "okta.go"), filepath.Join(peer, "go.mod"), filepath.Join(peer, "go.sum")))
		}
		parent := filepath.Dir(dir)
		if err != nil {
			return "", fmt.Errorf("looking for test/peers/vault: %w", err)
		}
		if parent == dir {
			return "", errors.New("there is no test/peers/vault above the test's folder; run the tests in the checkout")
		}
		dir = parent
	}
}

func sumOf(files []string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("reading the Vault peer's module: %w", err)
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
