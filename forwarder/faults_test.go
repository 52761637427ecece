package forwarder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/kafkatest"
)

// writing appends to some streams until it is stopped.
func (w *world) writing(streams int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for ctx.Err() == nil {
				s := fmt.Sprintf("attempt/%d", r.IntN(streams)*4+i)
				typ := "execution.attempt.started"
				if r.IntN(3) == 0 {
					typ = "execution.attempt.heartbeat"
				}
				if err := w.appendOne(eventstore.StreamID(s), typ, fmt.Appendf(nil, `{"n":%d}`, r.IntN(1000))); err != nil {
					w.t.Error(err)
				}
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); writers.Wait() })
	w.t.Cleanup(stop)
	return stop
}

// Every error that a produce request may get and that passes by itself.
func TestProducerErrorsLoseNothing(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	codes := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut,
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.CorruptMessage, kerr.KafkaStorageError, kerr.UnknownServerError,
		kerr.NetworkException,
	}
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 2))
	refused := map[int16]int{}
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(4) != 0 || len(refused) == len(codes) && refused[kerr.NetworkException.Code] > 3 {
			return nil, nil, false
		}
		code := codes[r.IntN(len(codes))].Code
		refused[code]++
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produce.Topics {
			out := kmsg.NewProduceResponseTopic()
			out.Topic = topic.Topic
			for _, p := range topic.Partitions {
				part := kmsg.NewProduceResponseTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, code
				out.Partitions = append(out.Partitions, part)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil, true
	})
	k := forwarder.Kafka{Brokers: cluster.ListenAddrs()}
	w := newWorld(t)
	c := w.config(k)
	f, stop := start(t, c)
	quiet := w.writing(10)
	eventually(t, "each error was met", func() bool { mu.Lock(); defer mu.Unlock(); return len(refused) == len(codes) })
	quiet()
	w.caughtUp(f)
	if s := status(t, f); s.Retries == 0 || s.Trouble != "" || len(s.Parked) > 0 {
		t.Errorf("status after all: %+v", s)
	}
	stop()
	if got := gaps(w.complete(k, c.Topics, nil)); got != nil {
		t.Errorf("gaps: %v", got)
	}
}

func brokerComesAndGoes(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses(), Timeout: time.Second}
	w := newWorld(t)
	c := w.config(k)
	f, stop := start(t, c)
	quiet := w.writing(10)
	held := func() bool { return status(t, f).Trouble != "" }
	w.append(everyKind(3, 3)...)
	goesOn := func() {
		t.Helper()
		end := status(t, f).End
		eventually(t, "it goes on", func() bool { s := status(t, f); return s.Checkpoint.Seq >= end.Seq && s.Trouble == "" })
	}
	goesOn()
	ends := []func(){broker.Kill}
	if *long {
		ends = append(ends, broker.Stop)
	}
	for _, end := range ends {
		end()
		eventually(t, "the broker is missed", held)
		broker.Restart()
		goesOn()
	}
	broker.Pause()
	eventually(t, "the broker is missed", held)
	// A leader ends though nothing answers, and another one begins.
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("with the broker paused the end took %s", took)
	}
	other := c
	other.Holder = "other"
	f, stop = start(t, other)
	broker.Resume()
	quiet()
	w.caughtUp(f)
	stop()
	if got := gaps(w.complete(k, c.Topics, nil)); got != nil {
		t.Errorf("gaps: %v", got)
	}
}

// A leader that begins while nothing answers goes on when something does.
func beginsWithoutAnswers(t *testing.T, broker *kafkatest.Process) {
	k := forwarder.Kafka{Brokers: broker.Addresses(), Timeout: time.Second}
	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(3, 3)...)
	broker.Pause()
	f, stop := start(t, c)
	eventually(t, "the broker is missed", func() bool { return status(t, f).Trouble != "" })
	began := time.Now()
	stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("with the broker paused the end took %s", took)
	}
	f, stop = start(t, c)
	<-time.After(time.Second)
	broker.Resume()
	w.caughtUp(f)
	stop()
	w.complete(k, c.Topics, nil)
}

// Two replicas at once, leaders that stop, that lose the lease unawares, and that
// die between publishing and the checkpoint.
func TestLeadersChange(t *testing.T) {
	k := fake(t)
	w := newWorld(t)
	c := w.config(k)
	leader := func(a, b *forwarder.Forwarder) *forwarder.Forwarder {
		var out *forwarder.Forwarder
		eventually(t, "one leads", func() bool {
			// Both may say so for a moment: one does not know yet.
			switch one, two := status(t, a).Leader, status(t, b).Leader; {
			case one && !two:
				out = a
			case two && !one:
				out = b
			}
			return out != nil
		})
		return out
	}
	second := c
	second.Holder = "second"
	quiet := w.writing(10)
	a, stopA := start(t, c)
	b, stopB := start(t, second)
	for range 3 {
		first := leader(a, b)
		published := func(f *forwarder.Forwarder) (n int64) {
			for _, v := range status(t, f).Published {
				n += v
			}
			return n
		}
		before := published(first)
		eventually(t, "the leader publishes", func() bool { return published(first) > before+100 })
		w.steal(forwarder.Lease)
		eventually(t, "the leader notices, and one takes the lease again", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.leases[forwarder.Lease].holder != "thief"
		})
	}
	// The checkpoint of the next leader is not written: it dies before.
	w.mu.Lock()
	w.dropped = true
	w.mu.Unlock()
	f, stop, rest := leader(a, b), stopA, stopB
	if f == b {
		f, stop, rest = b, stopB, stopA
	}
	at := status(t, f).Checkpoint
	n := int64(len(w.feed()))
	eventually(t, "more is published", func() bool { return int64(len(w.feed())) > n+200 })
	stop()
	w.mu.Lock()
	w.dropped = false
	if w.checkpoint != at {
		t.Errorf("the checkpoint is %s, was to stay %s", w.checkpoint, at)
	}
	w.mu.Unlock()
	began := time.Now()
	if f == a {
		f = b
	} else {
		f = a
	}
	eventually(t, "the other leads", func() bool { return status(t, f).Leader })
	if took := time.Since(began); took > 5*time.Second { // the lease was given back: it runs out after twice that
		t.Errorf("the other led after %s", took)
	}
	quiet()
	w.caughtUp(f)
	rest()
	records := w.complete(k, c.Topics, nil)
	if got := gaps(records); got != nil {
		t.Errorf("gaps: %v", got)
	}
	if len(records) <= len(w.feed()) {
		t.Errorf("%d records of %d events: nothing came twice, so nothing was tried", len(records), len(w.feed()))
	}
}

// A consumer sees an event that is missing in one topic.
func TestPlantedGapIsSeen(t *testing.T) {
	k := fake(t)
	w := newWorld(t)
	c := w.config(k)
	w.append(everyKind(3, 6)...)
	f, stop := start(t, c)
	w.caughtUp(f)
	stop()
	records := w.complete(k, c.Topics, nil)
	for i, r := range records {
		if r.headers["ce_subject"] == "attempt/00000000-0000-4000-8000-000000000001" && r.topic == c.Topics.Heartbeats && r.headers["ce_streamversion"] == "5" {
			got := gaps(append(records[:i:i], records[i+1:]...))
			want := r.headers["ce_subject"] + ": 2 is followed by 8, which follows 5"
			if len(got) != 1 || got[0] != want {
				t.Errorf("gaps %v, want %s", got, want)
			}
			return
		}
	}
	t.Error("there is no such record")
}
