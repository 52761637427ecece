package forwarder_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

func fake(t testing.TB) forwarder.Kafka {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return forwarder.Kafka{Brokers: c.ListenAddrs()}
}

// everyKind is a few streams of each kind, interleaved.
func everyKind(streams, rounds int) (out []event) {
	for round := range rounds {
		for i := range streams {
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			out = append(out, event{stream: "attempt/" + id})
			if round%2 == 0 {
				out = append(out, event{stream: "attempt/" + id, typ: "execution.attempt.heartbeat"})
			}
			out = append(out, event{stream: "bundle/" + id, typ: "execution.bundle.x"}, event{stream: "runner/" + id}, event{stream: "callback/siem/" + id})
		}
		out = append(out, event{stream: "service"}, event{stream: "token/a"}, event{stream: "access/2026-01-01/replica"}, event{stream: "strange/thing/x"}, event{stream: "plain"})
	}
	return out
}

func publishesTheFeed(t *testing.T, broker *kafkatest.Process) {
	for name, k := range map[string]forwarder.Kafka{"fake": fake(t), "kafka": {Brokers: broker.Addresses()}} {
		for _, enveloped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/enveloped=%t", name, enveloped), func(t *testing.T) {
				w := newWorld(t)
				w.append(everyKind(10, 6)...)
				c := w.config(k)
				c.Envelope = enveloped
				f, stop := start(t, c)
				w.append(everyKind(3, 2)...)
				w.caughtUp(f)
				stop()
				records := w.complete(k, c.Topics, nil)
				if got := gaps(records); got != nil {
					t.Errorf("gaps: %v", got)
				}
				if got := chained(t, records); got != len(w.feed()) {
					t.Errorf("%d events in chains, the feed has %d", got, len(w.feed()))
				}
			})
		}
	}
}
