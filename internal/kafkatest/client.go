package kafkatest

import (
	"errors"
	"os/exec"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// clientVersion is the newest that the client library knows and what test/peers/kafka runs.
var clientVersion = sarama.V4_3_1_0

func plainConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = clientVersion
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = time.Second, 10*time.Second, 10*time.Second
	return c
}

// CreateTopic makes a topic with settings of its own ("max.message.bytes": "1000").
// It returns when the topic can be written.
func (p *Process) CreateTopic(name string, partitions int32, settings map[string]string) {
	p.t.Helper()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{}}
	for key, value := range settings {
		detail.ConfigEntries[key] = &value
	}
	p.administer("creating the topic "+name, func(admin sarama.ClusterAdmin) error { return admin.CreateTopic(name, detail, false) })
	p.eventually("the topic "+name, func() error { return serves(address(p.ports.internal), name) })
}

// administer does something as the node itself.
func (p *Process) administer(what string, do func(sarama.ClusterAdmin) error) {
	p.t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{address(p.ports.internal)}, plainConfig())
	if err == nil {
		err = errors.Join(do(admin), admin.Close())
	}
	if err != nil {
		p.t.Fatalf("the Kafka peer: %s: %v", what, err)
	}
}

// Tool runs one of Kafka's own command line tools by its class
// (org.apache.kafka.tools.TopicCommand, org.apache.kafka.tools.consumer.ConsoleConsumer)
// and gives what it prints on stdout.
func (p *Process) Tool(class string, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), p.java, append(append(p.flags(), class), args...)...)
	cmd.Env, cmd.Dir = p.env(), p.dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("running %s: %v: %s", class, err, stderr.String()+stdout.String())
	}
	return stdout.String()
}

// eventually polls another process, which sends no signal.
func (p *Process) eventually(what string, ok func() error) {
	p.t.Helper()
	deadline := time.NewTimer(startDeadline)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			p.t.Fatalf("%s did not come within %s: %v", what, startDeadline, err)
		case <-poll.C:
		}
	}
}
