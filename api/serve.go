package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// request is a request that may be carried out: the caller is known, and what
// the route's row asks for is there.
type request struct {
	*http.Request
	w     *recorder
	route *Route
	id    string // names the request in logs and in the header Request-Id
	who   identity
	query query
	body  []byte // as decoded from; see Route.OddText
	// upload is the body of a route that is Streamed.
	upload artifacts.Incoming
	meta   commands.Meta
	lease  commands.LeaseCall
}

// Deadlines of a connection, beside those of the handlers.
const (
	bodyTimeout  = 30 * time.Second // to send a whole body
	writeTimeout = 60 * time.Second // to take an answer, or one message of a stream
)

// serve carries out requests of one route.
func (s *server) serve(route *Route) http.Handler {
	return s.observe(route.Path, route.Quiet, func(w *recorder, r *http.Request, id string) error {
		q := &request{Request: r, w: w, route: route, id: id}
		if route.Streamed {
			// A caller that left is noticed by its body, and is told of that.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), uploadTimeout)
			defer cancel()
			q.Request = r.WithContext(ctx)
			defer q.discard()
		} else if !route.Held {
			ctx, cancel := context.WithTimeout(r.Context(), s.RequestTimeout)
			defer cancel()
			q.Request = r.WithContext(ctx)
		}
		if err := s.admit(q); err != nil {
			return err
		}
		if route.Streamed {
			return s.uploading(q)
		}
		return route.handle(s, q)
	})
}

// admit checks everything about a request that its route's row says.
func (s *server) admit(q *request) error {
	var err error
	if !q.route.Public() {
		if q.who, err = s.authenticate(q.Context(), q.Header); err != nil {
			return err
		}
		w := q.who
		q.w.actor, q.w.role = w.actor.ID, w.actor.Role
		if w.enrolment != nil {
			q.w.actor, q.w.role = w.enrolment.ID.String(), "enrolment"
		}
		if err := authorise(w, q.route); err != nil {
			return err
		}
		// A probe may append what it likes to its URL; callers may not.
		if q.query, err = parseQuery(q.URL.RawQuery, q.route.Query); err != nil {
			return err
		}
	}
	if q.route.Own {
		id, err := pathID[domain.RunnerID](q)
		if err != nil {
			return err
		}
		if q.who.role == domain.RoleRunner && id != q.who.runnerID {
			return errForeign
		}
	}
	if err := q.readKey(); err != nil {
		return err
	}
	if err := q.readLease(); err != nil {
		return err
	}
	if q.route.Streamed {
		return q.beginUpload()
	}
	return q.readBody()
}

func pathID[T domain.ID[K], K any](q *request) (T, error) {
	return parseID[T, K]("the id in the path", pathValue(q.Request, "id"))
}

// header returns a header that may stand once at most.
func (q *request) header(name string) (string, error) {
	v := q.Header.Values(name)
	if len(v) > 1 {
		return "", malformed("header_repeated", "the header "+name+" stands twice", "send it once")
	}
	if len(v) == 0 {
		return "", nil
	}
	return v[0], nil
}

func (q *request) readKey() error {
	if q.route.Key == KeyNone || q.route.Key == "" {
		return nil
	}
	v, err := q.header(wire.HeaderIdempotencyKey)
	if err != nil {
		return err
	}
	switch {
	case v != "":
		q.meta.CommandID, err = parseID[domain.CommandID](wire.HeaderIdempotencyKey, v)
	case q.route.Key == KeyRequired:
		err = malformed("idempotency_key_required", "the header Idempotency-Key is missing", "send a new UUID with each new request, and the same one when repeating it")
	default:
		q.meta.CommandID = domain.NewID[domain.CommandID](uuid.New())
	}
	return err
}

var leaseToken = regexp.MustCompile(`^[!-~]{16,200}$`)

func (q *request) readLease() error {
	if !q.route.Lease {
		return nil
	}
	token, err := q.header(wire.HeaderLeaseToken)
	if err != nil {
		return err
	}
	epoch, err := q.header(wire.HeaderLeaseEpoch)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != epoch {
		return malformed("lease_headers", "the header Lease-Epoch is missing or no positive integer", "send the epoch of the offer")
	}
	if !leaseToken.MatchString(token) {
		return malformed("lease_headers", "the header Lease-Token is missing or no lease token", "send the token whose hash the offer named")
	}
	id, err := pathID[domain.LeaseID](q)
	if err != nil {
		return err
	}
	q.lease = commands.LeaseCall{LeaseID: id, Epoch: n, Token: token, RunnerID: q.who.runnerID}
	return nil
}

var traceParent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// readBody reads the body and makes the command's meta from what was received.
func (q *request) readBody() error {
	if !q.route.HasBody() {
		return nil
	}
	limit := q.route.MaxBody
	if limit == 0 {
		limit = MaxBody
	}
	c := http.NewResponseController(q.w)
	// Not every ResponseWriter has deadlines; the server's have.
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := readBody(q.Request, limit)
	_ = c.SetReadDeadline(time.Time{})
	if err != nil {
		return err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", q.Method, q.URL.RequestURI())
	h.Write(body)
	h.Sum(q.meta.Digest[:0])
	q.begin()
	if q.route.OddText {
		body = neutralise(body)
	}
	q.body = body
	return nil
}

// begin notes who commands.
func (q *request) begin() {
	q.meta.Actor = q.who.actor
	if v := q.Header.Get("Traceparent"); traceParent.MatchString(v) {
		q.meta.TraceParent = v
	}
}

// json answers with a JSON document.
func (q *request) json(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	q.w.Header().Set("Content-Type", mediaJSON)
	q.w.Header().Set("Cache-Control", "no-store")
	q.w.WriteHeader(status)
	q.w.send(append(b, '\n'))
	return nil
}

// immutable answers with bytes that will never change, or with 304.
func (q *request) immutable(media string, b []byte) error {
	sum := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(sum[:]) + `"`
	h := q.w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "private, no-cache")
	if q.Header.Get("If-None-Match") == tag {
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	q.w.send(b)
	return nil
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status      int // 0 until the header is written
	bytes       int64
	actor, role string
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// send writes the rest of an answer. That the caller left is no error of ours;
// net/http closes the connection.
func (w *recorder) send(b []byte) { _, _ = w.Write(b) }

// Unwrap lets http.ResponseController find the server's own writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// statusGone stands in logs and metrics for callers that went away.
const statusGone = 499

// observe wraps a handler: request id, deadlines, panics, errors, log, metrics.
func (s *server) observe(pattern string, quiet bool, handle func(*recorder, *http.Request, string) error) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		began := time.Now()
		w := &recorder{ResponseWriter: rw}
		id := rand.Text()
		h := w.Header()
		h.Set("Request-Id", id)
		h.Set("X-Content-Type-Options", "nosniff")
		_ = http.NewResponseController(rw).SetWriteDeadline(began.Add(MaxWait*time.Second + writeTimeout))
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				s.fail(w, r, id, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
			s.finish(w, r, id, pattern, quiet, began)
		}()
		if err := handle(w, r, id); err != nil {
			s.fail(w, r, id, err)
		}
	})
}

// fail answers with an error, or ends the connection where an answer had begun.
func (s *server) fail(w *recorder, r *http.Request, id string, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		if w.status == 0 {
			w.status = statusGone
		}
		return
	}
	p := problemOf(err, id)
	switch {
	case p.Code == "internal":
		s.Log.ErrorContext(r.Context(), "a request failed inside the service", "incident", id, "error", err.Error())
	case p.Status == http.StatusServiceUnavailable:
		s.Log.WarnContext(r.Context(), "a request met a part that is away", "request_id", id, "code", p.Code, "error", err.Error())
	}
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeProblem(w, p, retryAfter(p.Status))
}

func (s *server) finish(w *recorder, r *http.Request, id, pattern string, quiet bool, began time.Time) {
	status := w.status
	if status == 0 {
		status = http.StatusOK
	}
	d := time.Since(began)
	s.Metrics.observe(pattern, r.Method, status, d)
	level := slog.LevelInfo
	if quiet && status < 500 {
		level = slog.LevelDebug
	}
	// No query and no header: both may hold what is nobody's business.
	s.Log.LogAttrs(r.Context(), level, "request", slog.String("request_id", id), slog.String("method", plain(r.Method)),
		slog.String("path", plain(r.URL.EscapedPath())), slog.Int("status", status), slog.Int64("bytes", w.bytes),
		slog.Duration("duration", d), slog.String("remote", r.RemoteAddr), slog.String("actor", plain(w.actor)), slog.String("role", w.role))
}

// plain shows a caller's text in the log: short, and with control characters and
// whatever is not ASCII as escapes, so that no entry can be forged.
func plain(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

// refuse answers every request alike, such as one for an unknown path.
func (s *server) refuse(pattern string, err error, allow string) http.Handler {
	return s.observe(pattern, false, func(w *recorder, r *http.Request, _ string) error {
		if allow != "" {
			w.Header().Set("Allow", allow)
		}
		_, _ = io.CopyN(io.Discard, r.Body, 4<<10) // lets the connection be used again
		return err
	})
}
