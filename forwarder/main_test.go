package forwarder_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

const (
	write    = sarama.AclOperationWrite
	describe = sarama.AclOperationDescribe
)

// long has the broker stopped in its own order too, not only killed and paused.
var long = flag.Bool("forwarder.long", false, "break the broker in more ways")

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestAgainstKafka shares one broker; each part has topics of its own.
func TestAgainstKafka(t *testing.T) {
	t.Parallel() // the brokers' starts and restarts are long waits
	broker := kafkatest.Server(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *kafkatest.Process)
	}{
		{"publishes the feed", publishesTheFeed},
		{"too large parks its key alone", tooLargeParksItsKeyAlone},
		{"a retry lets nothing overtake", retryLetsNothingOvertake},
		{"one poisoned among many", onePoisonedAmongMany},
		{"a topic that is not there", topicThatIsNotThere},
		{"a topic that does not take the time", topicThatDoesNotTakeTheTime},
		{"on PostgreSQL", onPostgres},
		{"begins without answers", beginsWithoutAnswers},
		{"broker restarted, killed, paused", brokerComesAndGoes}, // the last: it leaves the broker anew
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, broker) })
	}
}

func alterTopic(t *testing.T, broker *kafkatest.Process, topic, name, value string) {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	admin, err := sarama.NewClusterAdmin(broker.Addresses(), c)
	if err == nil {
		err = errors.Join(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{name: &value}, false), admin.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
