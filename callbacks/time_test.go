package callbacks

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/platform-core/execution-plane-service/domain"
)

// transport answers without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func response(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(""))}
}

// TestTriesGoOnForTheWindow and no longer, ever further apart, and then the callback
// is given up.
func TestTriesGoOnForTheWindow(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1", func(x *endpoint) { x.window = 6 * time.Hour })
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		w, log := newWorker(l, x)
		w.Woken = nil
		w.transport = transport(func(*http.Request) (*http.Response, error) { return response(500), nil })
		began := time.Now()
		l.add("")
		stop := start(t, w)
		for l.count(domain.CallbackAbandoned) == 0 && time.Since(began) < 24*time.Hour {
			time.Sleep(time.Minute)
		}
		stop()
		last := l.tries[len(l.tries)-1]
		if took := last.at.Sub(began); took > 6*time.Hour || took < 4*time.Hour || l.count(domain.CallbackAbandoned) != 1 {
			t.Errorf("the last try was %s after the first; it is given up when the next would be behind 6h", took)
		}
		if n := len(l.tries); n < 8 || n > 60 {
			t.Errorf("%d tries in six hours", n)
		}
		for i := 1; i < len(l.tries); i++ {
			before := l.tries[i-1]
			// A look a second, and probes of an endpoint that fails.
			if gap := l.tries[i].at.Sub(before.at); gap < before.Delay || gap > before.Delay+probeCap+2*lookEvery {
				t.Errorf("try %d came %s after the one before, it was due after %s", l.tries[i].Try, gap, before.Delay)
			}
			if before.Delay > doubled(backoffBase, before.Try-1, backoffCap) {
				t.Errorf("after try %d the wait is %s", before.Try, before.Delay)
			}
		}
		if !strings.Contains(log.String(), "given up") {
			t.Error("the log does not tell that a callback was given up")
		}
	})
}

// TestRetryAfterIsHonoured in both forms.
func TestRetryAfterIsHonoured(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1")
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.ahead = 3 * time.Hour // the receiver's clock is this machine's, the database's is another
		w, _ := newWorker(l, x)
		n := 0
		w.transport = transport(func(*http.Request) (*http.Response, error) {
			switch n++; n {
			case 1:
				return response(429, "Retry-After", "300"), nil
			case 2:
				now := time.Now()
				return response(503, "Retry-After", now.Add(10*time.Minute).UTC().Format(http.TimeFormat), "Date", now.UTC().Format(http.TimeFormat)), nil
			}
			return response(200), nil
		})
		l.add("")
		start(t, w)
		l.wait(t, "first", func() bool { return len(l.tries) > 0 })
		time.Sleep(20 * time.Minute)
		tries := l.recorded()
		if len(tries) != 3 {
			t.Fatalf("%d tries, want 3", len(tries))
		}
		for i, want := range []time.Duration{5 * time.Minute, 10 * time.Minute} {
			if gap := tries[i+1].at.Sub(tries[i].at); gap < want || gap > want*11/10+2*time.Second {
				t.Errorf("try %d came after %s, asked for were %s", i+2, gap, want)
			}
		}
	})
}

// TestRetryAfterIsNoShortCut: an endpoint that takes all others and asks to have one
// again in a second, for ever, does not fill the ledger with its tries.
func TestRetryAfterIsNoShortCut(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1", func(x *endpoint) { x.window = 6 * time.Hour })
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		w, _ := newWorker(l, x)
		w.Woken = nil
		bad := l.add("").String()
		w.transport = transport(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get(HeaderAttempt) == bad {
				return response(429, "Retry-After", "1"), nil
			}
			return response(200), nil
		})
		began := time.Now()
		start(t, w)
		for l.count(domain.CallbackAbandoned) == 0 && time.Since(began) < 7*time.Hour {
			l.add("")
			time.Sleep(time.Minute)
		}
		failed := 0
		for _, x := range l.recorded() {
			if !x.Delivered {
				failed++
			}
		}
		if failed > 60 {
			t.Errorf("%d tries of one callback in %s", failed, time.Since(began))
		}
	})
}

// TestClocks: what is due is the database's affair, and so is the time in the
// signature. A database clock that jumps neither loses a callback nor floods.
func TestClocks(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1", func(x *endpoint) { x.parallelism = 2 })
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.ahead = -48 * time.Hour
		w, _ := newWorker(l, x)
		var calls, flying, most atomic.Int64
		var jumped time.Time // when the database's clock did; guarded by l.mu
		var fail atomic.Bool
		fail.Store(true)
		w.transport = transport(func(r *http.Request) (*http.Response, error) {
			calls.Add(1)
			most.Store(max(most.Load(), flying.Add(1)))
			defer flying.Add(-1)
			time.Sleep(10 * time.Millisecond)
			seconds, err := strconv.ParseInt(r.Header.Get(webhooks.HeaderWebhookTimestamp), 10, 64)
			l.mu.Lock()
			off, settled := l.now().Sub(time.Unix(seconds, 0)), time.Since(jumped) > 2*clockEvery
			l.mu.Unlock()
			if err != nil || settled && (off < -2*time.Second || off > 2*time.Second) {
				t.Errorf("the signature's time is %s from the database's", off)
			}
			if fail.Load() {
				return response(500), nil
			}
			return response(200), nil
		})
		const n = 50
		for range n {
			l.add("")
		}
		start(t, w)
		time.Sleep(5 * time.Minute)
		before := calls.Load()
		if before > 40 {
			t.Errorf("%d calls in five minutes to an endpoint that fails", before)
		}
		l.mu.Lock()
		l.ahead, jumped = 0, time.Now() // two days ahead: all is due
		l.mu.Unlock()
		time.Sleep(clockEvery)
		calls.Store(0)
		time.Sleep(5 * time.Minute)
		if calls.Load() > 40 {
			t.Errorf("%d calls in five minutes after the jump", calls.Load())
		}
		fail.Store(false)
		l.mu.Lock()
		l.ahead, jumped = -time.Hour, time.Now() // back again: waits are longer, nothing is lost
		l.mu.Unlock()
		time.Sleep(4 * time.Hour)
		if got := l.count(domain.CallbackDone); got != n || most.Load() > 2 {
			t.Errorf("%d of %d delivered, %d calls at once", got, n, most.Load())
		}
	})
}

// TestRecordWaitsForTheDatabase: a call whose outcome cannot be recorded is not made
// again and again.
func TestRecordWaitsForTheDatabase(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1")
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		w, _ := newWorker(l, x)
		var calls, away atomic.Int64
		w.transport = transport(func(*http.Request) (*http.Response, error) { calls.Add(1); return response(200), nil })
		away.Store(1)
		l.refuseRecord = func(int) error {
			if away.Load() == 1 {
				return errAway
			}
			return nil
		}
		l.add("")
		start(t, w)
		time.Sleep(recordFor - time.Second)
		if calls.Load() != 1 {
			t.Errorf("%d calls while the first one's record is tried", calls.Load())
		}
		time.Sleep(time.Minute)
		if n := calls.Load(); n > 6 {
			t.Errorf("%d calls in a minute without a database", n)
		}
		away.Store(0)
		time.Sleep(time.Minute)
		if n := len(l.recorded()); l.count(domain.CallbackDone) != 1 || n != 1 {
			t.Errorf("%d delivered, %d recorded", l.count(domain.CallbackDone), n)
		}
	})
}

// recorded gives the tries that were events.
func (l *ledger) recorded() []try {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.tries)
}

// count counts the callbacks in a state.
func (l *ledger) count(s domain.CallbackState) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.callbacks {
		if c.State == s {
			n++
		}
	}
	return n
}
