package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// ErrUnreachable marks a call that got no whole answer: the connection failed,
// broke, or the deadline passed. Whether the service did anything is unknown.
var ErrUnreachable = errors.New("the service could not be reached")

// ProblemError is an answer that is not a success.
type ProblemError struct {
	Method  string
	Path    string
	Problem wire.Problem // Status is always set
	// RetryAfter is how long the service asks to wait; 0 if it does not say.
	RetryAfter time.Duration
}

func (e *ProblemError) Error() string {
	var b strings.Builder
	b.WriteString(e.Problem.Detail)
	if e.Problem.Detail == "" {
		b.WriteString(e.Problem.Title)
	}
	if e.Problem.Pointer != "" {
		fmt.Fprintf(&b, " (at %s)", e.Problem.Pointer)
	}
	for i, v := range e.Problem.Violations {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more", len(e.Problem.Violations)-3)
			break
		}
		fmt.Fprintf(&b, "; %s: %s", v.Pointer, v.Message)
	}
	if e.Problem.Next != "" {
		b.WriteString("; " + e.Problem.Next)
	}
	fmt.Fprintf(&b, " [%d %s]", e.Problem.Status, e.Problem.Code)
	return b.String()
}

// Is lets errors.Is compare with the named errors of package domain by code.
func (e *ProblemError) Is(target error) bool {
	t, ok := target.(*domain.Error)
	return ok && t.Code != "" && t.Code == e.Problem.Code
}

// Kind is the sort of failure, from the status alone.
func (e *ProblemError) Kind() domain.Kind {
	switch e.Problem.Status {
	case http.StatusBadRequest:
		return domain.KindMalformed
	case http.StatusUnprocessableEntity:
		return domain.KindInvalid
	case http.StatusUnauthorized:
		return domain.KindUnauthenticated
	case http.StatusForbidden:
		return domain.KindForbidden
	case http.StatusNotFound:
		return domain.KindNotFound
	case http.StatusConflict:
		return domain.KindConflict
	case http.StatusGone:
		return domain.KindGone
	case http.StatusRequestedRangeNotSatisfiable:
		return domain.KindOffset
	case http.StatusTooManyRequests:
		return domain.KindOverloaded
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return domain.KindUnavailable
	}
	return domain.KindInternal
}

// Offset is the offset that a 416 names: how much of the log the service has.
func (e *ProblemError) Offset() (int64, bool) {
	n, ok := e.Problem.Details["offset"].(json.Number)
	if !ok {
		return 0, false
	}
	v, err := n.Int64()
	return v, err == nil && v >= 0 && e.Problem.Status == http.StatusRequestedRangeNotSatisfiable
}

// KindOf returns the kind of the *ProblemError in err's chain, KindUnavailable
// for ErrUnreachable, and "" for any other error.
func KindOf(err error) domain.Kind {
	var p *ProblemError
	if errors.As(err, &p) {
		return p.Kind()
	}
	if errors.Is(err, ErrUnreachable) {
		return domain.KindUnavailable
	}
	return ""
}

// The questions that callers ask of an error.
func IsMalformed(err error) bool       { return KindOf(err) == domain.KindMalformed }
func IsInvalid(err error) bool         { return KindOf(err) == domain.KindInvalid }
func IsUnauthenticated(err error) bool { return KindOf(err) == domain.KindUnauthenticated }
func IsForbidden(err error) bool       { return KindOf(err) == domain.KindForbidden }
func IsNotFound(err error) bool        { return KindOf(err) == domain.KindNotFound }
func IsConflict(err error) bool        { return KindOf(err) == domain.KindConflict }
func IsGone(err error) bool            { return KindOf(err) == domain.KindGone }
func IsOverloaded(err error) bool      { return KindOf(err) == domain.KindOverloaded }

// IsUnavailable reports whether the same call may succeed later: the service is
// unreachable, or says that a part it needs is away.
func IsUnavailable(err error) bool { return KindOf(err) == domain.KindUnavailable }

// Offset is the offset that a 416 in err's chain names.
func Offset(err error) (int64, bool) {
	var p *ProblemError
	if !errors.As(err, &p) {
		return 0, false
	}
	return p.Offset()
}

// CodeOf is the problem's code in err's chain, "" if there is none.
func CodeOf(err error) string {
	var p *ProblemError
	if !errors.As(err, &p) {
		return ""
	}
	return p.Problem.Code
}

// RetryAfter is how long the service asked to wait, 0 if it did not.
func RetryAfter(err error) time.Duration {
	var p *ProblemError
	if !errors.As(err, &p) {
		return 0
	}
	return p.RetryAfter
}

// readProblem turns an answer that is not a success into an error. One that is
// no problem document, such as a proxy's page, keeps its status and no text.
func readProblem(method, path string, resp *http.Response) error {
	e := &ProblemError{Method: method, Path: path, RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After"))}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && isProblem(resp) {
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.UseNumber()
		err = d.Decode(&e.Problem)
	} else {
		err = errors.New("not a problem document")
	}
	if err != nil {
		e.Problem = wire.Problem{
			Type: "about:blank", Title: http.StatusText(resp.StatusCode), Code: fmt.Sprintf("http_%d", resp.StatusCode),
			Detail: fmt.Sprintf("%s %s was answered with status %d and no explanation", method, path, resp.StatusCode),
			Next:   "check that the address is that of the execution plane and not of something else",
		}
	}
	e.Problem.Status = resp.StatusCode
	return e
}

func isProblem(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/problem+json"
}

// maxRetryAfter bounds what a service may ask for.
const maxRetryAfter = 5 * time.Minute

func parseRetryAfter(s string) time.Duration {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// transportError marks a failed exchange as unreachable, unless the caller gave it up.
func transportError(ctx context.Context, method, path string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s %s: %w", method, path, ctx.Err())
	}
	if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return fmt.Errorf("%s %s: %w: %w", method, path, ErrUnreachable, err)
}
