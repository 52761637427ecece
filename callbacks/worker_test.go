package callbacks

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"crypto/sha256"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// request is what a receiver saw.
type request struct {
	header http.Header
	body   []byte
	good   bool // the signature verifies
}

// inbox is a receiver that keeps what it saw and answers as told.
type inbox struct {
	t   *testing.T
	url string

	mu     sync.Mutex
	seen   []request
	answer func(n int, w http.ResponseWriter, r *http.Request) // n counts from 1
}

func newInbox(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *inbox {
	b := &inbox{t: t, answer: answer}
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	hook, err := webhooks.NewWebhook(shared("k", 32))
	if err != nil {
		b.t.Error(err)
	}
	b.mu.Lock()
	b.seen = append(b.seen, request{r.Header.Clone(), body, hook.Verify(body, r.Header) == nil})
	n, answer := len(b.seen), b.answer
	b.mu.Unlock()
	if answer != nil {
		answer(n, w, r)
	}
}

func (b *inbox) requests() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]request(nil), b.seen...)
}

func named(t *testing.T, name, url string, change ...func(*endpoint)) *endpoint {
	x := endpointAt(t, url, change...)
	x.name = name
	return x
}

func TestResultsAreDelivered(t *testing.T) {
	l := newLedger()
	all, one := newInbox(t, nil), newInbox(t, nil)
	w, _ := newWorker(l, named(t, "all", all.url), named(t, "one", one.url, func(x *endpoint) { x.onlyNamed = true }))
	const n = 500 // more than a page
	for range n {
		l.add("")
	}
	id := l.add("one")
	start(t, w)
	l.wait(t, "delivery of all", func() bool {
		return l.in("all", domain.CallbackDone) == n && l.in("one", domain.CallbackDone) == 1
	})
	if got := len(all.requests()); got != n {
		t.Errorf("%d requests for %d results", got, n)
	}
	reqs := one.requests()
	if len(reqs) != 1 || !reqs[0].good {
		t.Fatalf("the endpoint that was named saw %d requests", len(reqs))
	}
	h := reqs[0].header
	got := []string{h.Get("webhook-id"), h.Get(HeaderAttempt), h.Get(HeaderSequence), h.Get("User-Agent"), string(reqs[0].body)}
	stored := l.results[n]
	want := []string{domain.CallbackIDOf("one", id).String(), id.String(), fmt.Sprint(stored.Seq), "execution-plane/test", string(stored.Body)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	l.wait(t, "checkpoint at the end", func() bool { return l.checkpoint == stored.Cursor() })
}

// TestEveryTryHasTheSameIdAndBytes: over failures, a crash between answer and
// record, and a replay.
func TestEveryTryHasTheSameIdAndBytes(t *testing.T) {
	t.Parallel()
	l := newLedger()
	in := newInbox(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(503)
		}
	})
	id := l.add("")
	w, _ := newWorker(l, named(t, "here", in.url))
	// The record of the first delivery is lost, as if the process had ended before it.
	l.refuseRecord = func(n int) error {
		if n == 2 {
			return &domain.Error{Kind: domain.KindConflict, Code: "lost"}
		}
		return nil
	}
	stop := start(t, w)
	l.wait(t, "lost record", func() bool { return l.calls >= 2 })
	stop()
	again, _ := newWorker(l, named(t, "here", in.url))
	start(t, again)
	l.wait(t, "delivery", func() bool { return l.in("here", domain.CallbackDone) == 1 })
	l.replay("here", id)
	l.wait(t, "delivery of the replay", func() bool { return l.in("here", domain.CallbackDone) == 1 })
	reqs := in.requests()
	if len(reqs) != 4 {
		t.Fatalf("%d requests, want a failure, a lost delivery, a delivery and a replay", len(reqs))
	}
	for i, r := range reqs {
		if !r.good || r.header.Get("webhook-id") != reqs[0].header.Get("webhook-id") || string(r.body) != string(reqs[0].body) {
			t.Errorf("request %d is another: %v %s", i, r.header, r.body)
		}
	}
	var got []string
	for _, x := range l.recorded() {
		got = append(got, fmt.Sprintf("%d.%d %t", x.Round, x.Try, x.Delivered))
	}
	if diff := cmp.Diff([]string{"1.1 false", "1.2 true", "2.1 true"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestNothingOfAnAnswerIsKept: what a receiver writes reaches neither ledger, log nor
// metrics.
func TestNothingOfAnAnswerIsKept(t *testing.T) {
	l := newLedger()
	page := strings.Repeat("<p>internal token=hunter2</p>", 40000)
	in := newInbox(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Secret", "token=hunter2")
		w.WriteHeader(500)
		_, _ = io.WriteString(w, page) // the caller stops reading
	})
	l.add("")
	w, log := newWorker(l, named(t, "here", in.url))
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(w.Collector())
	start(t, w)
	l.wait(t, "failure", func() bool { return len(l.tries) == 1 })
	got := l.recorded()[0].CallbackTry
	sum := sha256.Sum256([]byte(page[:maxAnswer]))
	if got.Status != 500 || got.ErrorClass != ClassStatus || got.ResponseBytes != maxAnswer || got.ResponseSHA256 != hex.EncodeToString(sum[:]) || got.Delay < time.Second {
		t.Errorf("recorded %+v", got)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"log": log.String(), "record": fmt.Sprintf("%+v", got), "metrics": fmt.Sprint(families), "status": fmt.Sprintf("%+v", s)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "internal token") {
			t.Errorf("the %s tells what the receiver wrote: %s", what, text)
		}
	}
	if e := s.Endpoints[0]; !s.Leading || e.Pending != 1 || e.FailuresInRow != 1 || e.LastError != ClassStatus || e.OldestAt.IsZero() {
		t.Errorf("status %+v", s)
	}
	if text := fmt.Sprint(families); !strings.Contains(text, "eps_callback_tries_total") || !strings.Contains(text, "eps_callback_duration_seconds") {
		t.Errorf("metrics lack tries: %s", text)
	}
}

func TestGoneStopsTheEndpoint(t *testing.T) {
	t.Parallel()
	l := newLedger()
	var open atomic.Bool
	in := newInbox(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !open.Load() {
			w.WriteHeader(http.StatusGone)
		}
	})
	other := newInbox(t, nil)
	x := named(t, "gone", in.url, func(x *endpoint) { x.parallelism = 1 })
	w, log := newWorker(l, x, named(t, "other", other.url))
	const n = 20
	for range n {
		l.add("")
	}
	start(t, w)
	l.wait(t, "delivery to the other", func() bool { return l.in("other", domain.CallbackDone) == n && l.stopped["gone"] != "" })
	if got := len(in.requests()); got != 1 {
		t.Errorf("%d requests after a 410", got)
	}
	s, err := w.Status(t.Context())
	if err != nil || s.Endpoints[0].Stopped != domain.EndpointGone || s.Endpoints[0].Pending != n {
		t.Errorf("status %+v, %v", s, err)
	}
	if !strings.Contains(log.String(), `"level":"ERROR"`) || !strings.Contains(log.String(), "410") {
		t.Errorf("the operator is not told: %s", log)
	}
	open.Store(true)
	l.mu.Lock()
	delete(l.stopped, "gone")
	for k, c := range l.callbacks { // the one that was answered waits no longer
		c.NextAt = c.ScheduledAt
		l.callbacks[k] = c
	}
	l.mu.Unlock()
	l.wait(t, "delivery once resumed", func() bool { return l.in("gone", domain.CallbackDone) == n })
}

func TestStoppedEndpointIsNotCalled(t *testing.T) {
	l := newLedger()
	in, other := newInbox(t, nil), newInbox(t, nil)
	l.stopped["here"] = domain.EndpointByOperator
	w, _ := newWorker(l, named(t, "here", in.url), named(t, "other", other.url))
	l.add("")
	start(t, w)
	l.wait(t, "delivery to the other", func() bool {
		return l.in("other", domain.CallbackDone) == 1 && l.in("here", domain.CallbackPending) == 1
	})
	if n := len(in.requests()); n != 0 {
		t.Errorf("%d requests to a stopped endpoint", n)
	}
	l.mu.Lock()
	delete(l.stopped, "here")
	l.mu.Unlock()
	l.wait(t, "delivery once resumed", func() bool { return l.in("here", domain.CallbackDone) == 1 })
}

// TestCheckpointNeverPassesAResult that was not scheduled for all its endpoints.
func TestCheckpointNeverPassesAResult(t *testing.T) {
	l := newLedger()
	in := newInbox(t, nil)
	w, _ := newWorker(l, named(t, "a", in.url), named(t, "b", in.url))
	first, bad, last := l.add(""), l.add(""), l.add("")
	var mended atomic.Bool
	l.refuseSchedule = func(endpoint string, id domain.AttemptID) error {
		if endpoint == "b" && id == bad && !mended.Load() {
			return errAway
		}
		return nil
	}
	more, err := w.schedulePage(t.Context())
	if err == nil || more || l.checkpoint.Seq != l.results[0].Seq {
		t.Errorf("checkpoint %s after a failure, more %t, error %v; want it at the first result", l.checkpoint, more, err)
	}
	w.noteBehind(err)
	if s, err := w.Status(t.Context()); err != nil || s.Trouble == "" {
		t.Errorf("status %+v, %v: nothing tells that results wait", s, err)
	}
	mended.Store(true)
	if more, err := w.schedulePage(t.Context()); err != nil || !more || l.checkpoint != l.results[2].Cursor() {
		t.Errorf("checkpoint %s, more %t, %v", l.checkpoint, more, err)
	}
	for _, id := range []domain.AttemptID{first, bad, last} {
		for _, name := range []string{"a", "b"} {
			if l.callbacks[name+"/"+id.String()].State != domain.CallbackPending {
				t.Errorf("the result of %s is not scheduled for %s", id, name)
			}
		}
	}
}

func TestEndpointThatIsNotConfigured(t *testing.T) {
	l := newLedger()
	in := newInbox(t, nil)
	w, log := newWorker(l, named(t, "here", in.url))
	l.add("nobody")
	l.add("")
	start(t, w)
	l.wait(t, "delivery of the other", func() bool { return l.in("here", domain.CallbackDone) == 1 && l.checkpoint.Seq == 20 })
	s, err := w.Status(t.Context())
	if err != nil || s.Unknown != 1 || !strings.Contains(log.String(), "nobody") {
		t.Errorf("status %+v, %v, log %s", s, err, log)
	}
}

// TestResultThatChanged is not sent, and is visible as a failure of its own.
func TestResultThatChanged(t *testing.T) {
	l := newLedger()
	in := newInbox(t, nil)
	w, _ := newWorker(l, named(t, "here", in.url))
	l.add("")
	if _, err := w.schedulePage(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.results[0].Body = []byte(`{}`)
	start(t, w)
	l.wait(t, "failure", func() bool { return len(l.tries) == 1 })
	if got := l.recorded()[0]; got.ErrorClass != ClassResult || len(in.requests()) != 0 {
		t.Errorf("recorded %+v, %d requests", got, len(in.requests()))
	}
}

// TestResultsThatAreGone fail as such, and stand in nobody's way however many they
// are: what comes later is delivered.
func TestResultsThatAreGone(t *testing.T) {
	x := endpointAt(t, "http://127.0.0.1:1")
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		w, _ := newWorker(l, x)
		w.Woken = nil
		w.transport = transport(func(*http.Request) (*http.Response, error) { return response(200), nil })
		const gone = maxHeld + 100
		for range gone {
			l.add("")
		}
		for more := true; more; {
			var err error
			if more, err = w.schedulePage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		last := l.results[gone-1].Seq
		l.results = nil
		l.add("")
		l.results[0].Seq = last + 10
		start(t, w)
		time.Sleep(time.Minute)
		if n := l.count(domain.CallbackDone); n != 1 {
			t.Errorf("%d delivered behind %d whose results are gone", n, gone)
		}
		if tries := l.recorded(); len(tries) < gone || tries[0].ErrorClass != ClassResult {
			t.Errorf("%d tries recorded", len(tries))
		}
	})
}

// TestAnswerAfterTheTimeoutIsNoDelivery: the receiver's 200 comes too late, so the
// same result comes again.
func TestAnswerAfterTheTimeoutIsNoDelivery(t *testing.T) {
	t.Parallel()
	l := newLedger()
	in := newInbox(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done() // longer than it is waited for
		}
	})
	w, _ := newWorker(l, named(t, "here", in.url, fast))
	w.jitter = func() float64 { return 0 }
	l.add("")
	start(t, w)
	l.wait(t, "time-out", func() bool { return len(l.tries) == 1 })
	if got := l.recorded()[0]; got.ErrorClass != ClassTimeout || got.Status != 0 {
		t.Errorf("recorded %+v", got.CallbackTry)
	}
	l.wait(t, "delivery", func() bool { return l.in("here", domain.CallbackDone) == 1 })
}

// TestDeadEndpointsCostTheOthersNothing: one that hangs and one that refuses have
// slots of their own, are probed by one call at a time, and the living one gets
// everything meanwhile.
func TestDeadEndpointsCostTheOthersNothing(t *testing.T) {
	l := newLedger()
	var hanging, most atomic.Int32
	release := make(chan struct{})
	hangs := newInbox(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		now := hanging.Add(1)
		defer hanging.Add(-1)
		if n > 8 { // the first ones began together
			most.Store(max(most.Load(), now))
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses := "http://" + gone.Addr().String()
	gone.Close()
	living := newInbox(t, nil)
	w, _ := newWorker(l, named(t, "hangs", hangs.url, fast), named(t, "refuses", refuses), named(t, "living", living.url))
	const n = 400
	for range n {
		l.add("")
	}
	start(t, w)
	l.wait(t, "delivery to the living", func() bool { return l.in("living", domain.CallbackDone) == n })
	l.wait(t, "probes of the dead", func() bool {
		count := map[string]int{}
		for _, x := range l.tries {
			count[x.endpoint]++
		}
		return count["hangs"] >= 6 && count["refuses"] >= 6
	})
	refused := 0
	l.mu.Lock()
	for _, x := range l.tries {
		if x.endpoint == "refuses" {
			refused++
		}
	}
	l.mu.Unlock()
	// Five, those that were under way with the fifth, and probes some seconds apart.
	if refused > 20 {
		t.Errorf("an endpoint that refuses was called %d times in seconds", refused)
	}
	if most.Load() > 1 {
		t.Errorf("%d calls at once probed an endpoint that hangs", most.Load())
	}
	s, err := w.Status(t.Context())
	if err != nil || s.Endpoints[0].LastError != ClassTimeout || s.Endpoints[1].LastError != ClassRefused || s.Endpoints[2].FailuresInRow != 0 {
		t.Errorf("status %+v, %v", s, err)
	}
}

// TestRotation: while both secrets stand in the file a receiver may have either.
func TestRotation(t *testing.T) {
	l := newLedger()
	in := newInbox(t, nil) // has the secret of k
	x := named(t, "here", in.url)
	if err := os.WriteFile(x.secrets.path, []byte(shared("n", 32)+"\n"+shared("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	x.secrets.looked = time.Time{}
	w, log := newWorker(l, x)
	l.add("")
	start(t, w)
	l.wait(t, "delivery", func() bool { return l.in("here", domain.CallbackDone) == 1 })
	r := in.requests()[0]
	if !r.good || strings.Count(r.header.Get("webhook-signature"), "v1,") != 2 {
		t.Errorf("signatures %q, good %t", r.header.Get("webhook-signature"), r.good)
	}
	if !strings.Contains(log.String(), "callback secrets were read again") {
		t.Errorf("the change is not told: %s", log)
	}
}

// TestOneWorks: a second replica waits until the first is gone.
func TestOneWorks(t *testing.T) {
	l := newLedger()
	in := newInbox(t, nil)
	a, _ := newWorker(l, named(t, "here", in.url))
	b, _ := newWorker(l, named(t, "here", in.url))
	stopA := start(t, a)
	l.add("")
	l.wait(t, "delivery", func() bool { return l.in("here", domain.CallbackDone) == 1 })
	start(t, b)
	l.add("")
	l.wait(t, "second delivery", func() bool { return l.in("here", domain.CallbackDone) == 2 })
	if s, err := b.Status(t.Context()); err != nil || s.Leading {
		t.Errorf("both replicas deliver: %+v, %v", s, err)
	}
	stopA()
	l.add("")
	l.wait(t, "third delivery", func() bool { return l.in("here", domain.CallbackDone) == 3 })
	if n := len(in.requests()); n != 3 {
		t.Errorf("%d requests for 3 results", n)
	}
}
