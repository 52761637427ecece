package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

// answerOf is how a kind of error is answered.
type answerOf struct {
	Status     int
	Title      string
	RetryAfter int // seconds; 0 for none
}

// kinds is the one table from kinds of error to HTTP.
var kinds = map[domain.Kind]answerOf{
	domain.KindMalformed:       {http.StatusBadRequest, "The request cannot be read", 0},
	domain.KindInvalid:         {http.StatusUnprocessableEntity, "The request breaks rules", 0},
	domain.KindUnauthenticated: {http.StatusUnauthorized, "A valid token is needed", 0},
	domain.KindForbidden:       {http.StatusForbidden, "The caller may not do this", 0},
	domain.KindNotFound:        {http.StatusNotFound, "There is no such thing", 0},
	domain.KindConflict:        {http.StatusConflict, "The request does not go with the present state", 0},
	domain.KindGone:            {http.StatusGone, "It has ended", 0},
	domain.KindOffset:          {http.StatusRequestedRangeNotSatisfiable, "The log does not continue there", 0},
	domain.KindOverloaded:      {http.StatusTooManyRequests, "There is too much to do at present", 5},
	domain.KindUnavailable:     {http.StatusServiceUnavailable, "A part that is needed is away", 2},
	domain.KindInternal:        {http.StatusInternalServerError, "The service made a mistake", 0},
}

// StatusOf is the HTTP status of a kind of error.
func StatusOf(k domain.Kind) int {
	if a, ok := kinds[k]; ok {
		return a.Status
	}
	return http.StatusInternalServerError
}

// errMethod is the one answer outside the table: a route that exists, called by
// another method.
var errMethod = &domain.Error{Kind: domain.KindMalformed, Code: "method_not_allowed", Message: "this path does not take this method", Next: "see the header Allow"}

func malformed(code, message, next string) error {
	return &domain.Error{Kind: domain.KindMalformed, Code: code, Message: message, Next: next}
}

// refusalOf gives every error its kind, code and text; the error itself where it
// is a domain error already.
func refusalOf(err error) *domain.Error {
	var de *domain.Error
	var se *strictjson.Error
	switch {
	case errors.As(err, &de):
		return de
	case errors.As(err, &se):
		return &domain.Error{Kind: domain.KindMalformed, Code: string(se.Code), Message: "the body: " + se.Message,
			Next: "send JSON as docs/api.md describes it"}
	case errors.Is(err, eventstore.ErrUnavailable):
		return &domain.Error{Kind: domain.KindUnavailable, Code: "database_unavailable", Message: "the database is away",
			Next: "repeat the same request with the same Idempotency-Key"}
	case errors.Is(err, context.DeadlineExceeded):
		return &domain.Error{Kind: domain.KindUnavailable, Code: "too_slow", Message: "the service did not finish in time; whether the request took effect is not known",
			Next: "repeat the same request with the same Idempotency-Key"}
	case errors.Is(err, context.Canceled):
		return &domain.Error{Kind: domain.KindUnavailable, Code: "stopping", Message: "the service is stopping, or the caller went away",
			Next: "repeat the same request with the same Idempotency-Key"}
	case errors.Is(err, eventstore.ErrNotFound):
		return &domain.Error{Kind: domain.KindNotFound, Code: "not_found", Message: "there is no such stream or text"}
	case errors.Is(err, eventstore.ErrErased):
		return &domain.Error{Kind: domain.KindGone, Code: "erased", Message: "the text was erased on purpose"}
	case errors.Is(err, eventstore.ErrInvalid):
		return &domain.Error{Kind: domain.KindInvalid, Code: "not_storable", Message: "the request holds text that cannot be stored",
			Next: "send text in UTF-8 without NUL"}
	case errors.Is(err, eventstore.ErrTooLarge):
		return &domain.Error{Kind: domain.KindInvalid, Code: "too_large", Message: "the request is larger than an event may be"}
	}
	return nil
}

// problemOf turns an error into a problem. incident is the id under which an
// internal error is logged; its text is not shown.
func problemOf(err error, incident string) wire.Problem {
	e := refusalOf(err)
	if e == nil || e.Kind == domain.KindInternal || kinds[e.Kind].Status == 0 {
		return wire.Problem{
			Type: "about:blank", Title: kinds[domain.KindInternal].Title, Status: http.StatusInternalServerError, Code: "internal",
			Detail: "something went wrong inside the service; it is logged", Next: "tell an operator the incident id",
			Details: map[string]any{"incident": incident},
		}
	}
	a := kinds[e.Kind]
	p := wire.Problem{
		Type: "about:blank", Title: a.Title, Status: a.Status, Detail: e.Message, Code: e.Code, Next: e.Next,
		Violations: e.Violations, Details: e.Details,
	}
	if e.Code == errMethod.Code {
		p.Status = http.StatusMethodNotAllowed
	}
	var se *strictjson.Error
	if errors.As(err, &se) {
		p.Pointer = se.Pointer
	}
	if len(e.Violations) == 1 {
		p.Pointer = e.Violations[0].Pointer
	}
	return p
}

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, p wire.Problem, retryAfter int) {
	h := w.Header()
	for _, name := range []string{"Etag", "Cache-Control", "Content-Disposition", "Log-Offset", "Log-Complete"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="execution-plane"`
		if p.Code != codeTokenMissing {
			challenge += `, error="invalid_token"`
		}
		h.Set("WWW-Authenticate", challenge)
	}
	b, err := json.Marshal(p)
	if err != nil {
		// Only Details can hold what JSON cannot.
		p.Details = nil
		b, _ = json.Marshal(p)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(b, '\n')) // a caller that left misses nothing
}

func retryAfter(status int) int {
	for _, a := range kinds {
		if a.Status == status {
			return a.RetryAfter
		}
	}
	return 0
}
