package bundle_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/platform-core/execution-plane-service/bundle"
)

// ChunkLen and ChunkContent say what DecodeChunk says, of good bytes and of bad ones.
func TestContentIsWhatDecodeChunkGives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		for range rapid.IntRange(0, 5).Draw(t, "frames") {
			data = bundle.AppendFrame(data, 1, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "content"))
		}
		switch rapid.IntRange(0, 3).Draw(t, "harm") {
		case 0:
			data = data[:rapid.IntRange(0, len(data)).Draw(t, "cut")]
		case 1:
			if len(data) > 0 {
				data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			}
		}
		offset := rapid.Int64Range(-1, 10).Draw(t, "offset")
		stream := rapid.SampledFrom([]bundle.Stream{bundle.Stdout, "none"}).Draw(t, "stream")
		want, wantErr := bundle.DecodeChunk(stream, offset, bytes.Clone(data))
		n, err := bundle.ChunkLen(stream, offset, data)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("ChunkLen: %v, DecodeChunk: %v", err, wantErr)
		}
		got, err := bundle.ChunkContent(stream, offset, bytes.Clone(data))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("ChunkContent: %v, DecodeChunk: %v", err, wantErr)
		}
		if err == nil && (n != want.Len() || !bytes.Equal(got, want.Content())) {
			t.Fatalf("%d bytes %q, want %d bytes %q", n, got, want.Len(), want.Content())
		}
	})
}
