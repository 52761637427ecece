package bundle

import "fmt"

// ChunkLen checks the bytes of a chunk object as DecodeChunk does and returns how
// many content bytes it holds. It needs no memory of its own.
func ChunkLen(stream Stream, offset int64, data []byte) (int64, error) {
	var n int64
	err := eachFrame(stream, offset, data, func(from, to int) { n += int64(to - from) })
	return n, err
}

// ChunkContent takes the frame headers out of a chunk object's bytes, in place:
// what it returns is a prefix of data and holds the content. data is worthless
// afterwards, also after an error.
func ChunkContent(stream Stream, offset int64, data []byte) ([]byte, error) {
	n := 0
	err := eachFrame(stream, offset, data, func(from, to int) { n += copy(data[n:], data[from:to]) })
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}

// eachFrame calls fn with the place of each frame's content under ChunkLimits. fn
// may write to what lies before that place.
func eachFrame(stream Stream, offset int64, data []byte, fn func(from, to int)) error {
	if !stream.Valid() {
		return fmt.Errorf("log stream %q: must be stdout, stderr or events", stream)
	}
	if offset < 0 {
		return fmt.Errorf("log offset %d of %s: must not be negative", offset, stream)
	}
	limits := ChunkLimits()
	frames, content, at := 0, int64(0), 0
	for at < len(data) {
		n, err := limits.frameAt(data[at:], frames, content)
		if err != nil {
			return fmt.Errorf("decoding the %s chunk at %d: frame at byte %d: %w", stream, offset, at, err)
		}
		from := at + FrameHeaderLen
		at = from + n
		frames++
		content += int64(n)
		fn(from, at)
	}
	if frames == 0 {
		return fmt.Errorf("decoding the %s chunk at %d: it carries no frame", stream, offset)
	}
	return nil
}

// frameAt checks the frame that data begins with, after so many frames and content
// bytes, and returns its content's length.
func (l Limits) frameAt(data []byte, frames int, content int64) (int, error) {
	if len(data) < FrameHeaderLen {
		return 0, ErrFrameTorn
	}
	_, n, err := parseHeader(data, l)
	if err == nil {
		err = l.admit(frames+1, content+int64(n))
	}
	if err == nil && len(data)-FrameHeaderLen < n {
		err = ErrFrameTorn
	}
	return n, err
}
