package verification

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"
)

// Reasons of an expectation that did not hold, beside the classes of error.
const (
	reasonStatus             = "status_mismatch"
	reasonServerError        = "server_error"
	reasonBodyMissing        = "body_text_missing"
	reasonBodyMismatch       = "body_mismatch"
	reasonHeaderMissing      = "header_missing"
	reasonHeaderMismatch     = "header_mismatch"
	reasonNoJSON             = "body_no_json"
	reasonJSONMissing        = "json_value_missing"
	reasonJSONMismatch       = "json_value_mismatch"
	reasonSlow               = "too_slow"
	reasonBanner             = "banner_mismatch"
	reasonStarting           = "cannot_connect_now"
	reasonTooManyConnections = "too_many_connections"
	reasonDatabaseMissing    = "database_missing"
	reasonQueryFailed        = "query_failed"
	reasonLoginNeeded        = "login_needed"
	reasonInRecovery         = "in_recovery"
	reasonReadOnly           = "read_only_session"
	reasonReadWrite          = "read_write"
	reasonAssertion          = "assertion_false"
	reasonAssertionError     = "assertion_error"
)

// broke is the judgement of a condition that was looked at and is false.
func broke(reason string) judgement { return judgement{broken, reason} }

// judged is held where ok, else broken for the reason.
func judged(ok bool, reason string) judgement {
	if ok {
		return judgement{sight: held}
	}
	return broke(reason)
}

// failedTry is the observation of a try that ended in an error: nothing that
// was expected held, or nothing could be seen.
func failedTry(err error, latency time.Duration, expectations int, attrs map[string]any) observation {
	class, seen := classify(err)
	o := observation{seen: seen, class: class, latency: latency, attrs: attrs, denied: class == classDenied}
	j := judgement{unseen, class}
	if seen {
		j = broke(class)
	}
	for range expectations {
		o.judged = append(o.judged, j)
	}
	return o
}

// withinLatency judges max_latency_ms, which 0 leaves open.
func withinLatency(latency time.Duration, most int) judgement {
	return judged(most == 0 || latency <= time.Duration(most)*time.Millisecond, reasonSlow)
}

// remoteAttribute is the address that answered.
func remoteAttribute(conn net.Conn) map[string]any {
	return map[string]any{"address": conn.RemoteAddr().String()}
}

// bindToContext ends reads and writes when the context ends. The function it
// gives takes that back.
func bindToContext(ctx context.Context, conn net.Conn) (release func() bool) {
	if deadline, ok := ctx.Deadline(); ok {
		// A connection that refuses a deadline is closed already; the next
		// read tells.
		_ = conn.SetDeadline(deadline)
	}
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

func sortedNames[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
