package kafkatest_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_3_1_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.Return.Successes = true
	return c
}

func produce(t *testing.T, p *kafkatest.Process, topic, text string) {
	t.Helper()
	producer, err := sarama.NewSyncProducer(p.Addresses(), config())
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("key"), Value: sarama.StringEncoder(text)})
	if err = errors.Join(err, producer.Close()); err != nil {
		t.Fatalf("producing %q: %v", text, err)
	}
}

// consume reads a topic of one partition from its start until it has as many
// messages as are wanted.
func consume(t *testing.T, p *kafkatest.Process, topic string, want ...string) {
	t.Helper()
	consumer, err := sarama.NewConsumer(p.Addresses(), config())
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer partition.Close()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for i, text := range want {
		select {
		case m := <-partition.Messages():
			if m.Offset != int64(i) || string(m.Key) != "key" || string(m.Value) != text {
				t.Fatalf("message %d: offset %d, %q = %q, want %q", i, m.Offset, m.Key, m.Value, text)
			}
		case <-late.C:
			t.Fatalf("message %d, %q, did not come", i, text)
		}
	}
}

func TestMessagesOutliveTheBroker(t *testing.T) {
	p := kafkatest.Server(t)
	p.CreateTopic("facts", 1, nil)
	produce(t, p, "facts", "first")
	consume(t, p, "facts", "first")
	before := p.Addresses()[0]

	p.Stop()
	if c, err := net.DialTimeout("tcp", before, time.Second); err == nil {
		c.Close()
		t.Error("a stopped broker takes connections")
	}
	p.Restart()
	if after := p.Addresses()[0]; after != before {
		t.Errorf("it comes back at %s, was %s", after, before)
	}
	produce(t, p, "facts", "second")
	p.Kill()
	p.Restart()
	consume(t, p, "facts", "first", "second")

	// The console consumer is not of this project, nor of its client library.
	out := p.Tool("org.apache.kafka.tools.consumer.ConsoleConsumer",
		"--bootstrap-server", p.Addresses()[0], "--topic", "facts", "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000")
	if strings.Join(strings.Fields(out), " ") != "first second" {
		t.Errorf("the console consumer prints %q", out)
	}
}

func TestTopicsAndSettings(t *testing.T) {
	p := kafkatest.Server(t, "message.max.bytes=2000")
	p.CreateTopic("wide", 3, map[string]string{"max.message.bytes": "5000"})
	p.CreateTopic("narrow", 1, nil)
	c := config()
	c.Producer.Retry.Max, c.Metadata.Retry.Max = 1, 1
	producer, err := sarama.NewSyncProducer(p.Addresses(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	send := func(topic string, partition int32) error {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{
			Topic: topic, Partition: partition, Value: sarama.StringEncoder(strings.Repeat("x", 3000)),
		})
		return err
	}
	if err := send("wide", 0); err != nil {
		t.Error(err)
	}
	if err := send("narrow", 0); !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		t.Errorf("a message above the broker's limit: %v", err)
	}
	if err := send("unmade", 0); !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		t.Errorf("a topic that nobody made: %v", err)
	}
}

func TestPauseStalls(t *testing.T) {
	p := kafkatest.Server(t)
	ask := func(patience time.Duration) error {
		c := config()
		c.Net.ReadTimeout = patience
		// With SASL off nothing is asked at Open but the versions of requests.
		c.ApiVersionsRequest = false
		b := sarama.NewBroker(p.Addresses()[0])
		if err := b.Open(c); err != nil {
			return err
		}
		_, err := b.GetMetadata(sarama.NewMetadataRequest(c.Version, nil))
		return errors.Join(err, b.Close())
	}
	p.Pause()
	var stalled net.Error
	if err := ask(time.Second); !errors.As(err, &stalled) || !stalled.Timeout() {
		t.Errorf("a paused broker answers: %v", err)
	}
	p.Resume()
	if err := ask(30 * time.Second); err != nil {
		t.Errorf("resumed: %v", err)
	}
	// The end of the test must reach a paused broker too.
	p.Pause()
}
