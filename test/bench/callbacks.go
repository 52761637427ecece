package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

// What calls are to reach, and how much a dead endpoint may add to the worst of a
// living one.
const (
	callsAim = 300
	deadAim  = 1.1
	// callers is how many calls an endpoint gets at once by default.
	callers = 8
)

const (
	livingName = "living"
	otherName  = "other"
)

// callingBack measures calls out of a backlog of results, beside bare posts of the
// same bytes to the same receiver; and the time from the end of an attempt until the
// receiver has its result, with and without a second endpoint that is dead.
func callingBack(ctx context.Context, b *bench) error {
	if err := b.callRate(ctx); err != nil {
		return err
	}
	return b.besideDead(ctx)
}

// endpoints configures receivers by name, for results that name them.
func endpoints(urls map[string]string) (*callbacks.Endpoints, error) {
	dir, err := os.MkdirTemp("", "execution-plane-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	key := make([]byte, 32)
	rand.Read(key)
	var doc strings.Builder
	doc.WriteString("endpoints:\n")
	for name, url := range urls {
		fmt.Fprintf(&doc, "  - {name: %s, url: %q, secret_file: secret, only_named: true, allow: [loopback], allow_http: true, parallelism: %d}\n", name, url, callers)
	}
	file := filepath.Join(dir, "callbacks.yaml")
	err = errors.Join(os.WriteFile(filepath.Join(dir, "secret"), []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600),
		os.WriteFile(file, []byte(doc.String()), 0o600))
	if err != nil {
		return nil, err
	}
	return callbacks.Load(file)
}

// callRate delivers a backlog of results.
func (b *bench) callRate(ctx context.Context) error {
	waiting, drop, err := b.withResults(ctx)
	if err != nil {
		return err
	}
	defer drop()
	f := figure{Name: fmt.Sprintf("calls out of %d results", b.deliver.results), Unit: "calls/s", PeerName: "bare posts/s"}
	if !b.tiny {
		f.above = callsAim
	}
	return b.compare(ctx, f,
		func(ctx context.Context) (float64, error) { return b.deliverAll(ctx, waiting) },
		func(ctx context.Context) (float64, error) { return barePosts(ctx, b.deliver.results) })
}

// withResults makes a database that has results for the living endpoint, of which
// none is scheduled yet, and leaves it: copies are made of it.
func (b *bench) withResults(ctx context.Context) (name string, drop func(), err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return "", nil, err
	}
	pool, err := openPool(ctx, url, 4)
	if err != nil {
		drop()
		return "", nil, err
	}
	defer pool.Close()
	if err := fillEnded(ctx, pool, b.deliver.results, func(int) string { return livingName }); err != nil {
		drop()
		return "", nil, err
	}
	r := catchup.New(pool, catchup.Results(), catchup.Options{})
	reads := projections.NewReader(pool)
	_, err = measureGrowth(ctx, int64(b.deliver.results*endedEvents), r.Run, func() (int64, error) {
		c, err := reads.Checkpoint(ctx, projections.ResultsReader)
		return c.Seq, err
	})
	if err == nil {
		// Endpoints that are new get nothing of before: these are not new.
		err = reads.BeginCheckpoint(ctx, callbacks.CheckpointName, eventstore.Cursor{})
	}
	if err != nil {
		drop()
		return "", nil, err
	}
	return pool.Config().ConnConfig.Database, drop, nil
}

// deliverAll delivers all results of a copy of that database.
func (b *bench) deliverAll(ctx context.Context, waiting string) (float64, error) {
	url, drop, err := b.copyOf(ctx, waiting)
	if err != nil {
		return 0, err
	}
	defer drop()
	to, err := newReceiver()
	if err != nil {
		return 0, err
	}
	defer to.close()
	list, err := endpoints(map[string]string{livingName: to.url})
	if err != nil {
		return 0, err
	}
	s, err := b.startDelivering(ctx, url, plane.ModuleCallbacks, plane.Delivery{Endpoints: list})
	if err != nil {
		return 0, err
	}
	defer s.done()
	if err := to.await(ctx, b.deliver.results); err != nil {
		return 0, errors.Join(err, s.undelivered(ctx))
	}
	n, rate := to.rate()
	return rate, s.recorded(ctx, n)
}

// undelivered says what became of callbacks that did not come.
func (s *service) undelivered(ctx context.Context) error {
	var text string
	err := s.plane.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM results) || ' results; ' || coalesce(string_agg(state || ' ' || n || ', tries up to ' || tries ||
			', last errors ' || errors || ', next within ' || next, '; '), 'no callbacks')
		FROM (SELECT state, count(*) AS n, max(tries) AS tries, coalesce(string_agg(DISTINCT last_error, ' '), 'none') AS errors,
			coalesce((max(next_at) - clock_timestamp())::text, 'nothing') AS next FROM callbacks GROUP BY state) c`).Scan(&text)
	if err != nil {
		return fmt.Errorf("look at the callbacks: %w", err)
	}
	return errors.New(text)
}

// recorded waits until the ledger has so many callbacks as delivered.
func (s *service) recorded(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var done int
		if err := s.plane.Pool.QueryRow(ctx, "SELECT count(*) FROM callbacks WHERE state = 'delivered'").Scan(&done); err != nil {
			return fmt.Errorf("count what was delivered: %w", err)
		}
		if done == n {
			return nil
		}
		wait(ctx, 10*lookPause)
	}
}

// barePosts posts n bodies of a result's size, as many at once as an endpoint gets.
func barePosts(ctx context.Context, n int) (float64, error) {
	to, err := newReceiver()
	if err != nil {
		return 0, err
	}
	defer to.close()
	transport := &http.Transport{MaxIdleConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("r"), 1200)
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += callers {
				errs[c] = post(ctx, transport, to.url, fmt.Sprint(i), body)
			}
		})
	}
	wg.Wait()
	_, rate := to.rate()
	return rate, errors.Join(errs...)
}

func post(ctx context.Context, transport *http.Transport, url, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(callbacks.HeaderAttempt, id)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("post to the receiver: %w", err)
	}
	return resp.Body.Close()
}

// besideDead compares the living endpoint's times, in turns, with nothing beside it,
// with a second one that lives too, with one that refuses connections, and with one
// that takes them and never answers. Beside another one twice as many attempts end,
// so that what the second one adds to the work can be told from what its death adds.
func (b *bench) besideDead(ctx context.Context) error {
	second, err := newReceiver()
	if err != nil {
		return err
	}
	defer second.close()
	refused, err := refusing()
	if err != nil {
		return err
	}
	mute, done, err := silent()
	if err != nil {
		return err
	}
	defer done()
	others := []struct{ name, url string }{{"nobody", ""}, {"a living one", second.url}, {"one that refuses", refused}, {"one that is silent", mute}}
	half, tail := make([][]float64, len(others)), make([][]float64, len(others))
	for range b.rounds {
		for i, o := range others {
			took, err := b.endings(ctx, o.url)
			if err != nil {
				return fmt.Errorf("beside %s: %w", o.name, err)
			}
			half[i], tail[i] = append(half[i], percentile(took, 0.5)), append(tail[i], percentile(took, 0.99))
		}
	}
	pair := func(i, with int, what string, v [][]float64, atMost float64) {
		f := figure{Name: "end to call beside " + others[i].name + ", " + what, Unit: "ms", PeerName: "ms beside " + others[with].name,
			ours: append([]float64(nil), v[i]...), peers: append([]float64(nil), v[with]...)}
		if !b.tiny {
			f.atMost = atMost
		}
		b.add(f)
	}
	pair(1, 0, "p50", half, 0)
	pair(1, 0, "p99", tail, 0)
	for _, dead := range []int{2, 3} {
		for _, with := range []int{1, 0} {
			pair(dead, with, "p50", half, 0)
			pair(dead, with, "p99", tail, deadAim)
		}
	}
	return nil
}

// endings ends attempts at a steady rate, every one for the living endpoint, and as
// many for the other one if there is one; it returns how many ms each of the former
// took from its commit until the receiver had it.
func (b *bench) endings(ctx context.Context, other string) ([]float64, error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	to, err := newReceiver()
	if err != nil {
		return nil, err
	}
	defer to.close()
	urls := map[string]string{livingName: to.url}
	if other != "" {
		urls[otherName] = other
	}
	list, err := endpoints(urls)
	if err != nil {
		return nil, err
	}
	s, err := b.startDelivering(ctx, url, plane.ModuleCallbacks, plane.Delivery{Endpoints: list})
	if err != nil {
		return nil, err
	}
	defer s.done()
	lasting := b.deliver.lasting / 3
	warm := min(steadyWarm, lasting)
	n, each, began := int((warm+lasting).Seconds()*float64(b.deliver.perSecond)), time.Second/time.Duration(b.deliver.perSecond), time.Now()
	commits := make([]time.Time, n)
	ids := make([]domain.AttemptID, n)
	err = b.each(ctx, min(n, callers), func(c int) error {
		for i := c; i < n; i += min(n, callers) {
			wait(ctx, time.Until(began.Add(time.Duration(i)*each)))
			if other != "" {
				if _, err := endOne(ctx, s.plane.Store, otherName); err != nil {
					return err
				}
			}
			id, err := endOne(ctx, s.plane.Store, livingName)
			if err != nil {
				return err
			}
			ids[i], commits[i] = id, time.Now()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := to.await(ctx, n); err != nil {
		return nil, err
	}
	var out []float64
	for i, at := range commits {
		if at.After(began.Add(warm)) || b.tiny {
			out = append(out, ms(max(0, to.heardAt(ids[i]).Sub(at))))
		}
	}
	return out, nil
}

// endOne appends a whole attempt that ended, and names whom its result goes to.
func endOne(ctx context.Context, store eventstore.Store, endpoint string) (domain.AttemptID, error) {
	id := newAttempt()
	text := specText(id)
	var head eventstore.Head
	var all []domain.Event
	for _, c := range ended(id, endpoint) {
		all = append(all, c...)
	}
	events, err := encoded(all)
	if err != nil {
		return id, err
	}
	_, err = store.Append(ctx, eventstore.Append{Stream: eventstore.StreamID("attempt/" + id.String()), Expected: head.Version, Now: time.Now(), CommandID: newKey().UUID(),
		Actor: serviceActor, Events: events, State: []byte("{}"), StateVersion: domain.AttemptStateVersion, Texts: []eventstore.Text{text}})
	return id, err
}

func (r *receiver) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		got, _ := r.rate()
		if got >= n {
			return nil
		}
		select {
		case <-r.news:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d results came within %s", got, n, patience)
		}
	}
}

func (r *receiver) heardAt(id domain.AttemptID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[id.String()]
}
