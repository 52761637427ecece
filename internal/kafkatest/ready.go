package kafkatest

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/platform-core/execution-plane-service/internal/peers"
)

// ready waits until the broker serves every topic that it has, and its CLIENT
// listener takes connections.
func (p *Process) ready(run *peers.Run) error {
	deadline := time.NewTimer(startDeadline)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		// INTERNAL stays in the clear whatever a test makes of CLIENT.
		err := errors.Join(serves(address(p.ports.internal)), listens(address(p.ports.client)))
		if err == nil {
			return nil
		}
		select {
		case <-run.Ended():
			err := fmt.Errorf("it ended at once (%v): %s", run.State(), run.Words())
			if strings.Contains(run.Words(), "Address already in use") {
				err = fmt.Errorf("%w: %w", syscall.EADDRINUSE, err)
			}
			return err
		case <-deadline.C:
			return fmt.Errorf("it does not serve after %s: %w: %s", startDeadline, err, run.Words())
		case <-poll.C:
		}
	}
}

func listens(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

// serves asks for the metadata of the cluster and of topics: those named, or all.
func serves(address string, topics ...string) error {
	if err := listens(address); err != nil {
		return err
	}
	b := sarama.NewBroker(address)
	if err := b.Open(plainConfig()); err != nil {
		return err
	}
	// A connection that did not come about is none to close.
	defer func() { _ = b.Close() }()
	m, err := b.GetMetadata(sarama.NewMetadataRequest(clientVersion, topics))
	if err != nil {
		return err
	}
	if len(m.Brokers) == 0 {
		return errors.New("the broker has not registered yet")
	}
	for _, topic := range m.Topics {
		if !errors.Is(topic.Err, sarama.ErrNoError) {
			return fmt.Errorf("topic %s: %w", topic.Name, topic.Err)
		}
		for _, partition := range topic.Partitions {
			if !errors.Is(partition.Err, sarama.ErrNoError) {
				return fmt.Errorf("topic %s, partition %d: %w", topic.Name, partition.ID, partition.Err)
			}
		}
	}
	return nil
}
