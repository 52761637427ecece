package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/platform-core/execution-plane-service/forwarder"
)

// kafkaFlags say where events are published.
type kafkaFlags struct {
	KafkaBrokers       []string `name:"kafka-brokers" env:"EXECUTION_PLANE_KAFKA_BROKERS" help:"Kafka brokers, host:port with commas between. Without them nothing is published; GET /v1/events serves the same facts."`
	KafkaTopicAttempts string   `name:"kafka-topic-attempts" env:"EXECUTION_PLANE_KAFKA_TOPIC_ATTEMPTS" default:"execution.attempts" help:"Topic of the attempts' streams."`
	KafkaTopicBeats    string   `name:"kafka-topic-heartbeats" env:"EXECUTION_PLANE_KAFKA_TOPIC_HEARTBEATS" default:"execution.heartbeats" help:"Topic of the attempts' heartbeats."`
	KafkaTopicRunners  string   `name:"kafka-topic-runners" env:"EXECUTION_PLANE_KAFKA_TOPIC_RUNNERS" default:"execution.runners" help:"Topic of the runners' streams."`
	KafkaTopicCalls    string   `name:"kafka-topic-callbacks" env:"EXECUTION_PLANE_KAFKA_TOPIC_CALLBACKS" default:"execution.callbacks" help:"Topic of the callbacks' and endpoints' streams."`
	KafkaTopicAudit    string   `name:"kafka-topic-audit" env:"EXECUTION_PLANE_KAFKA_TOPIC_AUDIT" default:"execution.audit" help:"Topic of access, tokens, the service and the forwarder."`
	KafkaCreate        bool     `name:"kafka-create-topics" env:"EXECUTION_PLANE_KAFKA_CREATE_TOPICS" default:"true" negatable:"" help:"Make topics that are missing."`
	KafkaPartitions    int32    `name:"kafka-partitions" env:"EXECUTION_PLANE_KAFKA_PARTITIONS" default:"6" help:"Of topics that are made."`
	KafkaReplication   int16    `name:"kafka-replication" env:"EXECUTION_PLANE_KAFKA_REPLICATION" default:"0" help:"Of topics that are made; 0: the brokers' default."`
	KafkaVersion       string   `name:"kafka-version" env:"EXECUTION_PLANE_KAFKA_VERSION" default:"2.8.0" help:"Of the oldest broker there is."`
	KafkaCompression   string   `name:"kafka-compression" env:"EXECUTION_PLANE_KAFKA_COMPRESSION" enum:"none,gzip,snappy,lz4,zstd" default:"zstd" help:"none, gzip, snappy, lz4 or zstd."`
	KafkaMaxMessage    int      `name:"kafka-max-message-bytes" env:"EXECUTION_PLANE_KAFKA_MAX_MESSAGE_BYTES" default:"1000000" help:"What the brokers take in one batch."`
	KafkaTLS           bool     `name:"kafka-tls" env:"EXECUTION_PLANE_KAFKA_TLS" help:"Speak TLS to the brokers."`
	KafkaCAFile        string   `name:"kafka-ca-file" env:"EXECUTION_PLANE_KAFKA_CA_FILE" type:"path" help:"Who signs for them, PEM. Default: the system's."`
	KafkaCertFile      string   `name:"kafka-cert-file" env:"EXECUTION_PLANE_KAFKA_CERT_FILE" type:"path" help:"Client certificate, PEM."`
	KafkaKeyFile       string   `name:"kafka-key-file" env:"EXECUTION_PLANE_KAFKA_KEY_FILE" type:"path" help:"Its key, PEM."`
	KafkaSASL          string   `name:"kafka-sasl" env:"EXECUTION_PLANE_KAFKA_SASL" enum:",PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" default:"" help:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Default: no login."`
	KafkaUser          string   `name:"kafka-user" env:"EXECUTION_PLANE_KAFKA_USER"`
	KafkaPasswordFile  string   `name:"kafka-password-file" env:"EXECUTION_PLANE_KAFKA_PASSWORD_FILE" type:"path" help:"File that holds the password."`
	EventSource        string   `name:"event-source" env:"EXECUTION_PLANE_EVENT_SOURCE" default:"urn:execution-plane" help:"Who speaks, a URI: ce_source of every record."`
}

func (f kafkaFlags) topics() forwarder.Topics {
	return forwarder.Topics{Attempts: f.KafkaTopicAttempts, Heartbeats: f.KafkaTopicBeats, Runners: f.KafkaTopicRunners, Callbacks: f.KafkaTopicCalls, Audit: f.KafkaTopicAudit}
}

// config is how the brokers are reached; nil where none are named.
func (f kafkaFlags) config() (*forwarder.Kafka, error) {
	if len(f.KafkaBrokers) == 0 {
		return nil, nil
	}
	k := &forwarder.Kafka{Brokers: f.KafkaBrokers, Version: f.KafkaVersion, Compression: f.KafkaCompression, MaxMessageBytes: f.KafkaMaxMessage,
		NoCreate: !f.KafkaCreate, Partitions: f.KafkaPartitions, Replication: f.KafkaReplication}
	if f.KafkaTLS {
		k.TLS = &forwarder.TLS{CAFile: f.KafkaCAFile, CertFile: f.KafkaCertFile, KeyFile: f.KafkaKeyFile}
	} else if f.KafkaCAFile+f.KafkaCertFile+f.KafkaKeyFile != "" {
		return nil, errors.New("certificates for Kafka are named and TLS is off; add --kafka-tls")
	}
	if f.KafkaSASL == "" {
		if f.KafkaUser+f.KafkaPasswordFile != "" {
			return nil, errors.New("a login for Kafka is named and no mechanism; add --kafka-sasl SCRAM-SHA-512 or another")
		}
		return k, nil
	}
	b, err := os.ReadFile(f.KafkaPasswordFile)
	if err != nil {
		return nil, fmt.Errorf("read --kafka-password-file: %w", err)
	}
	k.SASL = forwarder.SASL{Mechanism: f.KafkaSASL, User: f.KafkaUser, Password: string(bytes.TrimRight(b, "\r\n"))}
	return k, nil
}
