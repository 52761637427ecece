package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// How much log is read at once, in bytes.
const (
	defaultLog = 1 << 20
	maxLog     = 4 << 20
	// maxFollowed bounds what a follower looks up at once: places, not bytes.
	maxFollowed = 16 << 20
	logBuffer   = 256 << 10 // what one download holds
	logMessage  = 64 << 10  // what one follower holds
)

// followedEvery is how often runners send what somebody follows.
const followedEvery = time.Second

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
	part, err := s.Logs.Part(ctx, id, name, offset, limit)
	if err != nil {
		return err
	}
	buf := make([]byte, min(part.Bytes, logBuffer))
	// The first piece is read before anything is sent, so that a failure still has
	// a status.
	n, err := part.Next(ctx, buf)
	if err != nil {
		return err
	}
	h := q.w.Header()
	// Raw bytes may drive a terminal or a browser: they are offered as a download.
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.%s.raw.log"`, id, name))
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.FormatInt(part.Bytes, 10))
	h.Set("Log-Offset", strconv.FormatInt(offset+part.Bytes, 10))
	h.Set("Log-Complete", strconv.FormatBool(part.Complete))
	q.w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(q.w)
	for n > 0 {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := q.w.Write(buf[:n]); err != nil {
			return nil // the caller is gone
		}
		if n, err = s.nextPiece(q.Context(), part, buf); err != nil {
			return err // ends the connection: the caller sees that bytes are missing
		}
	}
	return nil
}

// nextPiece bounds how long one piece may take.
func (s *server) nextPiece(ctx context.Context, part artifacts.LogPart, buf []byte) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, s.RequestTimeout)
	defer cancel()
	return part.Next(ctx, buf)
}

// followedFlush is how often a runner is to send the attempt's log, in seconds,
// while somebody follows it; 0 where that is no sooner than at other times.
func (s *server) followedFlush(ctx context.Context, id domain.AttemptID) int {
	if s.Followers == nil || s.FlushEvery <= followedEvery || id.IsZero() || !s.Followers.Followed(ctx, id) {
		return 0
	}
	return int(followedEvery / time.Second)
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
	woken, end := s.Dispatch.WatchLog(id)
	defer end()
	noted := false
	return s.follow(q, func(ctx context.Context, t *stream) (some, end bool, err error) {
		part, err := s.Logs.Part(ctx, id, name, offset, maxFollowed)
		if err != nil {
			return false, false, err
		}
		// Between two pieces a slow reader holds nothing but its buffers, and none while
		// there is nothing to read.
		buf := make([]byte, min(part.Bytes, logMessage))
		var encoded []byte
		for sent := int64(0); sent < part.Bytes; {
			n, err := s.nextPiece(ctx, part, buf)
			if err != nil {
				return true, false, err
			}
			offset += int64(n)
			sent += int64(n)
			encoded = base64.StdEncoding.AppendEncode(encoded[:0], buf[:n])
			if err := t.send(strconv.FormatInt(offset, 10), "", encoded); err != nil {
				return true, false, err
			}
		}
		if part.Complete {
			return true, true, t.sendJSON(strconv.FormatInt(offset, 10), "end", wire.LogEnd{Offset: offset})
		}
		return part.Bytes > 0, false, nil
	}, func(ctx context.Context) error {
		if !noted && s.Followers != nil {
			noted = true
			context.AfterFunc(ctx, s.Followers.Follow(id))
		}
		t := time.NewTimer(min(s.LogPollEvery, keepAlive))
		defer t.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-woken:
		case <-t.C:
		}
		return nil
	})
}
