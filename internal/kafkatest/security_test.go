package kafkatest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

func TestSecuredKnowsItsUsers(t *testing.T) {
	p := kafkatest.Secured(t)
	p.CreateTopic("facts", 1, nil)
	send := func() error {
		c := p.Config(kafkatest.Service)
		c.Producer.RequiredAcks, c.Producer.Return.Successes = sarama.WaitForAll, true
		c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
		c.Metadata.Retry.Max, c.Producer.Retry.Max = 1, 1
		client, err := sarama.NewClient(p.Addresses(), c)
		if err != nil {
			return err
		}
		// One that makes its own client loses it when it is refused.
		producer, err := sarama.NewSyncProducerFromClient(client)
		if err != nil {
			return errors.Join(err, client.Close())
		}
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "facts", Value: sarama.StringEncoder("word")})
		return errors.Join(err, producer.Close(), client.Close())
	}
	if err := send(); !errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
		t.Errorf("allowed nothing: %v", err)
	}
	p.Allow(kafkatest.Service, "other", sarama.AclOperationWrite)
	if err := send(); !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("allowed another topic: %v", err)
	}
	p.Allow(kafkatest.Service, "facts", sarama.AclOperationWrite, sarama.AclOperationDescribe)
	if err := send(); err != nil {
		t.Errorf("allowed to write: %v", err)
	}
	p.Forbid(kafkatest.Service, "facts")
	if err := send(); !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("forbidden again: %v", err)
	}

	wrong := p.Config(kafkatest.Service)
	wrong.Net.SASL.Password, wrong.Metadata.Retry.Max = "wrong", 0
	if err := open(p, wrong); !errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
		t.Errorf("a wrong password: %v", err)
	}
	plain := sarama.NewConfig()
	plain.Metadata.Retry.Max = 0
	if err := open(p, plain); err == nil {
		t.Error("it takes a client without TLS")
	}

	properties := filepath.Join(t.TempDir(), "client.properties")
	text := fmt.Sprintf(`security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=%s
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="%s" password="%s";
`, p.CA, kafkatest.Admin, p.Passwords[kafkatest.Admin])
	if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := p.Tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", p.Addresses()[0],
		"--command-config", properties, "--topic", "facts", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
	if strings.TrimSpace(out) != "word" {
		t.Errorf("the console consumer prints %q", out)
	}
}

func open(p *kafkatest.Process, c *sarama.Config) error {
	client, err := sarama.NewClient(p.Addresses(), c)
	if err != nil {
		return err
	}
	return client.Close()
}
