package masker_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

func TestEmptySetPassesEveryByteAtOnce(t *testing.T) {
	in := []byte("caf\xe9\x00 \xff\xfe\xc3\x28 line\r\n\x1b[31m")
	for size := 1; size <= len(in); size++ {
		var out bytes.Buffer
		w := masker.NewWriter(&out, masker.Empty())
		for at := 0; at < len(in); at += size {
			piece := in[at:min(at+size, len(in))]
			if n, err := w.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
			if want := in[:at+len(piece)]; !bytes.Equal(out.Bytes(), want) {
				t.Fatalf("pieces of %d: %q is out, want %q", size, out.Bytes(), want)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), in) || len(w.Counts()) != 0 || w.Counts() == nil {
			t.Fatalf("pieces of %d: got %q, counts %v", size, out.Bytes(), w.Counts())
		}
	}
}

func TestEmptySetLeavesTextAlone(t *testing.T) {
	if got := masker.Empty().String("a\x00b"); got != "a\x00b" {
		t.Errorf("String = %q", got)
	}
	if got := masker.Empty().Bytes([]byte{0xff, 0}); !bytes.Equal(got, []byte{0xff, 0}) {
		t.Errorf("Bytes = %q", got)
	}
}

func TestCloseEndsTheStream(t *testing.T) {
	var out bytes.Buffer
	w := masker.NewWriter(&out, masker.Empty())
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, masker.ErrClosed) || out.Len() > 0 {
		t.Errorf("write after close: %v, %q came out", err, out.String())
	}
}

type brokenWriter struct {
	err   error
	calls int
}

func (b *brokenWriter) Write(p []byte) (int, error) {
	b.calls++
	return len(p) - 1, b.err
}

func TestBrokenDestinationStaysBroken(t *testing.T) {
	full := errors.New("disk full")
	for _, tt := range []struct{ returns, want error }{{full, full}, {nil, io.ErrShortWrite}} {
		dst := &brokenWriter{err: tt.returns}
		w := masker.NewWriter(dst, masker.Empty())
		for range 2 {
			if _, err := w.Write([]byte("abc")); !errors.Is(err, tt.want) {
				t.Errorf("write error %v, want %v", err, tt.want)
			}
		}
		if err := w.Close(); !errors.Is(err, tt.want) || dst.calls != 1 {
			t.Errorf("close error %v after %d writes, want %v after 1", err, dst.calls, tt.want)
		}
	}
}
