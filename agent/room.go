package agent

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A full disk is no reason to end every attempt on it: the log of all waits,
// and the one that takes the most is ended, which gives its room back.
const (
	// roomPatience is how long a log waits for room before its attempt is ended
	// too; it exceeds any usual stop budget. roomHurry is the same for one that
	// is to end anyway.
	roomPatience = time.Minute
	roomHurry    = 5 * time.Second
	roomAgain    = 250 * time.Millisecond
	// An attempt below this part of the disk is not what filled it.
	roomBlame = 20
	// Below a twentieth of the disk, or this much where that is less, no new
	// attempt is taken.
	roomFloor = 256 << 20
)

// errNoRoom marks a write that failed because the disk is full. Nothing of it
// is kept, and it may be tried again.
var errNoRoom = errors.New("the disk is full")

func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// roomWriter writes an executor's log and waits while the disk is full. The
// executor is held up meanwhile by its full pipe.
type roomWriter struct {
	at *attempt
	st *stream
}

func (w roomWriter) Write(p []byte) (int, error) {
	n, err := w.st.Write(p)
	for began := time.Now(); errors.Is(err, errNoRoom); n, err = w.st.Write(p) {
		w.at.agent.relieve(err)
		patience := roomPatience
		if !w.at.wanted() {
			patience = roomHurry
		}
		if time.Since(began) >= patience || w.at.storageFailed() || sleep(w.at.sending, roomAgain) != nil {
			return n, err
		}
	}
	return n, err
}

// relieve ends the attempt that takes the most of a full disk, one at a time.
func (a *Agent) relieve(cause error) {
	a.relieving.Lock()
	defer a.relieving.Unlock()
	_, size, err := a.config.statfs(a.config.StateDir)
	if err != nil || a.cache.dropIdle() {
		return // packages that nobody uses go first
	}
	var most *attempt
	least := size / roomBlame
	for _, at := range a.list() {
		at.mu.Lock()
		running, leaves := at.proc != nil, at.broken != nil
		at.mu.Unlock()
		if running && leaves {
			return // its room comes back when it has ended
		}
		if used := diskUse(at.dir); running && used > least {
			most, least = at, used
		}
	}
	if most != nil {
		most.log.Error("the disk is full, and this attempt takes the most of it", "bytes", least)
		most.failStorage(cause)
	}
}

// diskLow says that the disk has too little room for one attempt more.
func (a *Agent) diskLow() bool {
	low := func() bool {
		free, size, err := a.config.statfs(a.config.StateDir)
		return err == nil && free < min(size/20, roomFloor)
	}
	return low() && (!a.cache.dropIdle() || low())
}

// statfs gives what an ordinary user may still use of a disk, and its size.
func statfs(dir string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Frsize, int64(s.Blocks) * s.Frsize, nil
}

// diskUse is how many bytes of the disk a folder takes. What cannot be read
// counts nothing.
func diskUse(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			n += st.Blocks * 512
		}
		return nil // an executor may have closed its own folders
	})
	return n
}

// eventsWriter keeps a full disk from ending the stream of the agent's own
// lines: what finds no room is counted, and told with the next that does. It
// never waits, because reports and stops pass here.
type eventsWriter struct {
	st   io.Writer
	lost int
}

func (w *eventsWriter) Write(p []byte) (int, error) {
	out := p
	if w.lost > 0 {
		line, err := json.Marshal(map[string]any{"time": time.Now().UTC().Format(time.RFC3339Nano), "event": "events_lost", "count": w.lost})
		if err != nil {
			return 0, err
		}
		out = append(append(line, '\n'), p...)
	}
	_, err := w.st.Write(out)
	switch {
	case errors.Is(err, errNoRoom):
		w.lost++
	case err != nil:
		return 0, err
	default:
		w.lost = 0
	}
	return len(p), nil
}
