package s3embed

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/johannesboyne/gofakes3"
)

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const maxTrailerLines = 8

// chunkedReader undoes aws-chunked: "<size>[;chunk-signature=<hex>]\r\n", bytes,
// "\r\n", a last chunk of size 0, then trailers. A chunk's signature is known to
// be right only after its bytes; nothing is published before the end, so they may
// be passed on meanwhile.
type chunkedReader struct {
	src      *bufio.Reader
	sign     signed
	chunks   bool   // each chunk is signed
	trailers bool   // the trailer is signed too, if chunks are
	promised string // the checksum header that the trailer will bring
	trailing *sum   // that checksum of the bytes so far

	left    int64
	begun   bool
	hash    hash.Hash
	claimed string // signature of the running chunk
	err     error
}

func newChunkedReader(r *http.Request, s signed) (*chunkedReader, error) {
	c := &chunkedReader{src: bufio.NewReader(r.Body), sign: s, hash: sha256.New()}
	switch s.payload {
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD":
		c.chunks = true
	case "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER":
		c.chunks, c.trailers = true, true
	case "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
		c.trailers = true
	default:
		return nil, &refusal{http.StatusNotImplemented, "NotImplemented", "the payload form " + s.payload + " is unknown"}
	}
	if c.trailers {
		c.promised = strings.ToLower(r.Header.Get("X-Amz-Trailer"))
		name := strings.TrimPrefix(c.promised, strings.ToLower(checksumPrefix))
		if c.trailing = newSum(name, nil); c.trailing.hash == nil {
			return nil, &refusal{http.StatusNotImplemented, "NotImplemented", "the trailer " + c.promised + " is unknown"}
		}
	}
	return c, nil
}

func (c *chunkedReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.nextChunk(); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.src.Read(p[:min(int64(len(p)), c.left)])
	c.hash.Write(p[:n])
	if c.trailing != nil {
		c.trailing.hash.Write(p[:n])
	}
	c.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	return n, err
}

// nextChunk ends the running chunk and reads the head of the next one. io.EOF
// means that all was read and is right.
func (c *chunkedReader) nextChunk() error {
	if c.begun {
		if line, err := c.line(); err != nil || line != "" {
			return badChunk("a chunk does not end where it says", err)
		}
		if err := c.endChunk(); err != nil {
			return err
		}
	}
	c.begun = true
	head, err := c.line()
	if err != nil {
		return badChunk("a chunk's head is missing", err)
	}
	size, extension, _ := strings.Cut(head, ";")
	c.claimed = strings.TrimPrefix(extension, "chunk-signature=")
	if c.left, err = strconv.ParseInt(size, 16, 64); err != nil || c.left < 0 {
		return badChunk("a chunk's size is malformed", nil)
	}
	if c.left > 0 {
		return nil
	}
	if err := c.endChunk(); err != nil {
		return err
	}
	return c.trailer()
}

func (c *chunkedReader) endChunk() error {
	if !c.chunks {
		return nil
	}
	text := algorithm + "-PAYLOAD\n" + c.sign.time + "\n" + c.sign.scope + "\n" + c.sign.signature + "\n" +
		emptySHA256 + "\n" + hex.EncodeToString(c.hash.Sum(nil))
	c.hash.Reset()
	return c.matches(text, c.claimed)
}

func (c *chunkedReader) matches(text, claimed string) error {
	want := hex.EncodeToString(mac(c.sign.key, text))
	if !hmac.Equal([]byte(want), []byte(claimed)) {
		return gofakes3.ErrorMessage(gofakes3.ErrBadDigest, "the signature of a chunk does not match")
	}
	c.sign.signature = want
	return nil
}

func (c *chunkedReader) trailer() error {
	var lines strings.Builder
	found, signature := false, ""
	for range maxTrailerLines {
		line, err := c.line()
		if err != nil {
			return badChunk("the trailer is cut", err)
		}
		if line == "" {
			// Some clients put an empty line before the signature too.
			if c.chunks && c.trailers && signature == "" {
				continue
			}
			break
		}
		name, value, _ := strings.Cut(line, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		value = strings.TrimSpace(value)
		switch {
		case name == "x-amz-trailer-signature":
			signature = value
		case c.trailing != nil && name == c.promised && !found:
			found = true
			lines.WriteString(name + ":" + value + "\n")
			if err := c.compare(value); err != nil {
				return err
			}
		default:
			return badChunk("the trailer "+name+" was not announced", nil)
		}
	}
	if !c.trailers {
		return io.EOF
	}
	if !found {
		return badChunk("the announced trailer is missing", nil)
	}
	if c.chunks {
		digest := sha256.Sum256([]byte(lines.String()))
		text := algorithm + "-TRAILER\n" + c.sign.time + "\n" + c.sign.scope + "\n" + c.sign.signature + "\n" + hex.EncodeToString(digest[:])
		if err := c.matches(text, signature); err != nil {
			return err
		}
	}
	return io.EOF
}

func (c *chunkedReader) compare(value string) error {
	if value != base64.StdEncoding.EncodeToString(c.trailing.hash.Sum(nil)) {
		return gofakes3.ErrorMessage(gofakes3.ErrBadDigest, "the body does not match its "+c.trailing.name)
	}
	return nil
}

// line reads up to "\r\n", which it takes away. A long line is an error.
func (c *chunkedReader) line() (string, error) {
	line, err := c.src.ReadSlice('\n')
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	return text, err
}

func badChunk(message string, err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return err
	}
	return gofakes3.ErrorMessage(gofakes3.ErrIncompleteBody, message)
}
