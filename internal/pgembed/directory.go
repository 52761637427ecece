package pgembed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const tempPrefix = "execution-plane-pg-"

// directory is a locked place for one server. The lock ends with this process,
// so a folder whose lock can be taken belongs to nobody alive.
type directory struct {
	path      string
	temporary bool
	lock      *os.File
	who       account
}

func (d *directory) data() string     { return filepath.Join(d.path, "data") }
func (d *directory) password() string { return filepath.Join(d.path, "password") }

func openDirectory(ctx context.Context, path string, who account) (*directory, error) {
	d := &directory{path: path, temporary: path == "", who: who}
	if d.temporary {
		sweepTemporary()
		tmp, err := os.MkdirTemp("", tempPrefix)
		if err != nil {
			return nil, fmt.Errorf("making a temporary folder for PostgreSQL: %w", err)
		}
		d.path = tmp
	} else {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		d.path = abs
		// Parents are made passable; the folder itself is closed below.
		if err := os.MkdirAll(filepath.Dir(abs), 0o755); err != nil {
			return nil, fmt.Errorf("making the folder for PostgreSQL: %w", err)
		}
		if err := os.Mkdir(abs, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making the folder for PostgreSQL: %w", err)
		}
	}
	if err := d.prepare(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *directory) prepare(ctx context.Context) error {
	if err := d.who.reaches(d.path); err != nil {
		return err
	}
	if err := d.takeLock(ctx); err != nil {
		return err
	}
	return d.who.give(d.path)
}

// takeLock waits a little, as the last owner may be on its way out.
func (d *directory) takeLock(ctx context.Context) error {
	lock, err := os.OpenFile(filepath.Join(d.path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock of %s: %w", d.path, err)
	}
	d.lock = lock
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = poll(ctx, func() (bool, error) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("locking %s (is another process using it?): %w", d.path, err)
	}
	return nil
}

func (d *directory) close() error {
	var err error
	if d.temporary {
		err = os.RemoveAll(d.path)
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
		d.lock = nil
	}
	return err
}

// secret returns the superuser's password, kept as long as the data.
func (d *directory) secret() (string, error) {
	known, err := os.ReadFile(d.password())
	if err == nil {
		return strings.TrimSpace(string(known)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the database password: %w", err)
	}
	var raw [24]byte
	rand.Read(raw[:]) // never fails, by contract
	text := hex.EncodeToString(raw[:])
	if err := os.WriteFile(d.password(), []byte(text+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the database password: %w", err)
	}
	return text, d.who.give(d.password())
}

// dataMajor reads which version made the data; 0 means that there is none yet.
func (d *directory) dataMajor() (int, error) {
	text, err := os.ReadFile(filepath.Join(d.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the data: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("the data in %s names no version: %w", d.data(), err)
	}
	return major, nil
}

// clearStalePid removes what a killed server left behind. PostgreSQL trusts a
// number there that is alive, and in a container the number is soon alive
// again as another program.
func (d *directory) clearStalePid(ctx context.Context) error {
	path := filepath.Join(d.data(), "postmaster.pid")
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		pid, err := strconv.Atoi(strings.TrimSpace(first))
		if err == nil && serves(pid, d.data()) {
			return false, nil
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("another server runs on %s, see its postmaster.pid; stop it first: %w", d.data(), err)
	}
	return nil
}

// serves tells whether the process is a postmaster of this data: it stands in
// its data folder.
func serves(pid int, data string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	real, err := filepath.EvalSymlinks(data)
	return err == nil && cwd == real
}

// sweepTemporary removes temporary folders of processes that were killed.
func sweepTemporary() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*")) // constant pattern
	for _, dir := range found {
		// A young folder may be one whose owner has not locked it yet.
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue // being made or removed right now, or not ours
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(dir) // the next sweep tries again
		}
		lock.Close() // read only
	}
}

// poll asks every 10 ms until the answer is yes, an error, or the end of ctx.
func poll(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
