package forwarder_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
)

// faulty is a broker in memory that answers produce requests as a test says: an
// error code for a topic's partition, 0 for none.
func faulty(t *testing.T, code func(topic string, partition int32) *kerr.Error) forwarder.Kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		refused := false
		for _, topic := range produce.Topics {
			out := kmsg.NewProduceResponseTopic()
			out.Topic = topic.Topic
			for _, p := range topic.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition = p.Partition
				if err := code(topic.Topic, p.Partition); err != nil {
					part.ErrorCode, refused = err.Code, true
				} else {
					part.ErrorCode = kerr.NotLeaderForPartition.Code // of the others in the request: again
				}
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil, refused
	})
	return forwarder.Kafka{Brokers: cluster.ListenAddrs()}
}

// lateStream is a history in which something is appended just after the streams of
// a key were looked up.
type lateStream struct {
	*world
	late func()
}

func (l lateStream) StreamsOf(ctx context.Context, names []eventstore.StreamID, prefixes []string, suffix string) ([]eventstore.StreamID, error) {
	out, err := l.world.StreamsOf(ctx, names, prefixes, suffix)
	l.late()
	return out, err
}

// A stream of a parked key that begins while the key is read is not left out.
func TestRetryFindsAStreamThatBeginsMeanwhile(t *testing.T) {
	k := fake(t)
	w := newWorld(t)
	c := w.config(k)
	var once sync.Once
	c.History = lateStream{w, func() {
		once.Do(func() { w.append(event{stream: "bundle/one", typ: "execution.bundle.x"}, event{stream: "attempt/one"}) })
	}}
	w.append(event{stream: "attempt/one"}, event{stream: "attempt/one"})
	w.parkFirst(c.Topics.Attempts, "one")
	f, stop := start(t, c)
	eventually(t, "the key is unparked", func() bool { return len(w.parkedNow()) == 0 })
	w.caughtUp(f)
	stop()
	w.complete(k, c.Topics, nil)
}

// A topic that is written all the time, faster than the broker answers, is caught up
// with and comes back.
func TestParkedTopicIsCaughtUpWithUnderLoad(t *testing.T) {
	var denied atomic.Bool
	denied.Store(true)
	k := faulty(t, func(topic string, _ int32) *kerr.Error {
		if denied.Load() && strings.HasSuffix(topic, "attempts") {
			return kerr.TopicAuthorizationFailed
		}
		<-time.After(20 * time.Millisecond)
		return nil
	})
	w := newWorld(t)
	c := w.config(k)
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	stopWriting := sync.OnceFunc(func() { cancel(); writers.Wait() })
	t.Cleanup(stopWriting)
	for i := range 64 {
		writers.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				if err := w.appendOne(eventstore.StreamID(fmt.Sprintf("attempt/%d", i)), "execution.attempt.started", []byte(`{}`)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	f, stop := start(t, c)
	eventually(t, "the topic is parked", func() bool { return len(w.parkedNow()) == 1 })
	denied.Store(false)
	eventually(t, "the topic is unparked", func() bool { return len(w.parkedNow()) == 0 })
	stopWriting()
	w.caughtUp(f)
	stop()
	if got := gaps(w.complete(k, c.Topics, nil)); got != nil {
		t.Errorf("gaps: %v", got)
	}
}

// A broker that does not answer a retry holds up no end.
func TestLeaderEndsDuringARetry(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	k := faulty(t, func(topic string, _ int32) *kerr.Error {
		if strings.HasSuffix(topic, "attempts") {
			once.Do(func() { close(asked) })
			<-answer
		}
		return nil
	})
	t.Cleanup(func() { close(answer) }) // before the broker's
	w := newWorld(t)
	c := w.config(k)
	w.append(event{stream: "attempt/one"})
	w.parkFirst(c.Topics.Attempts, "one")
	_, stop := start(t, c)
	<-asked
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
}

// While one partition takes nothing, Status says so however well the others do.
func TestTroubleOfOnePartitionIsSeen(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	k := faulty(t, func(topic string, partition int32) *kerr.Error {
		if away.Load() && strings.HasSuffix(topic, "attempts") && partition == 0 {
			return kerr.NotEnoughReplicas
		}
		return nil
	})
	w := newWorld(t)
	c := w.config(k)
	f, stop := start(t, c)
	quiet := w.writing(10)
	eventually(t, "the partition is missed", func() bool { return status(t, f).Trouble != "" })
	for range 100 {
		if s := status(t, f); s.Trouble == "" {
			t.Errorf("Status has no trouble, %d events behind", s.Lag)
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	away.Store(false)
	quiet()
	eventually(t, "the trouble is over", func() bool { return status(t, f).Trouble == "" })
	w.caughtUp(f)
	stop()
	w.complete(k, c.Topics, nil)
}

// Brokers that come back without their topics, such as new ones under the old
// addresses, get what comes from then on; a replay brings the rest.
func TestBrokersThatComeBackEmpty(t *testing.T) {
	first, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Close)
	k := forwarder.Kafka{Brokers: first.ListenAddrs()}
	_, port, err := net.SplitHostPort(k.Brokers[0])
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(3, 3)...)
	f, stop := start(t, c)
	w.caughtUp(f)
	n := int64(len(w.feed()))
	first.Close()
	second, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(number), kfake.ClusterID("another"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Close)
	w.append(everyKind(3, 3)...)
	w.caughtUp(f)
	if got := w.parkedNow(); got != nil {
		t.Errorf("parked: %v", got)
	}
	if got := gaps(consume(t, k.Brokers, nil, c.Topics.All()...)); len(got) == 0 {
		t.Error("no gap tells of what is lost")
	}
	until := eventstore.Cursor{Generation: 1, Seq: n}
	if last, err := f.Replay(t.Context(), forwarder.ReplayRequest{Until: until}, nil); err != nil || last.Published != n {
		t.Errorf("replay: %+v, %v; want %d events", last, err, n)
	}
	stop()
	chained(t, consume(t, k.Brokers, nil, c.Topics.All()...))
}

// parkFirst parks a key at the first event of the feed, and asks for it again.
func (w *world) parkFirst(topic, key string) {
	w.t.Helper()
	p := domain.ForwarderParked{Topic: topic, Key: key, EventID: domain.NewID[domain.EventID](w.feed()[0].Event.EventID)}
	if err := w.ParkKey(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	if err := w.onKey(topic, key, domain.RetryKey{}); err != nil {
		w.t.Fatal(err)
	}
}
