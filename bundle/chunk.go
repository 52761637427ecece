package bundle

import "fmt"

// Chunk is a run of frames of one stream. Offset is the content offset of its
// first byte in the stream.
type Chunk struct {
	Stream Stream
	Offset int64
	Frames []Frame
}

// DecodeChunk decodes the bytes of a chunk object under ChunkLimits. A chunk
// without a frame is refused: it would be an object that says nothing.
func DecodeChunk(stream Stream, offset int64, data []byte) (Chunk, error) {
	if !stream.Valid() {
		return Chunk{}, fmt.Errorf("log stream %q: must be stdout, stderr or events", stream)
	}
	if offset < 0 {
		return Chunk{}, fmt.Errorf("log offset %d of %s: must not be negative", offset, stream)
	}
	frames, err := DecodeFrames(data, ChunkLimits())
	if err != nil {
		return Chunk{}, fmt.Errorf("decoding the %s chunk at %d: %w", stream, offset, err)
	}
	if len(frames) == 0 {
		return Chunk{}, fmt.Errorf("decoding the %s chunk at %d: it carries no frame", stream, offset)
	}
	return Chunk{Stream: stream, Offset: offset, Frames: frames}, nil
}

// Len is the number of content bytes.
func (c Chunk) Len() int64 { return ContentLen(c.Frames) }

// End is the content offset after the last byte.
func (c Chunk) End() int64 { return c.Offset + c.Len() }

// Encode returns the bytes of the chunk's object.
func (c Chunk) Encode() []byte { return EncodeFrames(c.Frames) }

// Content returns the bytes a reader of the log sees.
func (c Chunk) Content() []byte {
	out := make([]byte, 0, c.Len())
	for _, f := range c.Frames {
		out = append(out, f.Data...)
	}
	return out
}

// Slice returns the part of c from content offset from on; the first frame may
// be cut and keeps its time. The result shares memory with c. An offset outside
// [Offset, End] is an error, and End itself gives a chunk without frames.
func (c Chunk) Slice(from int64) (Chunk, error) {
	if end := c.End(); from < c.Offset || from > end {
		return Chunk{}, fmt.Errorf("log offset %d of %s: outside of the chunk [%d, %d]", from, c.Stream, c.Offset, end)
	}
	skip := from - c.Offset
	out := Chunk{Stream: c.Stream, Offset: from}
	for i, f := range c.Frames {
		if skip >= int64(len(f.Data)) {
			skip -= int64(len(f.Data))
			continue
		}
		if skip == 0 {
			out.Frames = c.Frames[i:len(c.Frames):len(c.Frames)]
			return out, nil
		}
		out.Frames = make([]Frame, 0, len(c.Frames)-i)
		out.Frames = append(out.Frames, Frame{Micros: f.Micros, Data: f.Data[skip:]})
		out.Frames = append(out.Frames, c.Frames[i+1:]...)
		return out, nil
	}
	return out, nil
}
