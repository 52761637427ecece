package ledger

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parse reads a record. It refuses one from which the event cannot be told; whether
// what it tells is true, is for Check.
func Parse(r Record) (Event, error) {
	h := headers{values: map[string]string{}}
	for _, x := range r.Headers {
		if _, twice := h.values[x.Key]; twice {
			return Event{}, fmt.Errorf("the header %s stands twice", x.Key)
		}
		h.values[x.Key] = x.Value
	}
	e := Event{
		ID: h.uuid("ce_id"), Stream: h.text("ce_subject"), Version: h.number("ce_streamversion", 1),
		Type: h.text("ce_type"), Schema: h.number("ce_schemaversion", 1), Time: h.time("ce_time"),
		CommandID: h.uuid("ce_commandid"), CommandDigest: h.digest("ce_commanddigest"),
		Actor:       Actor{Kind: h.values["ce_actorkind"], ID: h.values["ce_actorid"], Role: h.values["ce_actorrole"], Auth: h.values["ce_actorauth"]},
		OperationID: h.values["ce_operationid"], PlanNodeID: h.values["ce_plannodeid"], TraceParent: h.values["ce_traceparent"],
		Payload: r.Value, PrevHash: h.digest("ce_prevhash"), Hash: h.digest("ce_ledgerhash"),
		PrevInTopic: h.number("ce_previntopic", 0), Position: h.number("ce_position", 0),
		Replayed: h.values["ce_replayed"] == "true",
	}
	if _, has := h.values["ce_causeid"]; has {
		e.Cause = h.uuid("ce_causeid")
	}
	e.Generation, e.Sequence = h.cursor("ce_cursor")
	h.is("ce_specversion", "1.0")
	h.is("content-type", "application/json")
	h.is("ce_dataschema", fmt.Sprintf("urn:execution-plane:event:%s:%d", e.Type, e.Schema))
	if h.err == nil && e.PrevInTopic >= e.Version {
		h.err = fmt.Errorf("the header ce_previntopic is %d at version %d", e.PrevInTopic, e.Version)
	}
	return e, h.err
}

// headers reads headers and keeps the first error.
type headers struct {
	values map[string]string
	err    error
}

func (h *headers) text(name string) string {
	v := h.values[name]
	if v == "" {
		h.fail("the header %s is missing", name)
	}
	return v
}

func (h *headers) fail(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf(format, args...)
	}
}

func (h *headers) is(name, want string) {
	if v := h.text(name); v != want {
		h.fail("the header %s is %q, not %q", name, v, want)
	}
}

// number reads decimal digits as they are hashed: no sign, no leading zero.
func (h *headers) number(name string, least int64) int64 {
	v := h.text(name)
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || strconv.FormatInt(n, 10) != v {
		h.fail("the header %s is %q, no number from %d", name, v, least)
	}
	return n
}

func (h *headers) uuid(name string) (u UUID) {
	v := h.text(name)
	digits := strings.ReplaceAll(v, "-", "")
	if _, err := hex.Decode(u[:], []byte(clip(digits, len(u)))); err != nil || u.String() != v {
		h.fail("the header %s is %q, no UUID", name, v)
	}
	return u
}

func (h *headers) digest(name string) (d Digest) {
	v := h.text(name)
	if _, err := hex.Decode(d[:], []byte(clip(v, len(d)))); err != nil || d.String() != v {
		h.fail("the header %s is %q, no SHA-256 in lower-case hex", name, v)
	}
	return d
}

// clip cuts hex to what n bytes can hold; what is cut then shows in the comparison.
func clip(digits string, n int) string { return digits[:min(len(digits), hex.EncodedLen(n))] }

func (h *headers) time(name string) string {
	v := h.text(name)
	if t, err := time.Parse("2006-01-02T15:04:05.000000Z", v); err != nil || t.Format("2006-01-02T15:04:05.000000Z") != v {
		h.fail("the header %s is %q, no time with six digits", name, v)
	}
	return v
}

func (h *headers) cursor(name string) (generation, sequence int64) {
	v := h.text(name)
	g, s, _ := strings.Cut(v, ".")
	generation, err := strconv.ParseInt(g, 10, 64)
	sequence, err2 := strconv.ParseInt(s, 10, 64)
	if err != nil || err2 != nil {
		h.fail("the header %s is %q, no place in the feed", name, v)
	}
	return generation, sequence
}
