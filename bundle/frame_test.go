package bundle_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/platform-core/execution-plane-service/bundle"
)

// awkward holds what logs really contain: bytes that are no text.
var awkward = [][]byte{
	[]byte("a\x00b\n"),
	{0xff, 0xfe, 0xc3, 0x28},
	[]byte("caf\xe9 \xed\xa0\x80"),
	[]byte("\x1b[31mred\x1b[0m\r\n"),
	{0},
}

func TestFramesKeepEveryByte(t *testing.T) {
	var data []byte
	var want []bundle.Frame
	for i, b := range awkward {
		data = bundle.AppendFrame(data, int64(i), b)
		want = append(want, bundle.Frame{Micros: int64(i), Data: b})
	}
	got, err := bundle.DecodeFrames(data, bundle.ChunkLimits())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	if !bytes.Equal(bundle.EncodeFrames(got), data) {
		t.Error("encoding the decoded frames gives other bytes")
	}
}

func TestFrameBytesOnTheWire(t *testing.T) {
	got := bundle.AppendFrame(nil, 0x0102030405060708, []byte("hi"))
	want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 'h', 'i'}
	if !bytes.Equal(got, want) {
		t.Errorf("frame = %v, want %v", got, want)
	}
}

func TestAppendFrameSplitsAndSkips(t *testing.T) {
	long := bytes.Repeat([]byte{7}, 2*bundle.MaxFrame+1)
	frames, err := bundle.DecodeFrames(bundle.AppendFrame(nil, -5, long), bundle.ChunkLimits())
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != 3 || bundle.ContentLen(frames) != int64(len(long)) || frames[0].Micros != 0 {
		t.Errorf("got %d frames with %d bytes at %d", len(frames), bundle.ContentLen(frames), frames[0].Micros)
	}
	if got := bundle.AppendFrame([]byte("x"), 1, nil); string(got) != "x" {
		t.Errorf("empty data appended %q", got)
	}
}

func TestDecodeFramesRefuses(t *testing.T) {
	frame := bundle.AppendFrame(nil, 1, []byte("abc"))
	header := func(micros uint64, n uint32) []byte {
		b := make([]byte, bundle.FrameHeaderLen)
		for i := range 8 {
			b[i] = byte(micros >> (56 - 8*i))
		}
		for i := range 4 {
			b[8+i] = byte(n >> (24 - 8*i))
		}
		return b
	}
	tests := []struct {
		name   string
		data   []byte
		limits bundle.Limits
		want   error
	}{
		{"torn header", frame[:5], bundle.ChunkLimits(), bundle.ErrFrameTorn},
		{"torn data", frame[:len(frame)-1], bundle.ChunkLimits(), bundle.ErrFrameTorn},
		{"empty frame", header(1, 0), bundle.ChunkLimits(), bundle.ErrFrameEmpty},
		{"before 1970", append(header(math.MaxUint64, 1), 'x'), bundle.ChunkLimits(), bundle.ErrFrameTime},
		{"length past the limit", header(1, bundle.MaxFrame+1), bundle.ChunkLimits(), bundle.ErrFrameTooLong},
		{"greatest length without a limit", header(1, math.MaxUint32), bundle.Limits{}, bundle.ErrFrameTooLong},
		{"content past the limit", append(frame[:len(frame):len(frame)], frame...), bundle.Limits{Content: 5}, bundle.ErrChunkTooLong},
		{"frames past the limit", append(frame[:len(frame):len(frame)], frame...), bundle.Limits{Frames: 1}, bundle.ErrTooManyFrames},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := bundle.DecodeFrames(tt.data, tt.limits); !errors.Is(err, tt.want) {
				t.Errorf("decoded %d frames, error %v, want %v", len(got), err, tt.want)
			}
			r := bundle.NewFrameReader(bytes.NewReader(tt.data), tt.limits)
			for {
				if _, err := r.Next(); err != nil {
					if !errors.Is(err, tt.want) {
						t.Errorf("reader ended with %v, want %v", err, tt.want)
					}
					break
				}
			}
		})
	}
}

func TestFrameReaderSaysWhereTheTornTailBegins(t *testing.T) {
	data := bundle.AppendFrame(nil, 1, []byte("whole"))
	whole := len(data)
	data = bundle.AppendFrame(data, 2, []byte("torn"))
	for cut := whole + 1; cut < len(data); cut++ {
		r := bundle.NewFrameReader(iotest.OneByteReader(bytes.NewReader(data[:cut])), bundle.SpoolLimits())
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); !errors.Is(err, bundle.ErrFrameTorn) {
			t.Fatalf("cut at %d: error %v, want torn", cut, err)
		}
		if r.Encoded() != int64(whole) || r.Content() != 5 {
			t.Fatalf("cut at %d: whole frames end at %d with %d bytes", cut, r.Encoded(), r.Content())
		}
	}
	broken := errors.New("disk gone")
	r := bundle.NewFrameReader(iotest.ErrReader(broken), bundle.SpoolLimits())
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

func TestChunkSlice(t *testing.T) {
	var data []byte
	for i, s := range []string{"abc", "d", "efgh"} {
		data = bundle.AppendFrame(data, int64(i), []byte(s))
	}
	c, err := bundle.DecodeChunk(bundle.Stdout, 10, data)
	if err != nil {
		t.Fatal(err)
	}
	whole := c.Content()
	for from := c.Offset; from <= c.End(); from++ {
		s, err := c.Slice(from)
		if err != nil {
			t.Fatal(err)
		}
		if want := whole[from-10:]; !bytes.Equal(s.Content(), want) || s.Offset != from || s.End() != c.End() {
			t.Errorf("slice at %d: %q at %d, want %q", from, s.Content(), s.Offset, want)
		}
	}
	if !bytes.Equal(c.Content(), whole) || !bytes.Equal(c.Encode(), data) {
		t.Error("slicing changed the chunk")
	}
	for _, from := range []int64{9, 19, -1, math.MaxInt64} {
		if _, err := c.Slice(from); err == nil {
			t.Errorf("slice at %d was accepted", from)
		}
	}
}

func TestDecodeChunkRefuses(t *testing.T) {
	data := bundle.AppendFrame(nil, 1, []byte("x"))
	if _, err := bundle.DecodeChunk("syslog", 0, data); err == nil {
		t.Error("an unknown stream was accepted")
	}
	if _, err := bundle.DecodeChunk(bundle.Stdout, -1, data); err == nil {
		t.Error("a negative offset was accepted")
	}
	if _, err := bundle.DecodeChunk(bundle.Stdout, 0, nil); err == nil {
		t.Error("a chunk without frames was accepted")
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(bundle.AppendFrame(nil, 5, []byte("line\n")), int64(3))
	f.Add(bundle.AppendFrame(bundle.AppendFrame(nil, 1, awkward[0]), math.MaxInt64, awkward[1]), int64(1))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, int64(0))
	f.Fuzz(func(t *testing.T, data []byte, from int64) {
		frames, err := bundle.DecodeFrames(data, bundle.ChunkLimits())
		r := bundle.NewFrameReader(bytes.NewReader(data), bundle.ChunkLimits())
		var read []bundle.Frame
		var readErr error
		for readErr == nil {
			var fr bundle.Frame
			if fr, readErr = r.Next(); readErr == nil {
				read = append(read, fr)
			}
		}
		if (err == nil) != errors.Is(readErr, io.EOF) {
			t.Fatalf("decoding says %v, reading says %v", err, readErr)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(frames, read, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decoding and reading differ:\n%s", diff)
		}
		if !bytes.Equal(bundle.EncodeFrames(frames), data) {
			t.Fatal("the encoding is not canonical")
		}
		c := bundle.Chunk{Stream: bundle.Stderr, Frames: frames}
		if s, err := c.Slice(from); err == nil && !bytes.Equal(s.Content(), c.Content()[from:]) {
			t.Fatalf("slice at %d gives other bytes", from)
		} else if err != nil && from >= 0 && from <= c.Len() {
			t.Fatalf("slice at %d of %d: %v", from, c.Len(), err)
		}
	})
}
