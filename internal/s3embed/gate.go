package s3embed

import (
	"bytes"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// gate stands before the protocol layer. What passes it is signed, is one of the
// served operations, and has a plain body that fails to read if it does not match
// what was signed or announced.
type gate struct {
	keys keyPair
	now  func() time.Time
	next http.Handler
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, err := g.keys.check(r, g.now())
	if err == nil && !isServed(r) {
		err = &refusal{http.StatusNotImplemented, "NotImplemented", "this server does not have the operation"}
	}
	if err == nil {
		r, err = plainBody(r, s)
	}
	var refused *refusal
	if errors.As(err, &refused) {
		refused.answer(w, r)
		return
	}
	g.next.ServeHTTP(&answer{ResponseWriter: w, request: r}, r)
}

func (r *refusal) answer(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	// The rest of the body is not read, so the connection cannot go on.
	w.Header().Set("Connection", "close")
	w.WriteHeader(r.status)
	if req.Method == http.MethodHead {
		return
	}
	type xmlError struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}
	// The client may be gone; there is nobody else to tell.
	_ = xml.NewEncoder(w).Encode(xmlError{Code: r.code, Message: r.message})
}

// plainBody returns the request as the protocol layer shall see it.
func plainBody(r *http.Request, s signed) (*http.Request, error) {
	sums, err := announcedSums(r.Header)
	if err != nil {
		return r, err
	}
	out := r.Clone(r.Context())
	body, length := r.Body, r.ContentLength
	if strings.HasPrefix(s.payload, "STREAMING-") {
		c, err := newChunkedReader(r, s)
		if err != nil {
			return r, err
		}
		if length, err = strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64); err != nil || length < 0 {
			return r, malformed("InvalidArgument", "X-Amz-Decoded-Content-Length is needed with a chunked body")
		}
		body = readCloser{c, r.Body}
	} else if s.payload != unsigned {
		want, err := hex.DecodeString(s.payload)
		if err != nil || len(want) != 32 {
			return r, malformed("InvalidArgument", headerPayload+" is no SHA-256")
		}
		sums = append(sums, newSum("sha256", want))
	}
	if length < 0 {
		return r, &refusal{http.StatusLengthRequired, "MissingContentLength", "the length must be known"}
	}
	if length > maxObject {
		return r, malformed("EntityTooLarge", "an object has at most 5 GiB")
	}
	checked := &summedReader{src: body, left: length, sums: sums}
	out.Body = readCloser{checked, r.Body}
	if r.Method != http.MethodPut {
		// The protocol layer parses such a body and need not read to its end,
		// where the digests are checked. It is small, so it is read here.
		if out.Body, err = readSmall(checked); err != nil {
			return r, err
		}
	}
	out.ContentLength = length
	out.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	out.Header.Del(headerPayload)
	if encoding := withoutChunked(out.Header.Get("Content-Encoding")); encoding == "" {
		out.Header.Del("Content-Encoding")
	} else {
		out.Header.Set("Content-Encoding", encoding)
	}
	return out, nil
}

const (
	maxObject = 5 << 30
	maxSmall  = 2 << 20
)

func readSmall(body io.Reader) (io.ReadCloser, error) {
	data, err := io.ReadAll(io.LimitReader(body, maxSmall+1))
	if err != nil {
		return nil, malformed("BadDigest", err.Error())
	}
	if len(data) > maxSmall {
		return nil, malformed("MaxMessageLengthExceeded", "the request is too long")
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// withoutChunked takes away the encoding that was of the transfer only.
func withoutChunked(encoding string) string {
	var kept []string
	for _, e := range strings.Split(encoding, ",") {
		if e = strings.TrimSpace(e); e != "" && e != "aws-chunked" {
			kept = append(kept, e)
		}
	}
	return strings.Join(kept, ",")
}

type readCloser struct {
	io.Reader
	io.Closer
}

// answer corrects the protocol layer's headers.
type answer struct {
	http.ResponseWriter
	request *http.Request
	begun   bool
}

func (a *answer) WriteHeader(status int) {
	if a.begun {
		// The protocol layer reports an error in the middle of an object. Its
		// text must not pass for the object's bytes, so the connection is cut.
		panic(http.ErrAbortHandler)
	}
	a.begun = true
	h := a.Header()
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			h.Del(name) // no other web page shall read the store
		}
	}
	// A checksum is of the whole object and given only when asked for.
	if a.request.Header.Get("X-Amz-Checksum-Mode") != "ENABLED" || status == http.StatusPartialContent {
		h.Del(headerSHA256)
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets the server find the connection's own methods.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
