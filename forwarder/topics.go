package forwarder

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// missingTopic is a topic that does not exist and that the service may not make.
type missingTopic struct {
	topic string
	text  string
}

func (m *missingTopic) Error() string { return m.text }

func (k Kafka) missing(topic, why string) *missingTopic {
	create := "kafka-topics.sh --create --bootstrap-server " + k.Brokers[0] + " --topic " + topic + " --partitions " + strconv.Itoa(int(k.Partitions))
	if k.Replication > 0 {
		create += " --replication-factor " + strconv.Itoa(int(k.Replication))
	}
	return &missingTopic{topic, fmt.Sprintf("the topic %s does not exist and %s; create it with: %s", topic, why, create)}
}

// ensureTopics sees that the topics exist, makes those that do not, and returns
// those that it may not make. An error means that it could not find out.
func (s *session) ensureTopics(topics []string) ([]*missingTopic, error) {
	d, err := s.dialer()
	if err != nil {
		return nil, err
	}
	defer s.forget(d)
	config, err := s.kafka.client(d)
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdmin(s.kafka.Brokers, config)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	missing, err := s.kafka.ensure(admin, topics)
	return missing, errors.Join(err, admin.Close())
}

func (k Kafka) ensure(admin sarama.ClusterAdmin, topics []string) ([]*missingTopic, error) {
	found, err := admin.DescribeTopics(topics)
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for the topics %s: %w", strings.Join(topics, ", "), err)
	}
	var missing []*missingTopic
	for _, t := range found {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition):
		case errors.Is(t.Err, sarama.ErrTopicAuthorizationFailed):
			missing = append(missing, &missingTopic{t.Name, fmt.Sprintf("the topic %s may not be seen by this user, or does not exist; allow it with: "+
				"kafka-acls.sh --bootstrap-server %s --add --allow-principal User:<user> --operation Write --operation Describe --topic %s", t.Name, k.Brokers[0], t.Name)})
			continue
		default:
			continue // it is there; what ails it shows when it is written
		}
		if k.NoCreate {
			missing = append(missing, k.missing(t.Name, "is not to be created by the service"))
			continue
		}
		err := admin.CreateTopic(t.Name, &sarama.TopicDetail{NumPartitions: k.Partitions, ReplicationFactor: k.Replication}, false)
		switch {
		case err == nil, errors.Is(err, sarama.ErrTopicAlreadyExists):
		case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
			missing = append(missing, k.missing(t.Name, "this user may not create it"))
		case errors.Is(err, sarama.ErrPolicyViolation), errors.Is(err, sarama.ErrInvalidPartitions),
			errors.Is(err, sarama.ErrInvalidConfig), errors.Is(err, sarama.ErrInvalidTopic):
			missing = append(missing, k.missing(t.Name, "cannot be created as configured ("+err.Error()+")"))
		default:
			// Too few brokers for the replication factor is one of these: they may come back.
			return missing, fmt.Errorf("create the topic %s: %w", t.Name, err)
		}
	}
	return missing, nil
}

// ensure sees to one topic that is not known to the producers; an error means that
// it will not exist.
func (p *pipe) ensure(topic string) error {
	asked := time.Now()
	p.ensuring.Lock()
	defer p.ensuring.Unlock()
	if last := p.ensured[topic]; last.began.After(asked) {
		return last.err // all lanes ask at once: the second answer is good for the rest
	}
	last := ensured{began: time.Now()}
	missing, err := p.session.ensureTopics([]string{topic})
	if err == nil && len(missing) > 0 {
		last.err = missing[0]
	}
	p.ensured[topic] = last // without an error it is there by now, or nobody knows: it is tried again
	return last.err
}

// ensured is what became of the last look for a topic.
type ensured struct {
	began time.Time
	err   error
}
