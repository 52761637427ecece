package pgembed

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is whom the server runs as. PostgreSQL refuses uid 0, so root lends
// it an account without rights.
type account struct {
	name     string
	uid, gid uint32
	switched bool // another one than this process's
}

func serverUser() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: "the current user", uid: uint32(uid), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("reading the uid of user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("reading the gid of user %s: %w", name, err)
		}
		return account{name: "user " + name, uid: uint32(uid), gid: uint32(gid), switched: true}, nil
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as: create one, or start as an ordinary user")
}

// sysProcAttr puts a process into its own group, away from the terminal's
// Ctrl-C, which is for this process to judge.
func (a account) sysProcAttr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a.switched {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// give hands a path to the account.
func (a account) give(path string) error {
	if !a.switched {
		return nil
	}
	if err := os.Lchown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("giving %s to %s: %w", path, a.name, err)
	}
	return nil
}

// reaches tells whether the account may pass through every folder above path.
// It reads mode bits only: lists of access rights beyond them are rare, and
// would at worst let the start fail with PostgreSQL's own words.
func (a account) reaches(path string) error {
	if !a.switched {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !a.passes(info) {
			return fmt.Errorf("%s may not pass through %s to %s: choose a place under /var/lib or the temporary folder, or run: chmod o+x %s", a.name, dir, path, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (a account) passes(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return true
	case stat.Uid == a.uid:
		return info.Mode()&0o100 != 0
	case stat.Gid == a.gid:
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}
