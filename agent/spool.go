package agent

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// spool keeps the log of one attempt on disk until the service has it: one file
// of frames per stream. Offsets and lengths count content bytes.
type spool struct {
	streams map[bundle.Stream]*stream
	// wake has a token when something was written or closed.
	wake    chan struct{}
	account *account
}

// account counts the bytes of log on disk of all attempts.
type account struct {
	bytes atomic.Int64
	limit int64 // from here on no new attempt is taken
	// crossed is told when the limit was reached or left.
	crossed chan struct{}
}

func (a *account) add(n int64) {
	now := a.bytes.Add(n)
	if (now >= a.limit) != (now-n >= a.limit) {
		poke(a.crossed)
	}
}

func (a *account) full() bool { return a.bytes.Load() >= a.limit }

// stream is one log. It is written by one goroutine and read by another.
type stream struct {
	name bundle.Stream
	file *os.File
	// write is file.WriteAt, or what a test has in its place.
	write   func(f *os.File, b []byte, off int64) (int, error)
	wake    chan struct{}
	account *account

	mu      sync.Mutex
	content int64 // content bytes
	encoded int64 // bytes of whole frames in the file
	sum     hash.Hash
	closed  bool
	err     error
	frames  []byte // of the last write, for the next

	// Where the reader stands, so that going forward needs no search.
	at place
}

// place is a frame's beginning.
type place struct{ content, encoded int64 }

// openSpool opens or makes the spool in dir. What is there is read once: a torn
// last frame is cut off.
func openSpool(dir string, acc *account, write func(f *os.File, b []byte, off int64) (int, error)) (*spool, error) {
	dir = filepath.Join(dir, "log")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the log spool: %w", err)
	}
	s := &spool{streams: map[bundle.Stream]*stream{}, wake: make(chan struct{}, 1), account: acc}
	for _, name := range bundle.Streams() {
		st := &stream{name: name, wake: s.wake, account: acc, write: write, sum: sha256.New()}
		f, err := os.OpenFile(filepath.Join(dir, string(name)+".frames"), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			st.file, s.streams[name] = f, st
			err = st.recall()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the log spool of %s: %w", name, err), s.remove())
		}
	}
	return s, nil
}

// recall reads what an earlier agent wrote.
func (s *stream) recall() error {
	r := bundle.NewFrameReader(bufio.NewReaderSize(s.file, 256<<10), bundle.SpoolLimits())
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, bundle.ErrFrameTorn) || errors.Is(err, bundle.ErrFrameEmpty) ||
			errors.Is(err, bundle.ErrFrameTooLong) || errors.Is(err, bundle.ErrFrameTime) {
			// A crash tore the last write: only whole frames count.
			if terr := s.file.Truncate(r.Encoded()); terr != nil {
				return terr
			}
			break
		}
		if err != nil {
			return err
		}
		s.sum.Write(f.Data)
	}
	s.content, s.encoded = r.Content(), r.Encoded()
	s.account.add(s.encoded)
	return nil
}

// Write appends p as frames with the present time. An error that is errNoRoom
// left nothing behind; any other ends the stream.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, s.err
	case s.closed:
		return 0, os.ErrClosed
	case len(p) == 0:
		return 0, nil
	}
	s.frames = bundle.AppendFrame(s.frames[:0], time.Now().UnixMicro(), p)
	if _, err := s.write(s.file, s.frames, s.encoded); err != nil {
		// A part of it may be there: an agent that comes later would read it, and
		// what is written next would stand in the midst of it.
		cut := s.file.Truncate(s.encoded)
		full := noRoom(err) && cut == nil
		err = fmt.Errorf("write the log spool of %s: %w", s.name, errors.Join(err, cut))
		if full {
			return 0, fmt.Errorf("%w: %w", errNoRoom, err)
		}
		s.err = err
		return 0, err
	}
	s.encoded += int64(len(s.frames))
	s.content += int64(len(p))
	s.sum.Write(p)
	s.account.add(int64(len(s.frames)))
	poke(s.wake)
	return len(p), nil
}

// length is what was written so far; closed says that no more will come.
func (s *stream) length() (content int64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content, s.closed
}

// chunk returns encoded frames from a content offset on, at most one chunk of
// the format, and how many content bytes they are. It is durable on this disk:
// the service must never have more of a log than its runner.
func (s *stream) chunk(from int64) ([]byte, int64, error) {
	s.mu.Lock()
	content, end := s.content, s.encoded
	s.mu.Unlock()
	if from < 0 || from > content {
		return nil, 0, fmt.Errorf("read the log spool of %s: no byte %d, it has %d", s.name, from, content)
	}
	if err := s.file.Sync(); err != nil {
		return nil, 0, fmt.Errorf("make the log spool of %s durable: %w", s.name, err)
	}
	if from < s.at.content {
		s.at = place{}
	}
	r := bundle.NewFrameReader(bufio.NewReaderSize(io.NewSectionReader(s.file, s.at.encoded, end-s.at.encoded), 64<<10), bundle.SpoolLimits())
	// Room for all of it at once: growing would cost three times as much.
	out := make([]byte, 0, min(end-s.at.encoded, bundle.MaxChunk+bundle.MaxChunk/16))
	var n int64
	for frames, at := 0, s.at.content; frames < bundle.MaxChunkFrames; {
		before := r.Encoded()
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the log spool of %s: %w", s.name, err)
		}
		next := at + int64(len(f.Data))
		if next <= from {
			at = next
			continue
		}
		if n == 0 {
			// The frame that holds from is where the next call begins to look.
			s.at = place{content: at, encoded: s.at.encoded + before}
			f.Data = f.Data[from-at:]
		}
		if n+int64(len(f.Data)) > bundle.MaxChunk {
			break
		}
		out = bundle.AppendFrame(out, f.Micros, f.Data)
		n += int64(len(f.Data))
		at = next
		frames++
	}
	return out, n, nil
}

func (s *stream) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err
	}
	s.closed = true
	poke(s.wake)
	if err := s.file.Sync(); err != nil && s.err == nil {
		s.err = fmt.Errorf("make the log spool of %s durable: %w", s.name, err)
	}
	return s.err
}

// close ends all streams: no more is written, and all is durable.
func (s *spool) close() error {
	var errs []error
	for _, name := range bundle.Streams() {
		errs = append(errs, s.streams[name].close())
	}
	return errors.Join(errs...)
}

// claimed is what complete says of the log. Streams that stayed empty are left out.
func (s *spool) claimed() []domain.ClaimedLog {
	logs := []domain.ClaimedLog{}
	for _, name := range bundle.Streams() {
		st := s.streams[name]
		st.mu.Lock()
		if st.content > 0 {
			logs = append(logs, domain.ClaimedLog{Stream: string(name), Bytes: st.content, SHA256: fmt.Sprintf("%x", st.sum.Sum(nil))})
		}
		st.mu.Unlock()
	}
	return logs
}

// remove closes the files and gives the disk's bytes back to the account. The
// files themselves go with the attempt's folder.
func (s *spool) remove() error {
	var errs []error
	for _, st := range s.streams {
		s.account.add(-st.encoded)
		errs = append(errs, st.file.Close())
	}
	return errors.Join(errs...)
}

// poke leaves a token in a channel of capacity one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
