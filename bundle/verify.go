package bundle

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
)

// Problem is what a verification found wrong with one object or log.
type Problem string

const (
	Missing    Problem = "missing"         // the object is not there
	Unreadable Problem = "unreadable"      // reading failed; nothing is known of its bytes
	WrongSize  Problem = "wrong_size"      // another number of bytes
	WrongBytes Problem = "wrong_digest"    // the digest differs
	BadFrames  Problem = "bad_frames"      // a chunk that does not decode to what the manifest says
	WrongLog   Problem = "wrong_log_bytes" // the chunks together do not give the log's digest
)

// Difference is one thing in which the stored bytes differ from the manifest.
type Difference struct {
	Key     string // of the object; of a whole log "logs/<stream>"
	Problem Problem
	Want    string
	Got     string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: the manifest says %s, found %s", d.Key, d.Problem, d.Want, d.Got)
}

// ErrObjectMissing is what the open function given to Verify returns, wrapped or
// not, for a key under which nothing is stored.
var ErrObjectMissing = errors.New("object is missing")

// Verify reads every object back and returns every difference, sorted by key. No
// difference means that the bytes are those that the manifest's digest vouches
// for. Artifacts are streamed; only one log chunk at a time is held in memory.
// The error is that of an invalid manifest; a reader's error is a difference.
func Verify(m Manifest, open func(key string) (io.ReadCloser, error)) ([]Difference, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	m = m.sorted()
	v := verification{open: open, logs: map[Stream]hash.Hash{}, broken: map[Stream]bool{}}
	for _, l := range m.Logs {
		v.logs[l.Stream] = sha256.New()
	}
	for _, o := range m.Objects { // in key order, which is offset order within a log
		v.object(o)
	}
	for _, l := range m.Logs {
		if !l.Complete || v.broken[l.Stream] {
			continue
		}
		if got := SHA256(v.logs[l.Stream].Sum(nil)); got != l.SHA256 {
			v.add("logs/"+string(l.Stream), WrongLog, l.SHA256.String(), got.String())
		}
	}
	slices.SortStableFunc(v.found, func(a, b Difference) int { return cmp.Compare(a.Key, b.Key) })
	return v.found, nil
}

type verification struct {
	open   func(key string) (io.ReadCloser, error)
	logs   map[Stream]hash.Hash
	broken map[Stream]bool
	found  []Difference
}

func (v *verification) add(key string, p Problem, want, got string) {
	v.found = append(v.found, Difference{Key: key, Problem: p, Want: want, Got: got})
}

func (v *verification) object(o Object) {
	before := len(v.found)
	content := v.read(o)
	if o.Log == nil {
		return
	}
	if len(v.found) == before {
		v.chunk(o, content)
	}
	if len(v.found) > before {
		v.broken[o.Log.Stream] = true
	}
}

// read compares size and digest. It returns the bytes of a log chunk.
func (v *verification) read(o Object) []byte {
	r, err := v.open(o.Key)
	if errors.Is(err, ErrObjectMissing) {
		v.add(o.Key, Missing, fmt.Sprintf("%d bytes", o.Bytes), "nothing")
		return nil
	}
	if err != nil {
		v.add(o.Key, Unreadable, fmt.Sprintf("%d bytes", o.Bytes), err.Error())
		return nil
	}
	defer r.Close()
	sum := sha256.New()
	var kept limitedBuffer
	kept.max = MaxChunkEncoded
	dst := io.Writer(sum)
	if o.Log != nil {
		dst = io.MultiWriter(sum, &kept)
	}
	n, err := io.Copy(dst, r)
	if err != nil {
		v.add(o.Key, Unreadable, fmt.Sprintf("%d bytes", o.Bytes), fmt.Sprintf("after %d bytes: %v", n, err))
		return nil
	}
	if n != o.Bytes {
		v.add(o.Key, WrongSize, fmt.Sprintf("%d bytes", o.Bytes), fmt.Sprintf("%d bytes", n))
	}
	if got := SHA256(sum.Sum(nil)); got != o.SHA256 {
		v.add(o.Key, WrongBytes, o.SHA256.String(), got.String())
	}
	return kept.data
}

func (v *verification) chunk(o Object, data []byte) {
	c, err := DecodeChunk(o.Log.Stream, o.Log.Offset, data)
	if err != nil {
		v.add(o.Key, BadFrames, "a chunk of frames", err.Error())
		return
	}
	if c.Len() != o.Log.Length {
		v.add(o.Key, BadFrames, fmt.Sprintf("%d content bytes", o.Log.Length), fmt.Sprintf("%d", c.Len()))
		return
	}
	for _, f := range c.Frames {
		v.logs[c.Stream].Write(f.Data)
	}
}

// limitedBuffer keeps the first bytes and one more than allowed, so that an
// overlong chunk still fails to decode.
type limitedBuffer struct {
	data []byte
	max  int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := b.max + 1 - len(b.data); room > 0 {
		b.data = append(b.data, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
