package ledger_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
)

// vector is a test vector of docs/events.md.
type vector struct {
	PrevHash      string `json:"prev_hash"`
	EventID       string `json:"event_id"`
	Stream        string `json:"stream"`
	Version       int64  `json:"version"`
	Type          string `json:"type"`
	Schema        int64  `json:"schema"`
	Time          string `json:"time"`
	CommandID     string `json:"command_id"`
	CommandDigest string `json:"command_digest"`
	Cause         string `json:"cause"`
	Actor         ledger.Actor
	OperationID   string `json:"operation_id"`
	PlanNodeID    string `json:"plan_node_id"`
	TraceParent   string `json:"traceparent"`
	Payload       string `json:"payload"`
	HashedBytes   string `json:"hashed_bytes"`
	Hash          string `json:"hash"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	section, _, _ := strings.Cut(string(page), "\n## States of an attempt\n")
	var out []vector
	for _, block := range strings.Split(section, "```json\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var v vector
		if err := json.Unmarshal([]byte(block), &v); err != nil {
			t.Fatal(err)
		}
		if v.HashedBytes != "" {
			out = append(out, v)
		}
	}
	if len(out) != 2 {
		t.Fatalf("docs/events.md has %d test vectors", len(out))
	}
	return out
}

// record publishes a vector as docs/events.md, "On Kafka", says.
func (v vector) record() ledger.Record {
	r := ledger.Record{Topic: "attempts", Key: strings.TrimPrefix(v.Stream, "attempt/"), Value: []byte(v.Payload), Offset: v.Version - 1}
	add := func(key, value string) {
		if value != "" {
			r.Headers = append(r.Headers, ledger.Header{Key: key, Value: value})
		}
	}
	add("content-type", "application/json")
	add("ce_specversion", "1.0")
	add("ce_id", v.EventID)
	add("ce_source", "urn:execution-plane")
	add("ce_type", v.Type)
	add("ce_subject", v.Stream)
	add("ce_time", v.Time)
	add("ce_dataschema", fmt.Sprintf("urn:execution-plane:event:%s:%d", v.Type, v.Schema))
	add("ce_streamversion", strconv.FormatInt(v.Version, 10))
	add("ce_previntopic", strconv.FormatInt(v.Version-1, 10))
	add("ce_position", strconv.FormatInt(100+v.Version, 10))
	add("ce_cursor", fmt.Sprintf("1.%d", 200+v.Version))
	add("ce_ledgerhash", v.Hash)
	add("ce_prevhash", v.PrevHash)
	add("ce_schemaversion", strconv.FormatInt(v.Schema, 10))
	add("ce_commandid", v.CommandID)
	add("ce_commanddigest", v.CommandDigest)
	if v.Cause != "00000000-0000-0000-0000-000000000000" {
		add("ce_causeid", v.Cause)
	}
	add("ce_actorkind", v.Actor.Kind)
	add("ce_actorid", v.Actor.ID)
	add("ce_actorrole", v.Actor.Role)
	add("ce_actorauth", v.Actor.Auth)
	add("ce_operationid", v.OperationID)
	add("ce_plannodeid", v.PlanNodeID)
	add("ce_traceparent", v.TraceParent)
	return r
}

// story makes records of one attempt after the first vector, each rightly hashed.
// Those of heartbeats go to a topic of their own.
func story(t *testing.T, types ...string) []ledger.Record {
	t.Helper()
	v := vectors(t)[0]
	last := map[string]int64{}
	var out []ledger.Record
	for i, eventType := range types {
		v.Version, v.Type, v.Payload = int64(i+1), eventType, fmt.Sprintf(`{"n":%d}`, i)
		v.EventID = fmt.Sprintf("00000000-0000-5000-8000-%012d", i+1)
		if i == 0 {
			v.PrevHash = strings.Repeat("0", 64)
		}
		r := v.record()
		if strings.HasSuffix(eventType, ".heartbeat") {
			r.Topic = "heartbeats"
		}
		r = with(r, "ce_previntopic", strconv.FormatInt(last[r.Topic], 10))
		e, err := ledger.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		v.Hash = e.Sum().String()
		r = with(r, "ce_ledgerhash", v.Hash)
		last[r.Topic], v.PrevHash = v.Version, v.Hash
		out = append(out, r)
	}
	return out
}

// with gives the record with one header changed, or taken away for "".
func with(r ledger.Record, key, value string) ledger.Record {
	r.Headers = slices.Clone(r.Headers)
	if value == "" {
		r.Headers = slices.DeleteFunc(r.Headers, func(h ledger.Header) bool { return h.Key == key })
		return r
	}
	for i := range r.Headers {
		if r.Headers[i].Key == key {
			r.Headers[i].Value = value
			return r
		}
	}
	r.Headers = append(r.Headers, ledger.Header{Key: key, Value: value})
	return r
}

// take runs records through a check: the versions that are fresh, and the findings as
// "kind version expected got".
func take(c *ledger.Check, records ...ledger.Record) (fresh []int64, found []string) {
	for _, r := range records {
		e, is, findings := c.Take(r)
		if is {
			fresh = append(fresh, e.Version)
		}
		for _, f := range findings {
			if f.Kind == ledger.Gap {
				found = append(found, fmt.Sprintf("%s %d %s %s", f.Kind, f.Version, f.Expected, f.Got))
			} else {
				found = append(found, fmt.Sprintf("%s %d", f.Kind, f.Version))
			}
		}
	}
	return fresh, found
}

func TestVectors(t *testing.T) {
	c, chain := ledger.New(), ledger.NewChain()
	for _, v := range vectors(t) {
		e, fresh, findings := c.Take(v.record())
		if !fresh || len(findings) > 0 {
			t.Errorf("version %d: fresh %v, %v", v.Version, fresh, findings)
		}
		if e.Sum().String() != v.Hash {
			t.Errorf("version %d: hash %s, want %s", v.Version, e.Sum(), v.Hash)
		}
		if err := chain.Add(e); err != nil {
			t.Error(err)
		}
	}
	if until, hash := chain.Whole(vectors(t)[0].Stream); until != 2 || hash.String() != vectors(t)[1].Hash {
		t.Errorf("whole up to %d, %s", until, hash)
	}
}

const beat = "execution.attempt.heartbeat"

func TestFindings(t *testing.T) {
	s := story(t, "a", "b", "c", "d", "e")
	other := story(t, "a", "b", "x", "y", "z") // the same stream after a restore
	changed := func(r ledger.Record) ledger.Record { r.Value = append(slices.Clone(r.Value), ' '); return r }
	for name, c := range map[string]struct {
		records []ledger.Record
		fresh   []int64
		found   []string
	}{
		"as it should be":     {s, []int64{1, 2, 3, 4, 5}, nil},
		"again, one by one":   {[]ledger.Record{s[0], s[0], s[1], s[0], s[1], s[2]}, []int64{1, 2, 3}, nil},
		"again, from the top": {append(slices.Clone(s), s...), []int64{1, 2, 3, 4, 5}, nil},
		"a gap":               {[]ledger.Record{s[0], s[1], s[3], s[4]}, []int64{1, 2, 4, 5}, []string{"gap 4 3 2"}},
		"the first missing":   {[]ledger.Record{s[1], s[2]}, []int64{2, 3}, []string{"gap 2 1 0"}},
		"two swapped":         {[]ledger.Record{s[0], s[2], s[1], s[1], s[3]}, []int64{1, 3, 2, 4}, []string{"gap 3 2 1", "order 2"}},
		"changed payload":     {[]ledger.Record{s[0], changed(s[1])}, []int64{1, 2}, []string{"hash 2"}},
		"changed again":       {[]ledger.Record{s[0], s[1], changed(s[1])}, []int64{1, 2}, []string{"hash 2"}},
		"another chain":       {[]ledger.Record{s[0], s[1], s[2], other[3]}, []int64{1, 2, 3, 4}, []string{"chain 4"}},
		"restored":            {append(slices.Clone(s[:4]), other[2], other[3], other[4], other[3]), []int64{1, 2, 3, 4, 3, 4, 5}, []string{"fork 3"}},
		"not at the start":    {[]ledger.Record{with(s[0], "ce_prevhash", strings.Repeat("1", 64))}, []int64{1}, []string{"hash 1", "chain 1"}},
		"another key":         {[]ledger.Record{{Topic: "attempts", Key: "x", Value: s[0].Value, Headers: s[0].Headers}}, []int64{1}, []string{"key 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			fresh, found := take(ledger.New(), c.records...)
			if diff := cmp.Diff([]any{c.fresh, c.found}, []any{fresh, found}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every hashed header that is changed is noticed; so is every one without which the
// event cannot be told.
func TestChangedHeaders(t *testing.T) {
	v := vectors(t)[1]
	v.Actor.Role, v.OperationID, v.PlanNodeID, v.TraceParent = "operator", vectors(t)[0].OperationID, "n", vectors(t)[0].TraceParent
	r := v.record()
	e, err := ledger.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	r = with(r, "ce_ledgerhash", e.Sum().String())
	kinds := func(r ledger.Record) (out []ledger.Kind) {
		c := ledger.New()
		c.FromMiddle(r.Topic)
		_, _, findings := c.Take(r)
		for _, f := range findings {
			out = append(out, f.Kind)
		}
		return out
	}
	if got := kinds(r); len(got) > 0 {
		t.Fatalf("unchanged: %v", got)
	}
	notHashed := map[string]bool{"ce_source": true, "ce_position": true, "ce_cursor": true}
	optional := map[string]bool{"ce_source": true, "ce_causeid": true, "ce_operationid": true, "ce_plannodeid": true, "ce_traceparent": true}
	for _, h := range r.Headers {
		if h.Key == "ce_previntopic" {
			continue // a gap, see TestFindings
		}
		if notHashed[h.Key] {
			if got := kinds(with(r, h.Key, flip(h.Value))); len(got) > 0 {
				t.Errorf("%s is not hashed: %v", h.Key, got)
			}
		} else if got := kinds(with(r, h.Key, flip(h.Value))); len(got) == 0 {
			t.Errorf("%s changed from %q to %q: not noticed", h.Key, h.Value, flip(h.Value))
		}
		got := kinds(with(r, h.Key, ""))
		if need := !optional[h.Key] && !strings.HasPrefix(h.Key, "ce_actor"); need != slices.Contains(got, ledger.Malformed) {
			t.Errorf("without %s: %v", h.Key, got)
		}
		twice := r
		twice.Headers = append(slices.Clone(r.Headers), h)
		if got := kinds(twice); !slices.Equal(got, []ledger.Kind{ledger.Malformed}) {
			t.Errorf("%s twice: %v", h.Key, got)
		}
	}
}

// flip changes one character to another that can stand there.
func flip(s string) string {
	b := []byte(s)
	for i := len(b) - 1; i >= 0; i-- {
		switch c := b[i]; {
		case c >= '1' && c <= '9':
			b[i] = '1' + (c-'0')%8
			return string(b)
		case c >= 'a' && c <= 'y':
			b[i] = c + 1
			return string(b)
		}
	}
	return s + "1"
}

func TestMalformed(t *testing.T) {
	r := story(t, "a", "b")[1]
	for key, values := range map[string][]string{
		"ce_id":            {"{" + strings.Repeat("0", 36) + "}", "00000000-0000-5000-8000-00000000000A", "00000000000050008000000000000002", strings.Repeat("0", 1000)},
		"ce_streamversion": {"0", "-1", "02", "+2", "x", "99999999999999999999"},
		"ce_previntopic":   {"", "2", "-1", "01"},
		"ce_time":          {"2026-01-02T03:04:05.000006+00:00", "2026-01-02T03:04:05.0006Z", "2026-01-02 03:04:05.000006Z"},
		"ce_ledgerhash":    {strings.Repeat("A", 64), strings.Repeat("0", 63), strings.Repeat("0", 65)},
		"ce_cursor":        {"1", "1.", ".1", "a.b"},
		"ce_specversion":   {"0.3"},
		"ce_dataschema":    {"urn:execution-plane:event:a:1"},
		"ce_causeid":       {"none"},
	} {
		for _, value := range values {
			if _, err := ledger.Parse(with(r, key, value)); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s: %s: %v", key, value, err)
			}
		}
	}
}

// An attempt's chain is whole over both of its topics, in whatever order these are
// read, and has holes over one alone.
func TestChainOverTwoTopics(t *testing.T) {
	s := story(t, "a", "b", beat, beat, "c", beat, "d")
	var attempts, beats []ledger.Record
	for _, r := range s {
		if r.Topic == "heartbeats" {
			beats = append(beats, r)
		} else {
			attempts = append(attempts, r)
		}
	}
	stream := vectors(t)[0].Stream
	add := func(records ...ledger.Record) *ledger.Chain {
		c, chain := ledger.New(), ledger.NewChain()
		for _, r := range records {
			e, fresh, findings := c.Take(r)
			if !fresh || len(findings) > 0 {
				t.Errorf("%v, %v", fresh, findings)
			}
			if err := chain.Add(e); err != nil {
				t.Error(err)
			}
		}
		return chain
	}
	want := []ledger.Hole{{Stream: stream, Missing: 3, Waiting: 2}}
	if diff := cmp.Diff(want, add(attempts...).Holes()); diff != "" {
		t.Errorf("attempts alone: %s", diff)
	}
	for _, records := range [][]ledger.Record{s, append(slices.Clone(attempts), beats...), append(slices.Clone(beats), attempts...)} {
		chain := add(records...)
		if until, _ := chain.Whole(stream); until != 7 || len(chain.Holes()) > 0 {
			t.Errorf("whole up to %d, %v", until, chain.Holes())
		}
	}

	// A heartbeat that was left out, or is another one, is noticed from Kafka alone.
	chain := add(append(slices.Clone(attempts), beats[0], beats[1])...)
	if diff := cmp.Diff([]ledger.Hole{{Stream: stream, Missing: 6, Waiting: 1}}, chain.Holes()); diff != "" {
		t.Errorf("without the last heartbeat: %s", diff)
	}
	foreign := story(t, "a", "b", beat, "x", "c", beat, "d")[5]
	e, err := ledger.Parse(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if err := chain.Add(e); err == nil || !strings.Contains(err.Error(), "version 6 does not follow version 5") {
		t.Errorf("a heartbeat of another chain: %v", err)
	}
}

// What is remembered outlives the process.
func TestRestore(t *testing.T) {
	s := story(t, "a", "b", "c", "d")
	c := ledger.New()
	take(c, s[:2]...)
	saved := c.Changed()
	if len(saved) != 1 || len(c.Changed()) != 0 {
		t.Fatalf("changed: %v", saved)
	}
	again := ledger.New()
	for p, seen := range saved {
		raw, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		var back ledger.Seen
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		again.Restore(p, back)
	}
	fresh, found := take(again, s[1], s[3])
	if diff := cmp.Diff([]any{[]int64{4}, []string{"gap 4 3 2"}}, []any{fresh, found}); diff != "" {
		t.Error(diff)
	}

	middle := ledger.New()
	middle.FromMiddle("attempts")
	if fresh, found := take(middle, s[2], s[3], s[1]); !slices.Equal(fresh, []int64{3, 4}) || len(found) > 0 {
		t.Errorf("from the middle: %v, %v", fresh, found)
	}
}

// Marks are bounded: what is older is taken for what came before.
func TestMarksAreBounded(t *testing.T) {
	s := story(t, slices.Repeat([]string{"a"}, 40)...)
	c := ledger.New()
	if fresh, found := take(c, append(slices.Clone(s), s...)...); len(fresh) != 40 || len(found) > 0 {
		t.Errorf("%d fresh, %v", len(fresh), found)
	}
	for _, seen := range c.Changed() {
		if len(seen.Marks) != 16 {
			t.Errorf("%d marks", len(seen.Marks))
		}
	}
}

func TestKeys(t *testing.T) {
	for stream, want := range map[string]string{
		"attempt/a": "a", "bundle/a": "a", "runner/r": "r", "callback/ops/a": "a", "endpoint/ops": "ops", "token/t": "t", "enrolment/e": "e",
		"access/2026-01-02/replica-1": "replica-1", "service": "service", "forwarder/execution.attempts/a": "a", "operation/o": "o", "other/x/y": "other/x/y",
	} {
		if got := ledger.KeyOf(stream); got != want {
			t.Errorf("%s: %s, want %s", stream, got, want)
		}
	}
}

func TestHashedBytes(t *testing.T) {
	for _, v := range vectors(t) {
		raw, err := hex.DecodeString(v.HashedBytes)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(raw), "execution-plane/event/v1\x00") || !strings.HasSuffix(string(raw), v.Payload) {
			t.Errorf("version %d: the hashed bytes are not of this form", v.Version)
		}
	}
}

// Whatever stands in a header, a record is refused or told, and never more.
func FuzzParse(f *testing.F) {
	f.Add("ce_id", "00000000-0000-5000-8000-000000000001", []byte("{}"))
	f.Add("ce_cursor", "1.", []byte(nil))
	f.Fuzz(func(t *testing.T, key, value string, payload []byte) {
		r := with(vectors(t)[1].record(), key, value)
		r.Value = payload
		c := ledger.New()
		e, fresh, findings := c.Take(r)
		if sound := fresh && e.Sum() == e.Hash; !sound && len(findings) == 0 {
			t.Errorf("%s: %q is neither told nor refused", key, value)
		}
	})
}

// The record that docs/events.md shows is one.
func TestExampleRecord(t *testing.T) {
	page, err := os.ReadFile("../../../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "```text\ntopic execution.attempts, timestamp 1767323045000\nkey ")
	text, _, ok2 := strings.Cut(text, "\n```")
	parts := strings.Split(text, "\n\n")
	if !ok || !ok2 || len(parts) != 3 {
		t.Fatalf("docs/events.md shows no record: %q", parts)
	}
	r := ledger.Record{Topic: "execution.attempts", Key: parts[0], Value: []byte(parts[2])}
	for header := range strings.SplitSeq(parts[1], "\n") {
		key, value, _ := strings.Cut(header, ": ")
		r.Headers = append(r.Headers, ledger.Header{Key: key, Value: value})
	}
	e, fresh, findings := ledger.New().Take(r)
	if !fresh || len(findings) > 0 {
		t.Errorf("fresh %v, %v", fresh, findings)
	}
	if want, _ := ledger.Parse(with(with(vectors(t)[0].record(), "ce_position", "81"), "ce_cursor", "1.77")); !cmp.Equal(want, e) {
		t.Errorf("it is not the first vector: %s", cmp.Diff(want, e))
	}
}
