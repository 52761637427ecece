package forwarder

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Metadata that says how a record is written and is no header of it.
const (
	metaKey = "record_key"
	// metaNow is there where the topic does not take the event's time as the time of
	// the record; ce_time has it in any case.
	metaNow = "record_now"
)

// headers are all that a record may carry, in the order in which it does.
var headers = [...]string{
	"content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject", "ce_time", "ce_dataschema",
	"ce_streamversion", "ce_previntopic", "ce_position", "ce_cursor", "ce_ledgerhash", "ce_prevhash", "ce_schemaversion",
	"ce_commandid", "ce_commanddigest", "ce_causeid", "ce_actorkind", "ce_actorid", "ce_actorrole", "ce_actorauth",
	"ce_operationid", "ce_plannodeid", "ce_traceparent", "ce_replayed",
}

// item is an event on its way to one topic.
type item struct {
	cursor     eventstore.Cursor
	event      eventstore.Event
	topic, key string
	previous   int64 // version of the stream's previous event in the same topic
	replayed   bool
	size       int64
	done       bool // under the flow's lock
}

// fields are the values of headers, in their order: CloudEvents 1.0 in binary mode.
// An empty one is left out.
func (it *item) fields(source string) [len(headers)]string {
	e := &it.event
	cause, replayed := "", ""
	if e.Cause != uuid.Nil {
		cause = e.Cause.String()
	}
	if it.replayed {
		replayed = "true"
	}
	schema := strconv.Itoa(e.Schema)
	return [...]string{
		"application/json", "1.0", e.EventID.String(), source, e.Type, string(e.Stream), eventstore.FormatTime(e.Time),
		"urn:execution-plane:event:" + e.Type + ":" + schema,
		strconv.FormatInt(e.Version, 10), strconv.FormatInt(it.previous, 10), strconv.FormatInt(e.Position, 10), it.cursor.String(),
		hex.EncodeToString(e.Hash[:]), hex.EncodeToString(e.PrevHash[:]), schema,
		e.CommandID.String(), hex.EncodeToString(e.CommandDigest[:]), cause, e.Actor.Kind, e.Actor.ID, e.Actor.Role, e.Actor.Auth,
		e.OperationID, e.PlanNodeID, e.TraceParent, replayed,
	}
}

// metadata holds the record's key and headers for the way through an envelope.
func (it *item) metadata(source string) message.Metadata {
	m := message.Metadata{metaKey: it.key}
	for i, value := range it.fields(source) {
		if value != "" {
			m[headers[i]] = value
		}
	}
	return m
}

// envelope is what Watermill's forwarder component unwraps.
type envelope struct {
	DestinationTopic string            `json:"destination_topic"`
	UUID             string            `json:"uuid"`
	Payload          []byte            `json:"payload"`
	Metadata         map[string]string `json:"metadata"`
}

// message makes the Watermill message of one try. Without an envelope the headers
// need no map: the marshaler takes them from the item in the message's context.
func (it *item) message(source string, enveloped, now bool) (*message.Message, error) {
	id := it.event.EventID.String()
	if !enveloped {
		return message.NewMessage(id, it.event.Payload), nil
	}
	meta := it.metadata(source)
	if now {
		meta[metaNow] = "true"
	}
	payload, err := json.Marshal(envelope{DestinationTopic: it.topic, UUID: id, Payload: it.event.Payload, Metadata: meta})
	if err != nil {
		return nil, fmt.Errorf("put event %s into an envelope: %w", id, err)
	}
	return message.NewMessage(id, payload), nil
}

// marshaler writes a Watermill message as a Kafka record.
type marshaler struct{ source string }

// Marshal keeps the payload's bytes, and gives the record the event's time.
func (k marshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	if d := deliveryOf(m); d != nil && len(m.Metadata) == 0 {
		at := d.it.event.Time
		if d.now {
			at = time.Now()
		}
		fields := d.it.fields(k.source)
		return recordOf(topic, d.it.key, m.Payload, at, func(i int) string { return fields[i] }), nil
	}
	at, err := time.Parse(eventstore.TimeLayout, m.Metadata["ce_time"])
	if err != nil {
		return nil, fmt.Errorf("%w: message %s has no ce_time: %w", errNoRecord, m.UUID, err)
	}
	if m.Metadata[metaNow] != "" {
		at = time.Now()
	}
	return recordOf(topic, m.Metadata[metaKey], m.Payload, at, func(i int) string { return m.Metadata[headers[i]] }), nil
}

// headerNames are headers as a record has them.
var headerNames = func() (names [len(headers)][]byte) {
	for i, name := range headers {
		names[i] = []byte(name)
	}
	return names
}()

// headerBytes is about what the values of a record's headers take together.
const headerBytes = 1 << 10

func recordOf(topic, key string, payload []byte, at time.Time, value func(i int) string) *sarama.ProducerMessage {
	out := &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(payload), Timestamp: at,
		Headers: make([]sarama.RecordHeader, 0, len(headers)),
	}
	all := make([]byte, 0, headerBytes)
	for i := range headers {
		if v := value(i); v != "" {
			from := len(all)
			all = append(all, v...)
			out.Headers = append(out.Headers, sarama.RecordHeader{Key: headerNames[i], Value: all[from:len(all):len(all)]})
		}
	}
	return out
}
