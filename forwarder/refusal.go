package forwarder

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/eapache/go-resiliency/breaker"

	"github.com/platform-core/execution-plane-service/domain"
)

// The reasons for which a key is parked.
const (
	reasonTooLarge     = "too_large"
	reasonDenied       = "denied"
	reasonUnknownTopic = "unknown_topic"
	reasonInvalid      = "invalid_record"
	reasonRefused      = "refused"
)

// refusal is an event that the broker does not take and, as it is, will not take.
type refusal struct {
	reason string
	topic  bool // it refuses everything of the topic
	cause  error
}

func (r *refusal) Error() string { return fmt.Sprintf("refused (%s): %v", r.reason, r.cause) }
func (r *refusal) Unwrap() error { return r.cause }

// parkedAs is the key that a refusal parks.
func (r *refusal) parkedAs(it *item) keyOf {
	if r.topic {
		return keyOf{it.topic, domain.WholeTopic}
	}
	return keyOf{it.topic, it.key}
}

// errNoRecord marks an event that cannot be written as a record.
var errNoRecord = errors.New("no record can be made of it")

// kind sorts what goes wrong by what is to be done about it.
type kind int

const (
	again       kind = iota // for a while: the same once more, later
	renew                   // the producer is no longer good: the same with another
	record                  // this record: park its key
	topicWide               // this topic: park all of it
	unknown                 // the topic does not exist, or not yet
	clusterWide             // everything, until somebody configures something
)

// sort tells what an error asks for. What is not known is tried again.
func sort(err error) (k kind, reason string) {
	var packet sarama.PacketEncodingError
	if errors.As(err, &packet) || errors.Is(err, errNoRecord) {
		return record, reasonInvalid
	}
	// A login or a certificate that is refused comes wrapped in "no broker answers".
	if refusedAtDoor(err) {
		return clusterWide, ""
	}
	for _, s := range []struct {
		err    sarama.KError
		kind   kind
		reason string
	}{
		{sarama.ErrMessageSizeTooLarge, record, reasonTooLarge},
		{sarama.ErrMessageSetSizeTooLarge, record, reasonTooLarge},
		{sarama.ErrInvalidRecord, record, reasonInvalid},
		{sarama.ErrInvalidTimestamp, record, reasonInvalid},
		{sarama.ErrTopicAuthorizationFailed, topicWide, reasonDenied},
		{sarama.ErrPolicyViolation, topicWide, reasonRefused},
		{sarama.ErrInvalidTopic, topicWide, reasonRefused},
		{sarama.ErrUnsupportedForMessageFormat, topicWide, reasonRefused},
		{sarama.ErrUnknownTopicOrPartition, unknown, reasonUnknownTopic},
		{sarama.ErrOutOfOrderSequenceNumber, renew, ""},
		{sarama.ErrUnknownProducerID, renew, ""},
		{sarama.ErrInvalidProducerEpoch, renew, ""},
		{sarama.ErrInvalidProducerIDMapping, renew, ""},
		{sarama.ErrProducerFenced, renew, ""},
	} {
		if errors.Is(err, s.err) {
			return s.kind, s.reason
		}
	}
	// The library's breaker stays open for ten seconds, whatever the broker does
	// meanwhile; a new producer has a new one.
	if errors.Is(err, breaker.ErrBreakerOpen) || errors.Is(err, sarama.ErrClosedClient) || errors.Is(err, sarama.ErrShuttingDown) {
		return renew, ""
	}
	return again, ""
}

func refusedAtDoor(err error) bool {
	for _, refused := range []error{
		sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState,
		sarama.ErrClusterAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrUnsupportedVersion,
	} {
		if errors.Is(err, refused) {
			return true
		}
	}
	var (
		config    sarama.ConfigurationError
		verify    *tls.CertificateVerificationError
		alert     tls.AlertError
		header    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
	)
	return errors.As(err, &config) || errors.As(err, &verify) || errors.As(err, &alert) || errors.As(err, &header) || errors.As(err, &authority)
}

// advice says what to configure where everything is refused.
func advice(err error) string {
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed), errors.Is(err, sarama.ErrUnsupportedSASLMechanism), errors.Is(err, sarama.ErrIllegalSASLState):
		return "the brokers do not take this login; set the SASL mechanism, user and password that they know"
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed), errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		return "the brokers let this user write no topic at all; allow it to write the topics: kafka-acls.sh --add --allow-principal User:<user> --operation Write --operation Describe --topic <topic>"
	case errors.Is(err, sarama.ErrUnsupportedVersion):
		return "the brokers are older than what is asked of them; set the version of the oldest one, at least 2.8.0"
	}
	return "the brokers cannot be talked to as configured; check their addresses, the CA file, and the client certificate"
}
