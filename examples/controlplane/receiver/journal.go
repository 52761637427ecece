package receiver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// journal is a file of lines that only grows. Many writers share one fsync.
type journal struct {
	mu     sync.Mutex
	file   *os.File
	end    int64 // guarded by mu
	broken error // guarded by mu

	syncing sync.Mutex
	safe    int64 // up to here the file is on the disk; guarded by syncing
}

const journalName = "results.ndjson"

// openJournal gives each whole line to read, with the place where it ends. A last
// line without its end was never acknowledged: it is cut off.
func openJournal(dir string, read func(line []byte, end int64) error) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	name := filepath.Join(dir, journalName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	end, err := readLines(f, read)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err == nil {
		err = errors.Join(f.Sync(), syncFolder(dir))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", name, err), f.Close())
	}
	return &journal{file: f, end: end, safe: end}, nil
}

func readLines(f *os.File, read func([]byte, int64) error) (end int64, err error) {
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		end += int64(len(line))
		if err := read(line, end); err != nil {
			return end, fmt.Errorf("the line that ends at byte %d: %w", end, err)
		}
	}
}

// syncFolder makes a new file's name safe.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// append writes a line and returns where it ends. It is not safe before sync.
func (j *journal) append(line []byte) (int64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return 0, j.broken
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		// Half a line may stand there: nothing may follow it.
		if cut := errors.Join(j.file.Truncate(j.end), seek(j.file, j.end)); cut != nil {
			j.broken = fmt.Errorf("the journal is damaged, start again: %w", cut)
		}
		return 0, err
	}
	j.end += int64(len(line)) + 1
	return j.end, nil
}

func seek(f *os.File, at int64) error {
	_, err := f.Seek(at, io.SeekStart)
	return err
}

// sync returns once everything up to end is on the disk.
func (j *journal) sync(end int64) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.safe >= end {
		return nil
	}
	j.mu.Lock()
	written, err := j.end, j.broken
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		// After a failed fsync nobody knows what is on the disk.
		j.mu.Lock()
		j.broken = fmt.Errorf("the journal could not be synced, start again: %w", err)
		j.mu.Unlock()
		return err
	}
	j.safe = written
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken == nil {
		j.broken = errors.New("the journal is closed")
	}
	return j.file.Close()
}
