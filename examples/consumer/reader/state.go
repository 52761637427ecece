package reader

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
)

// state is what a check remembers of one partition, in one file of lines: a stream
// each, and the offset that is read next. A later line wins over an earlier one, and
// a line that a crash cut off is none. Opening it writes it anew without the old lines.
type state struct {
	path string
	file *os.File
	next int64 // offset; 0: nothing was read
}

// entry is one line.
type entry struct {
	Stream string       `json:"stream,omitempty"`
	Seen   *ledger.Seen `json:"seen,omitempty"`
	Next   int64        `json:"next,omitempty"`
}

// openState reads what is remembered of a partition into the check. An empty folder
// remembers nothing.
func openState(folder, topic string, partition int32, check *ledger.Check) (*state, error) {
	s := &state{}
	if folder == "" {
		return s, nil
	}
	s.path = filepath.Join(folder, fmt.Sprintf("%s-%d.jsonl", topic, partition))
	old, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what was handled: %w", err)
	}
	streams := map[string]ledger.Seen{}
	// Without its end a line is not whole.
	for line := range bytes.Lines(old[:bytes.LastIndexByte(old, '\n')+1]) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read what was handled from %s: %w; remove the file to begin without it", s.path, err)
		}
		if e.Seen != nil {
			streams[e.Stream] = *e.Seen
		}
		s.next = max(s.next, e.Next)
	}
	for stream, seen := range streams {
		check.Restore(ledger.Place{Topic: topic, Stream: stream}, seen)
	}
	return s, s.rewrite(streams)
}

// rewrite puts a file with one line for each stream in the old one's place.
func (s *state) rewrite(streams map[string]ledger.Seen) (err error) {
	if s.path == "" {
		return nil
	}
	s.file, err = os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+"-*")
	if err != nil {
		return fmt.Errorf("write what was handled: %w", err)
	}
	err = s.write(streams)
	if err == nil {
		err = os.Rename(s.file.Name(), s.path)
	}
	if err != nil {
		return errors.Join(err, s.file.Close(), os.Remove(s.file.Name()))
	}
	return nil
}

// forget drops what is remembered: somebody else has read the partition since.
func (s *state) forget() error {
	s.next = 0
	if s.file == nil {
		return nil
	}
	if err := s.file.Close(); err != nil {
		return err
	}
	return s.rewrite(nil)
}

// save writes what changed, and next, to the disk.
func (s *state) save(changed map[ledger.Place]ledger.Seen, next int64) error {
	s.next = next
	if s.path == "" {
		return nil
	}
	streams := make(map[string]ledger.Seen, len(changed))
	for place, seen := range changed {
		streams[place.Stream] = seen
	}
	return s.write(streams)
}

func (s *state) write(streams map[string]ledger.Seen) error {
	w := bufio.NewWriter(s.file)
	enc := json.NewEncoder(w)
	for stream, seen := range streams {
		if err := enc.Encode(entry{Stream: stream, Seen: &seen}); err != nil {
			return fmt.Errorf("write what was handled: %w", err)
		}
	}
	// Last, so that a torn write has none.
	err := enc.Encode(entry{Next: s.next})
	if err = errors.Join(err, w.Flush(), s.file.Sync()); err != nil {
		return fmt.Errorf("write what was handled: %w", err)
	}
	return nil
}

func (s *state) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
