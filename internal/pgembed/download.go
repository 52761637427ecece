package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const downloadVersion = embeddedpostgres.V17

// downloadDir is where downloaded binaries stand. The account must be able to
// reach them, so root does not use its own home.
func downloadDir(who account) (string, error) {
	name := fmt.Sprintf("postgres-%s-%s-%s", downloadVersion, runtime.GOOS, runtime.GOARCH)
	if who.switched {
		return filepath.Join("/var/cache/execution-plane", name), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil || !filepath.IsAbs(cache) || writable(cache) != nil {
		cache = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", who.uid))
	}
	return filepath.Join(cache, "execution-plane", name), nil
}

// writable tries the nearest existing folder, as HOME may name one that cannot
// be made.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Download fetches PostgreSQL into the cache, unless it is there. It needs the
// network and about 100 MB; ctx ends the waiting, not the transfer.
func Download(ctx context.Context) (Binaries, error) {
	who, err := serverUser()
	if err != nil {
		return Binaries{}, err
	}
	final, err := downloadDir(who)
	if err != nil {
		return Binaries{}, err
	}
	bin := filepath.Join(final, "bin")
	if b, err := probe(ctx, bin, who); err == nil {
		return b, nil
	}
	done := make(chan error, 1)
	go func() { done <- fetch(final) }()
	select {
	case <-ctx.Done():
		return Binaries{}, fmt.Errorf("downloading PostgreSQL %s: %w", downloadVersion, ctx.Err())
	case err := <-done:
		if err != nil {
			return Binaries{}, fmt.Errorf("%w and the download of version %s failed: %w; %s", ErrNoBinaries, downloadVersion, err, InstallHint)
		}
	}
	b, err := probe(ctx, bin, who)
	if err != nil {
		return Binaries{}, fmt.Errorf("trying the downloaded PostgreSQL: %w", err)
	}
	return b, nil
}

// fetch unpacks beside the final place and renames, so that nobody ever sees
// half an installation.
func fetch(final string) error {
	parent := filepath.Dir(final)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // best effort: the next fetch uses another name
	unpacked := filepath.Join(tmp, "unpacked")
	defer removeNewLogs(libraryLogs())
	var log bytes.Buffer
	// The library can only fetch, initialise and start in one go, and cannot
	// do the last two as root. A locale that does not exist ends it after the
	// first step in every case, so the files tell whether that went well.
	startErr := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(downloadVersion).
		Port(0).
		CachePath(filepath.Join(tmp, "archive")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(tmp, "runtime")).
		Locale("none.such").
		Logger(&log)).Start()
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		if _, err := os.Stat(filepath.Join(unpacked, "bin", name)); err != nil {
			return errors.Join(startErr, err)
		}
	}
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := os.Rename(unpacked, final); err != nil {
		// Another process may have been first.
		if _, statErr := os.Stat(filepath.Join(final, "bin", "postgres")); statErr == nil {
			return nil
		}
		return err
	}
	return nil
}

// The library writes a log into the temporary folder and leaves it there.
func libraryLogs() []string {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), "embedded_postgres_log*")) // constant pattern
	return found
}

func removeNewLogs(before []string) {
	for _, path := range libraryLogs() {
		if !slices.Contains(before, path) {
			os.Remove(path) // a small file at worst
		}
	}
}
