package deliverytest_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/projections"
)

// history is a feed of two attempts, with what a broker rightly holds of it.
func history() (deliverytest.Truth, []deliverytest.Record) {
	truth := deliverytest.Truth{Topics: deliverytest.Topics()}
	var records []deliverytest.Record
	last := map[string]eventstore.Event{}
	before := map[string]int64{} // by topic and stream
	for seq, stream := range []string{"attempt/a", "attempt/b", "attempt/a", "attempt/a", "attempt/b", "attempt/a"} {
		command := uuid.New()
		typ := "execution.attempt.started"
		if seq == 3 {
			typ = "execution.attempt.heartbeat"
		}
		e := eventstore.Event{Envelope: eventstore.Envelope{
			EventID: eventstore.EventID(command, 0), Stream: eventstore.StreamID(stream), Version: last[stream].Version + 1, Type: typ, Schema: 1,
			Time: time.Date(2026, 1, 2, 3, 4, seq, 5000, time.UTC), CommandID: command, CommandDigest: eventstore.Digest{1},
			Actor: eventstore.Actor{Kind: "service", ID: "x", Role: "service", Auth: "internal"},
		}, Payload: fmt.Appendf(nil, `{"n":%d}`, seq), PrevHash: last[stream].Hash, Position: int64(seq + 10)}
		e.Hash = eventstore.HashEvent(e.PrevHash, e.Envelope, e.Payload)
		last[stream] = e
		at := eventstore.Cursor{Generation: 1, Seq: int64(seq + 1)}
		truth.Events = append(truth.Events, eventstore.FeedEvent{Cursor: at, Event: e})
		topic := deliverytest.TopicOf(truth.Topics, e.Stream, e.Type)
		records = append(records, recordOf(e, at, topic, before[topic+stream], int64(seq)))
		before[topic+stream] = e.Version
	}
	return truth, records
}

func recordOf(e eventstore.Event, at eventstore.Cursor, topic string, previous, offset int64) deliverytest.Record {
	headers := map[string]string{
		"content-type": "application/json", "ce_specversion": "1.0", "ce_id": e.EventID.String(), "ce_type": e.Type, "ce_subject": string(e.Stream),
		"ce_time": eventstore.FormatTime(e.Time), "ce_dataschema": fmt.Sprintf("urn:execution-plane:event:%s:%d", e.Type, e.Schema),
		"ce_streamversion": strconv.FormatInt(e.Version, 10), "ce_previntopic": strconv.FormatInt(previous, 10), "ce_position": strconv.FormatInt(e.Position, 10),
		"ce_cursor": at.String(), "ce_ledgerhash": hex.EncodeToString(e.Hash[:]), "ce_prevhash": hex.EncodeToString(e.PrevHash[:]),
		"ce_schemaversion": strconv.Itoa(e.Schema), "ce_commandid": e.CommandID.String(), "ce_commanddigest": hex.EncodeToString(e.CommandDigest[:]),
		"ce_actorkind": e.Actor.Kind, "ce_actorid": e.Actor.ID, "ce_actorrole": e.Actor.Role, "ce_actorauth": e.Actor.Auth,
	}
	r := deliverytest.Record{Record: ledger.Record{Topic: topic, Offset: offset, Key: ledger.KeyOf(string(e.Stream)), Value: e.Payload}, At: e.Time}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		r.Headers = append(r.Headers, ledger.Header{Key: name, Value: headers[name]})
	}
	return r
}

// What is right is found right, and each kind of loss is found.
func TestCompare(t *testing.T) {
	parked := func(n int) func(*deliverytest.Truth, []deliverytest.Record) []deliverytest.Record {
		return func(truth *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			e := truth.Events[n].Event
			truth.Parked = []projections.ParkedKey{{Topic: truth.Topics.Attempts, Key: ledger.KeyOf(string(e.Stream)), EventID: e.EventID, Reason: "too_large"}}
			return slices.Delete(slices.Clone(r), 5, 6)
		}
	}
	type change = func(*deliverytest.Truth, []deliverytest.Record) []deliverytest.Record
	for name, tc := range map[string]struct {
		change change
		want   string // of a fault; empty: none
	}{
		"right": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record { return r }, ""},
		"again": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record { return append(r, r...) }, ""},
		"the last is lost": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			return slices.Delete(slices.Clone(r), 4, 5)
		}, "never came"},
		"one in the middle is lost": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			return slices.Delete(slices.Clone(r), 2, 3)
		}, "gap"},
		"out of order": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r[0], r[2] = r[2], r[0]
			return r
		}, "comes after newer"},
		"another value": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r[1].Value = []byte(`{"n":9}`)
			return r
		}, "not the stored payload"},
		"another time": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r[1].At = r[1].At.Add(time.Hour)
			return r
		}, "time is"},
		"another topic": {func(truth *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r[1].Topic = truth.Topics.Audit
			return r
		}, "is in topic"},
		"two partitions": {func(_ *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r[2].Partition = 1
			return r
		}, "is in the partitions"},
		"not of the ledger": {func(truth *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			truth.Events = slices.Delete(slices.Clone(truth.Events), 1, 2)
			return r
		}, "no such event"},
		"parked":             {parked(5), ""},
		"parked from before": {parked(2), ""},
		"another is parked":  {parked(1), "never came"},
		"parked, no reason": {func(truth *deliverytest.Truth, r []deliverytest.Record) []deliverytest.Record {
			r = parked(5)(truth, r)
			truth.Parked[0].Reason = ""
			return r
		}, "without a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			truth, records := history()
			records = tc.change(&truth, records)
			report := deliverytest.Compare(truth, records)
			got := strings.Join(report.Faults, "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("faults %q, want %q", got, tc.want)
			}
		})
	}
}
