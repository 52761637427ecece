package api

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

const (
	// uploadTimeout bounds a body that is read while it comes; it may also make no
	// pause longer than bodyTimeout.
	uploadTimeout = time.Hour
	// maxUploads is how many such bodies are taken at once before more are answered
	// 429: each may hold a file of its size.
	maxUploads = 32
)

var errTooManyUploads = &domain.Error{Kind: domain.KindOverloaded, Code: "too_many_uploads", Message: "too many files are being uploaded at present",
	Next: "send it again after the time in Retry-After"}

// beginUpload checks what the headers say of a body that is read while it comes.
func (q *request) beginUpload() error {
	u := &q.upload
	u.Bytes = q.ContentLength
	if u.Bytes > int64(q.route.MaxBody) {
		return tooLargeUpload(q.route.MaxBody)
	}
	v, err := q.header(wire.HeaderContentSHA256)
	if err != nil {
		return err
	}
	if v != "" {
		if u.SHA256, err = bundle.ParseSHA256(v); err != nil {
			return malformed("invalid_digest", "the header Content-SHA256 is not 64 lower-case hex digits", "send the SHA-256 of the body, or leave it out")
		}
	}
	if u.MediaType, err = q.mediaType(); err != nil {
		return err
	}
	q.begin()
	u.Meta = q.meta
	u.Body = &arriving{q: q, c: http.NewResponseController(q.w), left: int64(q.route.MaxBody), until: time.Now().Add(uploadTimeout)}
	// As of any other body, but for its digest in the place of its bytes.
	u.Digest = func(body bundle.SHA256) (d eventstore.Digest) {
		h := sha256.New()
		fmt.Fprintf(h, "%s\n%s\n%s\n%s\n", q.Method, q.URL.RequestURI(), u.MediaType, body)
		h.Sum(d[:0])
		return d
	}
	return nil
}

func (q *request) mediaType() (string, error) {
	v, err := q.header("Content-Type")
	if err != nil || v == "" {
		return mediaBytes, err
	}
	if _, _, err := mime.ParseMediaType(v); err != nil || len(v) > 200 || !printable(v) {
		return "", malformed("content_type", "the header Content-Type is not a media type of at most 200 bytes", "send one such as text/yaml, or leave it out")
	}
	return v, nil
}

func tooLargeUpload(limit int) error {
	return malformed("too_large", fmt.Sprintf("the body has more than %d bytes", limit), "send a smaller file, or several")
}

// arriving is a body on its way in: no pause is longer than bodyTimeout, and no more
// comes than the route takes. Its errors are answers.
type arriving struct {
	q     *request
	c     *http.ResponseController
	left  int64
	until time.Time
	set   time.Time // when the deadline was moved last
}

func (a *arriving) Read(p []byte) (int, error) {
	now := time.Now()
	if now.After(a.until) {
		return 0, malformed("body_broken", "the body took longer than an hour", "send it over a faster connection")
	}
	if now.Sub(a.set) > time.Second {
		a.set = now
		// Not every ResponseWriter has deadlines; the server's have.
		_ = a.c.SetReadDeadline(now.Add(bodyTimeout))
	}
	n, err := a.q.Body.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, tooLargeUpload(a.q.route.MaxBody)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = malformed("body_broken", "the body did not arrive whole", "send it again")
	}
	return n, err
}

// uploading carries out a request whose body is read while it comes.
func (s *server) uploading(q *request) error {
	c := http.NewResponseController(q.w)
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		return errTooManyUploads
	}
	_ = c.SetWriteDeadline(time.Now().Add(uploadTimeout + writeTimeout))
	err := q.route.handle(s, q)
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	return err
}

// discard reads some of a body that nobody wants: a caller that still writes would
// meet a reset instead of the answer. What is larger is cut off all the same, and who
// waits to be told to go on has sent nothing yet.
func (q *request) discard() {
	if strings.EqualFold(q.Header.Get("Expect"), "100-continue") {
		return
	}
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(discardTimeout))
	_, _ = io.CopyN(io.Discard, q.Body, maxDiscard)
}

// discardTimeout bounds what discard waits for.
const discardTimeout = 5 * time.Second
