package forwarder

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	metrics "github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Kafka says how the brokers are reached and what is asked of them. The zero value
// of what has a default takes it.
type Kafka struct {
	// Brokers are host:port of some of the cluster's.
	Brokers []string
	// ClientID is what the brokers' logs and quotas know the service by. Default
	// execution-plane.
	ClientID string
	// Version is the oldest broker there is, such as 3.9.0; at least the default,
	// 2.8.0.
	Version string
	// Compression is none, gzip, snappy, lz4 or zstd. Default zstd.
	Compression string
	// MaxMessageBytes bounds a record and a batch of records. Default 1,000,000,
	// which brokers take by default; at least leastMessageBytes, so that no event is
	// too large for it.
	MaxMessageBytes int
	// Timeout bounds the connection to a broker, every answer of one, and the wait of
	// a broker for its replicas. Default 10 s.
	Timeout time.Duration
	// NoCreate leaves missing topics alone.
	NoCreate bool
	// Partitions and Replication are those of the topics that the service makes.
	// Defaults 6, and what the brokers have as their default.
	Partitions  int32
	Replication int16

	TLS *TLS // nil: in the clear
	SASL
}

// TLS secures the connections to the brokers.
type TLS struct {
	CAFile   string // PEM; "" for the system's
	CertFile string // PEM, with KeyFile: how the service shows who it is; "" for not at all
	KeyFile  string
}

// SASL is how the service logs in; without a mechanism it does not.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
	User      string
	Password  string
}

// leastMessageBytes is the largest payload with the headers of the longest names.
const leastMessageBytes = eventstore.MaxPayload + 16<<10

func (k Kafka) withDefaults() Kafka {
	if k.ClientID == "" {
		k.ClientID = "execution-plane"
	}
	if k.Version == "" {
		k.Version = sarama.V2_8_0_0.String()
	}
	if k.Compression == "" {
		k.Compression = "zstd"
	}
	if k.MaxMessageBytes == 0 {
		k.MaxMessageBytes = 1_000_000
	}
	if k.Timeout <= 0 {
		k.Timeout = 10 * time.Second
	}
	if k.Partitions <= 0 {
		k.Partitions = 6
	}
	if k.Replication <= 0 {
		k.Replication = -1
	}
	return k
}

// client is the client's configuration; dial is how it connects, nil for its own way.
func (k Kafka) client(dial *dialer) (*sarama.Config, error) {
	wrong := func(format string, args ...any) (*sarama.Config, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	if len(k.Brokers) == 0 {
		return wrong("no Kafka broker is named; name some as host:port")
	}
	version, err := sarama.ParseKafkaVersion(k.Version)
	if err != nil || !version.IsAtLeast(sarama.V2_8_0_0) {
		return wrong("the Kafka version %q is not one from 2.8.0 on", k.Version)
	}
	if k.MaxMessageBytes < leastMessageBytes {
		return wrong("records of at most %d bytes are too small for events; allow %d or more", k.MaxMessageBytes, leastMessageBytes)
	}
	c := sarama.NewConfig()
	c.ClientID, c.Version = k.ClientID, version
	// Its counters go to a registry that ends with the client.
	c.MetricRegistry = metrics.NewRegistry()
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout, c.Net.KeepAlive = k.Timeout, k.Timeout, k.Timeout, 30*time.Second
	// Topics are made by topics.go, with settings of ours, or not at all.
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.RefreshFrequency = time.Minute
	// The library tries again once; beyond that the lanes do, who can be stopped and
	// whose trouble is seen.
	c.Metadata.Retry.Max, c.Metadata.Timeout = 1, k.Timeout

	// One request under way for each broker, and numbers on the batches: a retry
	// neither repeats nor reorders. While one is under way the lanes' records gather
	// for the next, so a batch needs no linger.
	c.Producer.RequiredAcks, c.Producer.Idempotent, c.Net.MaxOpenRequests = sarama.WaitForAll, true, 1
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewHashPartitioner
	c.Producer.MaxMessageBytes, c.Producer.Timeout = k.MaxMessageBytes, k.Timeout*9/10
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 1, 100*time.Millisecond
	if err := c.Producer.Compression.UnmarshalText([]byte(strings.ToLower(k.Compression))); err != nil {
		return wrong("the compression %q is none of none, gzip, snappy, lz4, zstd", k.Compression)
	}
	if c.Producer.Compression == sarama.CompressionZSTD {
		c.Producer.CompressionLevel = 1 // as small as by the default level, at two thirds of the CPU
	}
	if dial != nil {
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, dial
	}
	if err := k.secure(c); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return wrong("%w", err)
	}
	return c, nil
}

func (k Kafka) secure(c *sarama.Config) error {
	if k.TLS != nil {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if k.TLS.CAFile != "" {
			text, err := os.ReadFile(k.TLS.CAFile)
			if err != nil {
				return fmt.Errorf("%w: read the CA of the Kafka brokers: %w", ErrConfig, err)
			}
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(text) {
				return fmt.Errorf("%w: %s holds no certificate in PEM", ErrConfig, k.TLS.CAFile)
			}
		}
		if k.TLS.CertFile != "" || k.TLS.KeyFile != "" {
			pair, err := tls.LoadX509KeyPair(k.TLS.CertFile, k.TLS.KeyFile)
			if err != nil {
				return fmt.Errorf("%w: read the client certificate for the Kafka brokers: %w", ErrConfig, err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		c.Net.TLS.Enable, c.Net.TLS.Config = true, config
	}
	if k.Mechanism == "" {
		return nil
	}
	if k.User == "" || k.Password == "" {
		return fmt.Errorf("%w: SASL %s needs a user and a password", ErrConfig, k.Mechanism)
	}
	s := &c.Net.SASL
	s.Enable, s.Handshake, s.User, s.Password = true, true, k.User, k.Password
	switch strings.ToUpper(k.Mechanism) {
	case sarama.SASLTypePlaintext:
		s.Mechanism = sarama.SASLTypePlaintext
	case sarama.SASLTypeSCRAMSHA256:
		s.Mechanism = sarama.SASLTypeSCRAMSHA256
		s.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case sarama.SASLTypeSCRAMSHA512:
		s.Mechanism = sarama.SASLTypeSCRAMSHA512
		s.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	default:
		return fmt.Errorf("%w: the SASL mechanism %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", ErrConfig, k.Mechanism)
	}
	return nil
}

// scramClient is one login by SCRAM.
type scramClient struct {
	hash scram.HashGeneratorFcn
	talk *scram.ClientConversation
}

func (s *scramClient) Begin(user, password, authorization string) error {
	c, err := s.hash.NewClient(user, password, authorization)
	if err != nil {
		return fmt.Errorf("begin a login by SCRAM: %w", err)
	}
	s.talk = c.NewConversation()
	return nil
}

func (s *scramClient) Step(challenge string) (string, error) { return s.talk.Step(challenge) }
func (s *scramClient) Done() bool                            { return s.talk.Done() }
