package forwarder

import (
	"strings"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

var heartbeat = domain.Heartbeat{}.EventType()

// Route names the topic and the record key of an event. Nothing is dropped: a
// stream of no known prefix goes to the audit topic under its whole name.
func (t Topics) Route(stream eventstore.StreamID, eventType string) (topic, key string) {
	prefix, rest, ok := strings.Cut(string(stream), "/")
	if !ok {
		return t.Audit, string(stream)
	}
	switch prefix {
	case "attempt":
		if eventType == heartbeat {
			return t.Heartbeats, rest
		}
		return t.Attempts, rest
	case "bundle", "operation":
		return t.Attempts, rest
	case "runner":
		return t.Runners, rest
	case "callback":
		return t.Callbacks, behindSlash(rest)
	case "endpoint":
		return t.Callbacks, rest
	case "token", "enrolment", "package":
		return t.Audit, rest
	case "access", "forwarder":
		return t.Audit, behindSlash(rest)
	}
	return t.Audit, string(stream)
}

// behindSlash drops the first of several parts: the endpoint of callback/, the day
// of access/, the topic of forwarder/.
func behindSlash(rest string) string {
	_, last, ok := strings.Cut(rest, "/")
	if !ok {
		return rest
	}
	return last
}

// Streams of a key: those that are called by it, and those with one more part
// before it. What else they hold, Route tells.
func streamsNamed(key string) (names []eventstore.StreamID, prefixes []string) {
	for _, prefix := range []string{"attempt/", "bundle/", "operation/", "runner/", "callback/", "endpoint/", "token/", "enrolment/", "package/", "access/", "forwarder/", ""} {
		names = append(names, eventstore.StreamID(prefix+key))
	}
	return names, []string{"callback", "access", "forwarder"}
}
