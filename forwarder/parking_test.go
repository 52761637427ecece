package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

func rows(n int) (out []projections.ParkedKey) {
	for i := range n {
		out = append(out, projections.ParkedKey{Topic: "t", Key: fmt.Sprint(i), RetryRequested: true})
	}
	return out
}

// A key that the database no longer lists stays known until its unparking is recorded.
func TestUnlistedKeyStaysUntilItIsRecorded(t *testing.T) {
	s, k := newParkedSet(rows(1)), keyOf{"t", "0"}
	if due := s.adopt(nil, eventstore.Cursor{Seq: 9}, false); len(due) != 1 {
		t.Fatalf("due: %v", due)
	}
	if !s.unpark(k, 5) {
		t.Fatal("it stays parked")
	}
	s.adopt(nil, eventstore.Cursor{Seq: 9}, false)
	s.record(k)
	s.adopt(nil, eventstore.Cursor{Seq: 9}, false)
	if len(s.keys) != 0 {
		t.Errorf("it is remembered for ever: %v", s.keys)
	}
}

// A key that was parked just after the list was read is not one that was unparked.
func TestKeyParkedAfterTheListWasRead(t *testing.T) {
	s, k := newParkedSet(nil), keyOf{"t", "0"}
	row := rows(1)[0]
	row.RetryRequested = false
	s.park(k, row, 3)
	if due := s.adopt(nil, eventstore.Cursor{}, false); len(due) != 0 {
		t.Errorf("it is tried again at once")
	}
	if due := s.adopt([]projections.ParkedKey{row}, eventstore.Cursor{}, false); len(due) != 0 {
		t.Errorf("it is tried again though nobody asked")
	}
	s.adopt(nil, eventstore.Cursor{}, false)
	if due := s.adopt(nil, eventstore.Cursor{}, false); len(due) != 1 {
		t.Errorf("one that somebody else unparked is not tried again")
	}
}

// However many keys are wanted again, few are read at a time.
func TestRetriesAreBounded(t *testing.T) {
	all := rows(2000)
	s := newParkedSet(all)
	seen := map[keyOf]bool{}
	for len(seen) < len(all) {
		due := s.adopt(all, eventstore.Cursor{}, false)
		if len(due) == 0 || len(due) > retriesAtOnce {
			t.Fatalf("%d retries begin, after %d", len(due), len(seen))
		}
		if more := s.adopt(all, eventstore.Cursor{}, false); len(due) == retriesAtOnce && len(more) > 0 {
			t.Fatalf("%d more begin", len(more))
		}
		for _, k := range due {
			seen[k] = true
			if !s.unpark(k, 1) {
				t.Fatal("it stays parked")
			}
			s.record(k)
		}
	}
}

// Events of a key whose retry is nearly done wait for it; not for ever.
func TestHeldEventsAreLetGo(t *testing.T) { synctest.Test(t, heldEventsAreLetGo) }

func heldEventsAreLetGo(t *testing.T) {
	s, k := newParkedSet(rows(1)), keyOf{"t", "0"}
	it := func(seq int64) *item { return &item{topic: "t", key: "0", cursor: eventstore.Cursor{Seq: seq}} }
	if over, _ := s.passOver(it(4)); !over {
		t.Fatal("an event of a parked key is published")
	}
	s.hold(k)
	if over, held := s.passOver(it(4)); !over || held != nil {
		t.Error("what was passed over before is held")
	}
	later := make(chan bool)
	go func() {
		over, err := settle(context.Background(), it(5), s.passOver)
		later <- over || err != nil
	}()
	if !s.unpark(k, 4) {
		t.Fatal("what is held keeps the key parked")
	}
	if over := <-later; over {
		t.Error("the event after the retry is not published")
	}

	s = newParkedSet(rows(1))
	s.hold(k)
	s.gaveUp(k)
	if over, held := s.passOver(it(6)); !over || held != nil {
		t.Error("a retry that gave up still holds events")
	}
	s.hold(k)
	if over, err := settle(context.Background(), it(7), s.passOver); !over || err != nil {
		t.Errorf("a retry that takes long holds events (%v)", err)
	}
}

// A connection that does not come about is given up at once.
func TestCutOffEndsADial(t *testing.T) {
	looking := make(chan struct{})
	d := newDialer(time.Minute)
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case looking <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	ended := make(chan error)
	go func() {
		_, err := d.Dial("tcp", "broker.example:9092")
		ended <- err
	}()
	<-looking
	d.cutOff()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it connected")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits on")
	}
	if _, err := d.Dial("tcp", "broker.example:9092"); !errors.Is(err, errCutOff) {
		t.Errorf("after the cut: %v", err)
	}
}
