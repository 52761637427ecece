package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/projections"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// queued is a waiting attempt of an environment, made at a second.
func queued(env string, priority, second int) projections.Queued {
	return projections.Queued{AttemptID: uuid.New(), JobType: "verification", Action: "verify.tcp.connect", Environment: env,
		Runner: `{"name": "verification-runner", "isolation": "process"}`, Priority: priority, CreatedAt: start.Add(time.Duration(second) * time.Second), ReadAt: start}
}

// serving fits the environments.
func serving(envs ...string) (string, func(need) bool) {
	return fmt.Sprint(envs), func(n need) bool {
		for _, e := range envs {
			if e == n.Environment {
				return true
			}
		}
		return false
	}
}

func (q *queueIndex) read(now time.Time, rows ...projections.Queued) { q.update(rows, nil, now) }

func given(w *waiter) bool { return len(w.c) > 0 }

func TestOrderIsPriorityThenAgeAcrossNeeds(t *testing.T) {
	q := newQueueIndex()
	late, early, urgent, foreign := queued("a", 0, 3), queued("b", 0, 1), queued("b", 5, 9), queued("c", 9, 0)
	q.read(start, late, early, urgent, foreign)
	w := q.enter(serving("a", "b"))
	it := q.leave(w)
	for i, want := range []projections.Queued{urgent, early, late} {
		if it == nil || it.id != want.AttemptID {
			t.Fatalf("attempt %d is %v, want %s", i, it, want.AttemptID)
		}
		q.offered(it)
		it = q.claim(w.class)
	}
	if it != nil {
		t.Errorf("an attempt that does not fit was given: %v", it.id)
	}
}

func TestAsManyRequestsAreWokenAsThereIsWork(t *testing.T) {
	q := newQueueIndex()
	q.read(start)
	var fit []*waiter
	for range 5 {
		fit = append(fit, q.enter(serving("a")))
	}
	other := q.enter(serving("b"))
	q.read(start, queued("a", 0, 1), queued("a", 0, 2), queued("c", 0, 0))
	for i, w := range fit {
		if given(w) != (i < 2) { // those that waited longest
			t.Errorf("request %d: woken %v", i, given(w))
		}
	}
	if given(other) {
		t.Error("a request was woken for work that does not fit")
	}
}

func TestAnAttemptThatIsGivenBackGoesToTheNextRequest(t *testing.T) {
	q := newQueueIndex()
	a := queued("a", 0, 1)
	first, second := q.enter(serving("a")), q.enter(serving("a"))
	q.read(start, a)
	if !given(first) || given(second) {
		t.Fatalf("woken: %v, %v", given(first), given(second))
	}
	it := q.leave(first)
	q.putBack(it)
	if got := q.leave(second); got == nil || got.id != a.AttemptID {
		t.Errorf("the second request got %v", got)
	}
}

func TestAnAttemptIsTriedByOneAtATime(t *testing.T) {
	q := newQueueIndex()
	a := queued("a", 0, 1)
	q.read(start, a)
	first := q.leave(q.enter(serving("a")))
	q.read(start, a) // the row was read before the offer was stored
	if it := q.leave(q.enter(serving("a"))); it != nil {
		t.Error("an attempt was given to two requests at once")
	}
	q.missed(first)
	if ids, _ := q.takeNews(); !ids[a.AttemptID] {
		t.Errorf("an attempt that was missed is not read again: %v", ids)
	}
	q.read(start, a)
	if it := q.leave(q.enter(serving("a"))); it == nil {
		t.Error("an attempt that was missed and still waits is not offered again")
	}
}

func TestNothingIsOfferedBeforeItsTime(t *testing.T) {
	q := newQueueIndex()
	a := queued("a", 0, 1)
	at := start.Add(10 * time.Second)
	a.NotBefore = &at
	w := q.enter(serving("a"))
	q.read(start, a)
	if given(w) {
		t.Fatal("offered at once")
	}
	if wait, ok := q.next(start.Add(9900 * time.Millisecond)); !ok || wait > 200*time.Millisecond {
		t.Errorf("the refresher rests %s, %v", wait, ok)
	}
	q.update(nil, []uuid.UUID{}, start.Add(9*time.Second))
	if given(w) {
		t.Fatal("offered a second early")
	}
	q.update(nil, []uuid.UUID{}, start.Add(10*time.Second+ripenLag))
	if !given(w) {
		t.Error("not offered when its time had come")
	}
}

func TestAnAttemptPutAsideHidesNoOther(t *testing.T) {
	q := newQueueIndex()
	bad, good := queued("a", 0, 1), queued("a", 0, 2)
	now := time.Now()
	q.read(now, bad, good)
	q.putAside(q.leave(q.enter(serving("a"))))
	q.read(now, bad, good)
	if it := q.leave(q.enter(serving("a"))); it == nil || it.id != good.AttemptID {
		t.Errorf("next is %v", it)
	}
	q.read(now.Add(asideFor+time.Second), bad)
	q.read(now.Add(asideFor+time.Second), bad)
	if it := q.leave(q.enter(serving("a"))); it == nil || it.id != bad.AttemptID {
		t.Errorf("after a while it is tried again: %v", it)
	}
}

func TestAttemptsThatLeftAreForgotten(t *testing.T) {
	q := newQueueIndex()
	a, b := queued("a", 0, 1), queued("a", 0, 2)
	q.read(start, a, b)
	q.changed(a.AttemptID, false)
	q.changed(uuid.New(), false) // never waited here
	ids, all := q.takeNews()
	if known := q.known(ids); all || len(known) != 1 || known[0] != a.AttemptID {
		t.Errorf("to be read again: %v, all %v", known, all)
	}
	q.update(nil, []uuid.UUID{a.AttemptID}, start)
	if it := q.leave(q.enter(serving("a"))); it == nil || it.id != b.AttemptID {
		t.Errorf("next is %v", it)
	}
	q.read(start)
	if len(q.items) != 0 || len(q.buckets) != 1 { // b is still claimed
		t.Errorf("%d attempts and %d buckets are left", len(q.items), len(q.buckets))
	}
}

// However many attempts wait that nobody here can do, the one that fits is found.
func TestUnfitAttemptsHideNoFittingOne(t *testing.T) {
	q := newQueueIndex()
	rows := make([]projections.Queued, 12_000)
	for i := range rows {
		rows[i] = queued("unfit", 0, i)
	}
	fitting := queued("a", 0, 99_999)
	q.read(start, append(rows, fitting)...)
	if it := q.leave(q.enter(serving("a"))); it == nil || it.id != fitting.AttemptID {
		t.Errorf("next is %v", it)
	}
}

func TestTooMuchNewsIsOneReadingOfAll(t *testing.T) {
	q := newQueueIndex()
	for range maxNews + 1 {
		q.changed(uuid.New(), true)
	}
	if ids, all := q.takeNews(); !all || len(ids) > 0 {
		t.Errorf("all %v, %d ids", all, len(ids))
	}
	if _, all := q.takeNews(); all {
		t.Error("news that was taken is still there")
	}
}
