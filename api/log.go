package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// How much log is read at once, in bytes.
const (
	defaultLog = 1 << 20
	maxLog     = 4 << 20
	logMessage = 64 << 10
)

// logQuery reads what log routes of both sides take.
func logQuery(q query, otherwise string) (stream string, offset int64, err error) {
	stream = otherwise
	if q.has("stream") {
		stream = q.text("stream")
	}
	if _, err := bundle.ParseStream(stream); err != nil {
		return "", 0, malformed("log_stream", fmt.Sprintf("the query parameter stream is %s; it is stdout, stderr or events", quote(stream)), "")
	}
	offset, err = q.number("offset", 0, 0, 1<<53)
	return stream, offset, err
}

func (s *server) getLog(q *request) error {
	id, err := pathID[domain.AttemptID](q)
	if err != nil {
		return err
	}
	name, offset, err := logQuery(q.query, "stdout")
	if err != nil {
		return err
	}
	follow, err := q.query.truth("follow")
	if err != nil {
		return err
	}
	if follow || wantsStream(q.Request) {
		if q.query.has("limit") {
			return errStreamLimit
		}
		return s.followLog(q, id, name, offset)
	}
	limit, err := q.query.number("limit", defaultLog, 1, maxLog)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(q.Context(), s.RequestTimeout)
	defer cancel()
	data, complete, err := s.Logs.Read(ctx, id, name, offset, int(limit))
	if err != nil {
		return err
	}
	h := q.w.Header()
	// Raw bytes may drive a terminal or a browser: they are offered as a download.
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s.raw.log"`, id, name))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Log-Offset", strconv.FormatInt(offset+int64(len(data)), 10))
	h.Set("Log-Complete", strconv.FormatBool(complete))
	q.w.WriteHeader(http.StatusOK)
	q.w.send(data)
	return nil
}

// followLog sends the log as it comes: id is the content offset after the part,
// data the part in base64.
func (s *server) followLog(q *request, id domain.AttemptID, name string, offset int64) error {
	v, err := q.header("Last-Event-Id")
	if err != nil {
		return err
	}
	if v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return malformed("cursor_invalid", "the header Last-Event-Id is no offset", "use the id of the last message")
		}
		offset = n
	}
	if _, err := s.Reads.Attempt(q.Context(), id); err != nil {
		return err
	}
	return s.follow(q, func(ctx context.Context, t *stream) (some, end bool, err error) {
		data, complete, err := s.Logs.Read(ctx, id, name, offset, defaultLog)
		if err != nil {
			return false, false, err
		}
		for part := data; len(part) > 0; {
			n := min(len(part), logMessage)
			offset += int64(n)
			if err := t.send(strconv.FormatInt(offset, 10), "", base64.StdEncoding.AppendEncode(nil, part[:n])); err != nil {
				return true, false, err
			}
			part = part[n:]
		}
		if complete {
			return true, true, t.sendJSON(strconv.FormatInt(offset, 10), "end", wire.LogEnd{Offset: offset})
		}
		return len(data) > 0, false, nil
	}, s.idleAttempt(id))
}
