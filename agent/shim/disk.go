package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// How often the disk is looked at. A look asks the file system for its free space; the
// folders are walked when that has shrunk by a part of what is left, or every so often.
const (
	diskLook = 100 * time.Millisecond
	diskWalk = 5 * time.Second
)

// watchDisk sends when the executor's folders take more than they may. nil where
// there is no bound. It goes on until the process ends.
func watchDisk(o *startOrder) <-chan struct{} {
	if o.Disk == 0 {
		return nil
	}
	f := Layout(o.Dir)
	d := &diskWatch{folders: []string{f.Work, f.Output, f.Tmp}, limit: o.Disk}
	out := make(chan struct{}, 1)
	go func() {
		tick := time.NewTicker(diskLook)
		defer tick.Stop()
		for range tick.C {
			if d.over() {
				out <- struct{}{}
				return
			}
		}
	}()
	return out
}

type diskWatch struct {
	folders []string
	limit   uint64
	used    uint64 // at the last walk
	free    uint64 // of the file system, at the last walk
	walked  time.Time
}

// over says whether the folders take more than the limit.
func (d *diskWatch) over() bool {
	var st unix.Statfs_t
	if unix.Statfs(d.folders[0], &st) != nil {
		return false
	}
	free := st.Bfree * uint64(st.Bsize)
	shrunk := uint64(0)
	if d.free > free {
		shrunk = d.free - free
	}
	left := d.limit - min(d.used, d.limit)
	if shrunk < left/4 && time.Since(d.walked) < diskWalk {
		return false
	}
	d.used = taken(d.folders) + unlinked(d.folders[0])
	d.free, d.walked = free, time.Now()
	return d.used > d.limit
}

type inode struct{ dev, ino uint64 }

// deepest is how many folders in each other are looked into. What lies deeper cannot be
// told, and counts as more than any bound.
const deepest = 200

// beyond is more than any bound, and leaves room to add to.
const beyond = 1 << 62

// taken is how many bytes of disk the files below the folders take; a file of several
// names counts once. Folders are opened by way of those that they lie in, since what is
// looked at changes meanwhile: no link is followed, and no length of a path is too much.
func taken(folders []string) uint64 {
	w := walk{seen: map[inode]bool{}}
	for _, dir := range folders {
		w.enter(unix.AT_FDCWD, dir, 0)
	}
	if w.tooDeep {
		return beyond
	}
	return w.total
}

type walk struct {
	total   uint64
	seen    map[inode]bool
	tooDeep bool
}

// enter adds what lies in a folder. One that went meanwhile takes nothing.
func (w *walk) enter(parent int, name string, depth int) {
	if depth > deepest {
		w.tooDeep = true
		return
	}
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	readable, err := unix.Openat(fd, ".", flags, 0)
	if errors.Is(err, unix.EACCES) {
		// It was hidden from its own user. What it holds counts all the same.
		if unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700) == nil {
			readable, err = unix.Openat(fd, ".", flags, 0)
		}
	}
	unix.Close(fd)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(readable), name)
	defer f.Close()
	for !w.tooDeep {
		names, err := f.Readdirnames(1000)
		for _, n := range names {
			w.add(readable, n, depth)
		}
		if err != nil {
			return
		}
	}
}

func (w *walk) add(dir int, name string, depth int) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if id := (inode{st.Dev, st.Ino}); !folder && st.Nlink > 1 {
		if w.seen[id] {
			return
		}
		w.seen[id] = true
	}
	w.total += uint64(st.Blocks) * 512
	if folder {
		w.enter(dir, name, depth+1)
	}
}

// unlinked is what open files take that have no name any more, on the file system of
// the folder, among the processes of the tree.
func unlinked(folder string) uint64 {
	var home unix.Stat_t
	if unix.Stat(folder, &home) != nil {
		return 0
	}
	var total uint64
	seen := map[inode]bool{}
	for _, s := range isolation.Descendants(os.Getpid()) {
		dir := "/proc/" + strconv.Itoa(s.Pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			var st unix.Stat_t
			if unix.Stat(filepath.Join(dir, e.Name()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			id := inode{st.Dev, st.Ino}
			if st.Nlink == 0 && st.Dev == home.Dev && !seen[id] {
				seen[id] = true
				total += uint64(st.Blocks) * 512
			}
		}
	}
	return total
}
