package s3embed

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strings"

	"github.com/johannesboyne/gofakes3"
)

const checksumPrefix = "X-Amz-Checksum-"

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	nvme       = crc64.MakeTable(0x9a6c9329ac4bc9b5)
)

// sum is a digest of the body that was announced.
type sum struct {
	name string
	hash hash.Hash
	want []byte
}

func newHash(name string) hash.Hash {
	switch name {
	case "sha256":
		return sha256.New()
	case "sha1":
		return sha1.New()
	case "crc32":
		return crc32.NewIEEE()
	case "crc32c":
		return crc32.New(castagnoli)
	case "crc64nvme":
		return crc64.New(nvme)
	}
	return nil
}

func newSum(name string, want []byte) *sum { return &sum{name: name, hash: newHash(name), want: want} }

// announcedSums reads the checksum headers. One that cannot be checked is
// refused: to store it unread would be to vouch for it.
func announcedSums(h http.Header) ([]*sum, error) {
	var out []*sum
	for header, values := range h {
		name, ok := strings.CutPrefix(header, checksumPrefix)
		if name = strings.ToLower(name); !ok || name == "mode" || name == "type" || name == "algorithm" {
			continue
		}
		s, err := parseSum(name, values[0])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func parseSum(name, value string) (*sum, error) {
	s := newSum(name, nil)
	if s.hash == nil {
		return nil, &refusal{http.StatusNotImplemented, "NotImplemented", "the checksum " + name + " is unknown"}
	}
	want, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(want) != s.hash.Size() {
		return nil, malformed("InvalidRequest", "the value of the checksum "+name+" is malformed")
	}
	s.want = want
	return s, nil
}

// summedReader gives exactly the announced number of bytes, and an error in place
// of the end if a digest differs.
type summedReader struct {
	src  io.Reader
	left int64
	sums []*sum
	err  error
}

func (r *summedReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.src.Read(p)
	r.left -= int64(n)
	for _, s := range r.sums {
		s.hash.Write(p[:n])
	}
	if errors.Is(err, io.EOF) {
		err = r.end()
	}
	if err == nil && r.left < 0 {
		err = gofakes3.ErrorMessage(gofakes3.ErrIncompleteBody, "the body is longer than announced")
	}
	r.err = err
	return n, err
}

func (r *summedReader) end() error {
	if r.left != 0 {
		return gofakes3.ErrorMessage(gofakes3.ErrIncompleteBody, "the body is not as long as announced")
	}
	for _, s := range r.sums {
		if !bytes.Equal(s.hash.Sum(nil), s.want) {
			return gofakes3.ErrorMessage(gofakes3.ErrBadDigest, "the body does not match its "+s.name)
		}
	}
	return io.EOF
}
