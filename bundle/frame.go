package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// A frame on the wire and in an object: 8 bytes big-endian unix microseconds,
// 4 bytes big-endian length, then that many bytes. Any byte value is content:
// nothing is escaped, decoded or split at line ends.
const (
	FrameHeaderLen = 12
	MaxFrame       = 64 << 10 // content bytes in one frame
	MaxChunk       = 1 << 20  // content bytes in one chunk
	MaxChunkFrames = 1 << 16  // frames in one chunk; bounds the memory of tiny frames

	// MaxChunkEncoded is the longest encoding of a chunk within the limits.
	MaxChunkEncoded = MaxChunk + MaxChunkFrames*FrameHeaderLen
)

// Errors of decoding. They are wrapped with the byte offset.
var (
	ErrFrameTooLong  = errors.New("frame is longer than the limit")
	ErrFrameEmpty    = errors.New("frame carries no bytes")
	ErrFrameTime     = errors.New("frame time is before 1970")
	ErrChunkTooLong  = errors.New("chunk carries more bytes than the limit")
	ErrTooManyFrames = errors.New("chunk carries more frames than the limit")
	ErrFrameTorn     = errors.New("data ends inside a frame")
)

// Frame is what one read of a stream returned, and when.
type Frame struct {
	Micros int64 // unix microseconds, not negative
	Data   []byte
}

// At returns the frame's time in UTC.
func (f Frame) At() time.Time { return time.UnixMicro(f.Micros).UTC() }

// Limits bound what a decoder accepts. A zero field means no limit, which only a
// reader of the caller's own spool should use.
type Limits struct {
	Frame   int   // content bytes of one frame
	Content int64 // content bytes in all
	Frames  int   // number of frames
}

// ChunkLimits are the limits of one chunk; SpoolLimits those of a whole stream
// on the runner's disk.
func ChunkLimits() Limits {
	return Limits{Frame: MaxFrame, Content: MaxChunk, Frames: MaxChunkFrames}
}

// SpoolLimits bound each frame and nothing else.
func SpoolLimits() Limits { return Limits{Frame: MaxFrame} }

// AppendFrame appends data to dst as frames of at most MaxFrame bytes, all with
// the same time. Empty data appends nothing, because an empty frame is no
// content. A time before 1970, as an unset clock gives, is stored as 0.
func AppendFrame(dst []byte, micros int64, data []byte) []byte {
	micros = max(micros, 0)
	for len(data) > 0 {
		n := min(len(data), MaxFrame)
		dst = binary.BigEndian.AppendUint64(dst, uint64(micros))
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		dst = append(dst, data[:n]...)
		data = data[n:]
	}
	return dst
}

// DecodeFrames decodes data to its end. The frames alias data. An error means
// that nothing of data may be used.
func DecodeFrames(data []byte, limits Limits) ([]Frame, error) {
	var frames []Frame
	var content int64
	for at := 0; at < len(data); {
		rest := data[at:]
		n, err := limits.frameAt(rest, len(frames), content)
		if err != nil {
			return nil, fmt.Errorf("frame at byte %d: %w", at, err)
		}
		micros, end := binary.BigEndian.Uint64(rest), FrameHeaderLen+n
		frames = append(frames, Frame{Micros: int64(micros), Data: rest[FrameHeaderLen:end:end]})
		content += int64(n)
		at += end
	}
	return frames, nil
}

// EncodeFrames is the inverse of DecodeFrames.
func EncodeFrames(frames []Frame) []byte {
	size := 0
	for _, f := range frames {
		size += FrameHeaderLen + len(f.Data)
	}
	out := make([]byte, 0, size)
	for _, f := range frames {
		out = AppendFrame(out, f.Micros, f.Data)
	}
	return out
}

// ContentLen counts the content bytes of frames.
func ContentLen(frames []Frame) int64 {
	var n int64
	for _, f := range frames {
		n += int64(len(f.Data))
	}
	return n
}

func parseHeader(b []byte, limits Limits) (micros int64, n int, err error) {
	t := binary.BigEndian.Uint64(b)
	size := binary.BigEndian.Uint32(b[8:])
	switch {
	case t > math.MaxInt64:
		return 0, 0, ErrFrameTime
	case size == 0:
		return 0, 0, ErrFrameEmpty
	case limits.Frame > 0 && int64(size) > int64(limits.Frame), size > math.MaxInt32:
		return 0, 0, fmt.Errorf("%w: %d bytes", ErrFrameTooLong, size)
	}
	return int64(t), int(size), nil
}

func (l Limits) admit(frames int, content int64) error {
	if l.Frames > 0 && frames > l.Frames {
		return ErrTooManyFrames
	}
	if l.Content > 0 && content > l.Content {
		return ErrChunkTooLong
	}
	return nil
}

// FrameReader reads frames one by one from a spool or an object. After an
// error, Encoded is where the last whole frame ended, so that a spool with a
// torn tail can be cut there.
type FrameReader struct {
	src     io.Reader
	limits  Limits
	frames  int
	encoded int64
	content int64
	header  [FrameHeaderLen]byte
}

// NewFrameReader reads from src, which should be buffered: each frame costs two
// reads.
func NewFrameReader(src io.Reader, limits Limits) *FrameReader {
	return &FrameReader{src: src, limits: limits}
}

// Next returns the next frame, in memory of its own. io.EOF is a clean end;
// ErrFrameTorn an end inside a frame; any other error of src comes wrapped.
func (r *FrameReader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.src, r.header[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return Frame{}, io.EOF
		}
		return Frame{}, r.fail(err)
	}
	micros, n, err := parseHeader(r.header[:], r.limits)
	if err == nil {
		err = r.limits.admit(r.frames+1, r.content+int64(n))
	}
	if err != nil {
		return Frame{}, r.fail(err)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r.src, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, r.fail(err)
	}
	r.frames++
	r.encoded += int64(FrameHeaderLen + n)
	r.content += int64(n)
	return Frame{Micros: micros, Data: data}, nil
}

// Encoded is the number of bytes of whole frames read so far.
func (r *FrameReader) Encoded() int64 { return r.encoded }

// Content is the number of content bytes read so far.
func (r *FrameReader) Content() int64 { return r.content }

func (r *FrameReader) fail(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrFrameTorn
	}
	return fmt.Errorf("frame at byte %d: %w", r.encoded, err)
}
