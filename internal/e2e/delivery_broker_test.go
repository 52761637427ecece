package e2e_test

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
	"github.com/platform-core/execution-plane-service/internal/proctest"
)

// frozen is how long the broker stands still: longer than the service waits for an
// answer of it.
func frozen() time.Duration {
	if *longRun {
		return time.Minute
	}
	return 20 * time.Second
}

// The broker is killed, stands still, and can write no more while jobs run. Jobs and
// callbacks do not wait for it, and afterwards every event is there.
func TestBrokerFails(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Server(t)
	d := newDelivered(t, setup{}, broker)
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)
	d.wantSucceeded(s.control, d.quickly(s.control, 1)...)
	d.published()
	during := func(what string) {
		t.Helper()
		ids := d.quickly(s.control, 2)
		d.wantSucceeded(s.control, ids...)
		d.pushedWithin(30*time.Second, "all", ids...)
		t.Logf("%s: jobs and callbacks go on", what)
	}

	running := d.submit(s.control, steady(t, 2))
	d.reaches(running, domain.PhaseRunning)
	broker.Kill()
	during("killed")
	d.wantSucceeded(s.control, running)
	broker.Restart()
	during("restarted")
	d.arrived()

	broker.Pause()
	began := time.Now()
	during("frozen")
	d.quickly(s.control, 1)
	if wait := frozen() - time.Since(began); wait > 0 {
		time.Sleep(wait) // the fault itself
	}
	broker.Resume()
	d.arrived()

	// A broker whose disk is full cannot be had without privileges. One whose files
	// may not grow can: what it meets is the same, a write of its log that fails.
	if free := fill(t, broker); free != nil {
		during("full")
		d.eventually("the broker can write no more", func() bool { return !answers(broker) })
		broker.Kill() // it has ended itself, as Kafka does then
		broker.Restart()
	}
	during("with room again")
	d.arrived()
}

// fill forbids the broker's process to let a file grow beyond what the largest of
// its logs has. It returns what undoes it.
func fill(t *testing.T, broker *kafkatest.Process) (free func()) {
	t.Helper()
	pid := brokerProcess(t, broker)
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: before.Max}, nil); err != nil {
		t.Fatalf("limit the files of the broker: %v", err)
	}
	return func() { _ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &before, nil) }
}

// brokerProcess finds the process that listens where the broker does.
func brokerProcess(t *testing.T, broker *kafkatest.Process) int {
	t.Helper()
	for _, p := range proctest.Descendants(os.Getpid()) {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "cmdline"))
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if err != nil || !slices.Contains(args, "kafka.Kafka") {
			continue
		}
		settings, err := os.ReadFile(args[len(args)-1])
		if err == nil && strings.Contains(string(settings), "//"+broker.Addresses()[0]) {
			return p.PID
		}
	}
	t.Fatal("the broker's process is not found")
	return 0
}

func answers(broker *kafkatest.Process) bool {
	c := sarama.NewConfig()
	c.Metadata.Retry.Max, c.Net.DialTimeout = 0, time.Second
	client, err := sarama.NewClient(broker.Addresses(), c)
	if err != nil {
		return false
	}
	return client.Close() == nil
}

// The broker refuses a whole topic, and in another one what is too large. The topic
// comes by itself once it is allowed; a key that is refused waits for an operator,
// who has it tried again or skips the event. Nothing else waits.
func TestBrokerRefuses(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Secured(t)
	d := &delivered{topics: deliverytest.Topics()}
	d.broker = deliverytest.Broker{Addresses: broker.Addresses(), Client: broker.Config(kafkatest.Admin)}
	d.kafka = &forwarder.Kafka{Brokers: broker.Addresses(), NoCreate: true, TLS: &forwarder.TLS{CAFile: broker.CA},
		SASL: forwarder.SASL{Mechanism: "SCRAM-SHA-512", User: kafkatest.Service, Password: broker.Passwords[kafkatest.Service]}}
	for _, topic := range d.topics.All() {
		broker.CreateTopic(topic, 2, map[string]string{"max.message.bytes": map[bool]string{true: small, false: "1000000"}[topic == d.topics.Attempts]})
		if topic != d.topics.Callbacks {
			broker.Allow(kafkatest.Service, topic, sarama.AclOperationWrite, sarama.AclOperationDescribe)
		}
	}
	d.assemble(t, setup{})
	s := d.serve()
	d.startRunner(s.plane.URL(), 3)

	d.wantSucceeded(s.control, d.quickly(s.control, 2)...)
	d.eventually("the topic of callbacks is parked", func() bool { return d.isParked(d.topics.Callbacks, domain.WholeTopic, "denied") })
	if report := d.arrived(); report.Parked == 0 {
		t.Errorf("nothing is parked: %s", report)
	}
	broker.Allow(kafkatest.Service, d.topics.Callbacks, sarama.AclOperationWrite, sarama.AclOperationDescribe)

	// Meanwhile two jobs with events that are too large.
	retried, skipped := d.submit(s.control, large(t)), d.submit(s.control, large(t))
	ids := d.quickly(s.control, 2)
	d.wantSucceeded(s.control, ids...)
	for _, id := range []domain.AttemptID{retried, skipped} {
		d.result(s.control, id)
		d.eventually("the key of the large event is parked", func() bool { return d.isParked(d.topics.Attempts, id.String(), "too_large") })
	}
	d.eventually("the allowed topic is published by itself", func() bool { return !d.isParked(d.topics.Callbacks, domain.WholeTopic, "") })
	if report := d.arrived(); report.Parked < 10 {
		t.Errorf("two keys are parked: %s", report)
	}

	d.skipWhole(s, skipped)
	if err := alterTopic(broker, d.broker.Client, d.topics.Attempts, "max.message.bytes", "1000000"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.operator.RetryKey(d.ctx, newKey(), wire.RetryRequest{Topic: d.topics.Attempts, Key: retried.String(), Reason: "the limit is higher"}); err != nil {
		t.Fatal(err)
	}
	d.eventually("the key is published", func() bool { return !d.isParked(d.topics.Attempts, retried.String(), "") })
	if report := d.arrived(); report.Parked > 0 || report.Skipped == 0 {
		t.Errorf("nothing is parked any more, and something was skipped: %s", report)
	}
}

// small is a limit that all but large events keep to, each alone.
const small = "3000"

// large is a job whose first event does not fit: its labels cannot be compressed.
func large(t *testing.T) *domain.JobSpec {
	t.Helper()
	return tcp(openPort(t), func(s *domain.JobSpec) {
		s.Labels = map[string]string{}
		for i := range 16 {
			noise := make([]byte, 150)
			_, _ = rand.Read(noise) // it never fails
			s.Labels["l"+strconv.Itoa(i)] = base64.StdEncoding.EncodeToString(noise)
		}
	})
}

func (d *delivered) isParked(topic, key, reason string) bool {
	d.t.Helper()
	rows, err := d.desk.Reads.ParkedKeys(d.ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range rows {
		if p.Topic == topic && p.Key == key {
			if reason != "" && p.Reason != reason {
				d.t.Errorf("%s of %s is parked as %s (%v)", key, topic, p.Reason, p.Detail)
			}
			return true
		}
	}
	return false
}

// skipWhole skips every event of an attempt that is refused, one after the other.
func (d *delivered) skipWhole(s *replica, id domain.AttemptID) {
	d.t.Helper()
	d.eventually("the key goes on behind what is skipped", func() bool {
		f, err := s.operator.Forwarder(d.ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, p := range f.Parked {
			if p.Key != id.String() {
				continue
			}
			if p.SkippedEvent == nil || *p.SkippedEvent != p.EventID {
				if _, err := s.operator.SkipEvent(d.ctx, newKey(), wire.SkipRequest{Topic: p.Topic, Key: p.Key, EventID: p.EventID, Reason: "nobody needs it"}); err != nil {
					d.t.Fatal(err)
				}
			}
			return false
		}
		return true
	})
}

// alterTopic changes a setting of a topic.
func alterTopic(broker *kafkatest.Process, config *sarama.Config, topic, name, value string) error {
	admin, err := sarama.NewClusterAdmin(broker.Addresses(), config)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}, false)
}
