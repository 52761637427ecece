package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MinMajor is the oldest PostgreSQL that the service runs on.
const MinMajor = 14

// InstallHint is the line that puts PostgreSQL on a machine.
const InstallHint = "install PostgreSQL (Debian, Ubuntu: sudo apt-get install --no-install-recommends postgresql; " +
	"Fedora: sudo dnf install postgresql-server), or name the folder that holds initdb and postgres in PGBIN"

// ErrNoBinaries means that no usable PostgreSQL was found or fetched.
var ErrNoBinaries = errors.New("no usable PostgreSQL found")

// Binaries is one PostgreSQL installation.
type Binaries struct {
	Dir   string // holds initdb and postgres
	Major int
}

func (b Binaries) path(name string) string { return filepath.Join(b.Dir, name) }

// FindBinaries returns what PGBIN names, else the newest system installation,
// else what stands on PATH, else an earlier download. A wanted major version
// other than 0 passes over every other one. Nothing is downloaded.
func FindBinaries(ctx context.Context, wantMajor int) (Binaries, error) {
	who, err := serverUser()
	if err != nil {
		return Binaries{}, err
	}
	if dir := os.Getenv("PGBIN"); dir != "" {
		b, err := probe(ctx, dir, who)
		if err == nil && wantMajor != 0 && b.Major != wantMajor {
			err = fmt.Errorf("it is version %d, the data directory needs version %d", b.Major, wantMajor)
		}
		if err != nil {
			return Binaries{}, fmt.Errorf("%w: PGBIN=%s: %w", ErrNoBinaries, dir, err)
		}
		return b, nil
	}
	var refused []string
	for _, dir := range candidates(who) {
		b, err := probe(ctx, dir, who)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			refused = append(refused, fmt.Sprintf("%s (%s)", dir, err))
		case wantMajor != 0 && b.Major != wantMajor:
			refused = append(refused, fmt.Sprintf("%s (version %d, the data directory needs version %d)", dir, b.Major, wantMajor))
		default:
			return b, nil
		}
	}
	if len(refused) > 0 {
		return Binaries{}, fmt.Errorf("%w, passed over %s: %s", ErrNoBinaries, strings.Join(refused, ", "), InstallHint)
	}
	return Binaries{}, fmt.Errorf("%w: %s", ErrNoBinaries, InstallHint)
}

func candidates(who account) []string {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		found, _ := filepath.Glob(pattern) // the pattern is constant and well formed
		slices.SortFunc(found, func(a, b string) int { return majorIn(b) - majorIn(a) })
		dirs = append(dirs, found...)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	if cache, err := downloadDir(who); err == nil {
		dirs = append(dirs, filepath.Join(cache, "bin"))
	}
	return dirs
}

// majorIn reads the version from the folder above bin.
func majorIn(dir string) int {
	name := strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "pgsql-")
	n, _ := strconv.Atoi(name) // a name without a number sorts last
	return n
}

func probe(ctx context.Context, dir string, who account) (Binaries, error) {
	b := Binaries{Dir: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(b.path(name)); err != nil {
			return Binaries{}, err
		}
		if err := who.reaches(b.path(name)); err != nil {
			return Binaries{}, err
		}
	}
	cmd := exec.CommandContext(ctx, b.path("postgres"), "--version")
	cmd.SysProcAttr = who.sysProcAttr()
	cmd.Dir = "/"
	out, err := cmd.Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("running %s: %w", cmd, err)
	}
	// For example: postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return Binaries{}, fmt.Errorf("%s answers %q, which names no version", cmd, out)
	}
	digits := strings.IndexFunc(fields[2], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(fields[2])
	}
	if b.Major, err = strconv.Atoi(fields[2][:digits]); err != nil {
		return Binaries{}, fmt.Errorf("%s answers %q, which names no version", cmd, out)
	}
	if b.Major < MinMajor {
		return Binaries{}, fmt.Errorf("version %d is older than %d", b.Major, MinMajor)
	}
	return b, nil
}
