package packages

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// source counts what is read of the file, and keeps the reader's own error apart
// from what decoders make of it.
type source struct {
	r    io.Reader
	n    int64
	most int64
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	switch {
	case s.n > s.most:
		s.err = refuse(CompressedLarge, "the package's file has more than %d bytes", s.most)
		return 0, s.err
	case err != nil && !errors.Is(err, io.EOF):
		s.err = err
	}
	return n, err
}

// stream is the decompressed tar, under limits.
type stream struct {
	src   *source
	dec   io.Reader
	limit Limits
	n     int64
	err   error // the first one that is no end
	close func()
}

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// open begins to decompress. The caller calls close.
func open(r io.Reader, l Limits) (*stream, error) {
	src := &source{r: r, most: l.Compressed}
	s := &stream{src: src, limit: l, close: func() {}}
	buffered := bufio.NewReader(src)
	head, err := buffered.Peek(4)
	if src.err != nil {
		return nil, src.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		dec, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, s.judge(err)
		}
		s.dec = dec
	case bytes.HasPrefix(head, zstdMagic):
		// One at a time: no goroutines, and memory that the window bounds.
		dec, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, s.judge(err)
		}
		s.dec, s.close = dec, dec.Close
	default:
		return nil, refuse(NotAPackage, "it is neither a gzip nor a zstd file, so it is no package")
	}
	return s, nil
}

func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.dec.Read(p)
	s.n += int64(n)
	switch {
	case s.n > s.limit.Size:
		s.err = refuse(TooLarge, "unpacked it has more than %d bytes", s.limit.Size)
	case s.n > ratioFree && (s.n-ratioFree)/s.limit.Ratio > s.src.n:
		s.err = refuse(RatioTooHigh, "more than %d bytes come of each byte, as in a file that is made to fill disks", s.limit.Ratio)
	case err != nil && !errors.Is(err, io.EOF):
		s.err = err
	default:
		return n, err
	}
	return n, s.err
}

// judge says whose an error is: a limit's, the reader's, or the package's.
func (s *stream) judge(err error) error {
	var refused *Refused
	switch {
	case s.src.err != nil:
		return s.src.err
	case errors.As(s.err, &refused):
		return refused
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return refuse(WindowTooLarge, "it needs more than %d MiB of memory to be unpacked: pack it without --long and --ultra", maxWindow>>20)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refuse(Broken, "its archive is cut off")
	}
	return refuse(Broken, "its archive cannot be read: %s", shown(err.Error()))
}

// finish reads what follows the tar's end, which is padding and nothing else, and
// with it the checksum of the compression.
func (s *stream) finish() error {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return refuse(TrailingData, "something follows the end of its archive")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.judge(err)
		}
	}
}
