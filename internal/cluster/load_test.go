package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// callTime bounds one call: a replica that is stopped takes a request and says nothing.
const callTime = 4 * time.Second

// story is what the callers of one job saw. Its parts are guarded by mu until the
// load has ended.
type story struct {
	job job
	mu  sync.Mutex
	// The answers to the submit and its repetitions.
	receipts []wire.Receipt
	cancels  []cancelled
	reads    []read
	results  [][]byte
	followed *bytes.Buffer // stdout as it came; nil where nobody followed, or not to its end
}

// cancelled is one cancel that was acknowledged.
type cancelled struct {
	key          domain.CommandID
	answer       wire.Attempt
	asked, acked time.Time
}

// read is one read of an attempt, which happened between its times.
type read struct {
	asked, answered time.Time
	attempt         wire.Attempt
	missing         bool // 404
}

// load is all callers.
type load struct {
	w       *world
	clients []*client.Client // of each replica; the last one's way is balanced
	stories []*story
	feed    *feedReader
	work    sync.WaitGroup
	mu      sync.Mutex
	answers map[string]int // how often each kind of indefinite answer came
}

func (w *world) startLoad() *load {
	l := &load{w: w, answers: map[string]int{}}
	for _, r := range w.replicas {
		l.clients = append(l.clients, w.client("http://"+r.address))
	}
	l.clients = append(l.clients, w.client("http://"+w.front.address()))
	for _, j := range w.plan.Jobs {
		s := &story{job: j}
		l.stories = append(l.stories, s)
		l.work.Go(func() { l.tell(s) })
	}
	l.feed = newFeedReader(w)
	return l
}

// insist repeats a call at any replica until its answer is definite.
func (l *load) insist(what string, call func(ctx context.Context, c *client.Client) error) error {
	for l.w.ctx.Err() == nil {
		err := l.once(call)
		if err == nil || definite(err) {
			return err
		}
		l.note(err)
		l.w.sleep(50*time.Millisecond + rand.N(150*time.Millisecond))
	}
	return fmt.Errorf("%s: no definite answer until the end of the run", what)
}

func (l *load) once(call func(ctx context.Context, c *client.Client) error) error {
	ctx, cancel := context.WithTimeout(l.w.ctx, callTime)
	defer cancel()
	return call(ctx, l.clients[rand.IntN(len(l.clients))])
}

// definite reports whether the service itself refused.
func definite(err error) bool {
	var p *client.ProblemError
	if !errors.As(err, &p) {
		return false
	}
	switch p.Kind() {
	case domain.KindUnavailable, domain.KindOverloaded:
		return false
	}
	return true
}

// note counts an answer that says nothing.
func (l *load) note(err error) {
	kind := "no answer"
	var p *client.ProblemError
	switch {
	case errors.As(err, &p):
		kind = fmt.Sprintf("%d %s", p.Problem.Status, p.Problem.Code)
	case errors.Is(err, context.DeadlineExceeded):
		kind = "no answer in time"
	}
	l.mu.Lock()
	l.answers[kind]++
	l.mu.Unlock()
}

// tell is the whole story of a job.
func (l *load) tell(s *story) {
	w := l.w
	if !w.sleep(time.Until(w.began.Add(s.job.At))) {
		return
	}
	var others sync.WaitGroup
	submitted := make(chan struct{})
	for _, after := range s.job.Cancels {
		others.Go(func() {
			// Some come while the submit is still under way.
			if after > time.Second {
				<-submitted
			}
			if w.sleep(after) {
				l.cancel(s)
			}
		})
	}
	taken := l.submit(s)
	close(submitted)
	if !taken {
		return
	}
	if s.job.Follow != "" {
		others.Go(func() { l.follow(s) })
	}
	l.watch(s)
	l.fetch(s)
	others.Wait()
}

func (l *load) submit(s *story) bool {
	// Repeated from time to time though it was answered: one command has one effect.
	for range 1 + rand.IntN(2) {
		err := l.insist("submit", func(ctx context.Context, c *client.Client) error {
			r, _, err := c.SubmitSpec(ctx, s.job.spec())
			if err == nil {
				s.mu.Lock()
				s.receipts = append(s.receipts, r)
				s.mu.Unlock()
			}
			return err
		})
		if err != nil {
			l.w.wrong.add("submit of %s: %v", s.job.ID, err)
			return false
		}
	}
	return true
}

func (l *load) cancel(s *story) {
	c := cancelled{key: domain.NewID[domain.CommandID](uuid.New()), asked: time.Now()}
	err := l.insist("cancel", func(ctx context.Context, cl *client.Client) (err error) {
		c.answer, err = cl.Cancel(ctx, c.key, s.job.attempt(), "the plan wants it")
		if client.IsNotFound(err) {
			return fmt.Errorf("not submitted yet: %w", errAgain)
		}
		return err
	})
	if err != nil {
		l.w.wrong.add("cancel of %s: %v", s.job.ID, err)
		return
	}
	c.acked = time.Now()
	s.mu.Lock()
	s.cancels = append(s.cancels, c)
	s.mu.Unlock()
}

var errAgain = errors.New("again")

// watch reads the attempt now and then, anywhere, until it has ended.
func (l *load) watch(s *story) {
	for l.w.ctx.Err() == nil {
		r := read{asked: time.Now()}
		err := l.once(func(ctx context.Context, c *client.Client) (err error) {
			r.attempt, err = c.Attempt(ctx, s.job.attempt())
			return err
		})
		r.answered, r.missing = time.Now(), client.IsNotFound(err)
		switch {
		case err == nil || r.missing:
			s.mu.Lock()
			s.reads = append(s.reads, r)
			s.mu.Unlock()
			if r.attempt.FinishedAt != nil && final(r.attempt.State) {
				return
			}
		case definite(err):
			l.w.wrong.add("read of %s: %v", s.job.ID, err)
		default:
			l.note(err)
		}
		l.w.sleep(100*time.Millisecond + rand.N(500*time.Millisecond))
	}
}

func final(state string) bool {
	switch state {
	case "succeeded", "failed", "cancelled", "timed_out":
		return true
	}
	return false
}

// fetch gets the result more than once.
func (l *load) fetch(s *story) {
	for range 2 {
		err := l.insist("result", func(ctx context.Context, c *client.Client) error {
			raw, pending, err := c.Result(ctx, s.job.attempt(), time.Second)
			if err == nil && pending != nil {
				return fmt.Errorf("it has ended and its result is pending: %w", errAgain)
			}
			if err == nil {
				s.mu.Lock()
				s.results = append(s.results, raw)
				s.mu.Unlock()
			}
			return err
		})
		if err != nil {
			l.w.wrong.add("result of %s: %v", s.job.ID, err)
		}
	}
}

// follow reads stdout by offset while it grows, whatever breaks meanwhile.
func (l *load) follow(s *story) {
	var got bytes.Buffer
	if s.job.Follow == "tail" {
		tail := l.clients[len(l.clients)-1].TailLog(l.w.ctx, s.job.attempt(), "stdout", 0)
		defer tail.Close()
		for {
			b, err := tail.Next()
			got.Write(b)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				l.w.wrong.add("tail of %s after %d bytes: %v", s.job.ID, got.Len(), err)
				return
			}
		}
	}
	for done := s.job.Follow == "tail"; !done; {
		err := l.insist("log", func(ctx context.Context, c *client.Client) error {
			part, err := c.Log(ctx, s.job.attempt(), "stdout", int64(got.Len()), 16<<10)
			if err == nil {
				got.Write(part.Data)
				done = part.Complete && len(part.Data) == 0
			}
			return err
		})
		if err != nil {
			l.w.wrong.add("log of %s from %d: %v", s.job.ID, got.Len(), err)
			return
		}
		if !done {
			l.w.sleep(50*time.Millisecond + rand.N(200*time.Millisecond))
		}
	}
	s.mu.Lock()
	s.followed = &got
	s.mu.Unlock()
}

// settle waits until every story has ended.
func (l *load) settle(limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.work.Wait()
	}()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		select {
		case <-done:
			return true
		case <-time.After(superviseEvery):
			l.w.supervise()
		}
	}
	return false
}

// feedReader follows all events through everything that breaks.
type feedReader struct {
	w      *world
	cancel context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	events []wire.Event
}

func newFeedReader(w *world) *feedReader {
	ctx, cancel := context.WithCancel(w.ctx)
	f := &feedReader{w: w, cancel: cancel, done: make(chan struct{})}
	c, err := client.New(client.Config{BaseURL: "http://" + w.front.address(), Token: w.operator})
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		defer c.CloseIdle()
		tail := c.TailEvents(ctx, "")
		defer tail.Close()
		for {
			e, err := tail.Next()
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				w.wrong.add("the feed after %d events: %v", len(f.events), err)
				return
			}
			f.mu.Lock()
			f.events = append(f.events, e)
			f.mu.Unlock()
		}
	}()
	return f
}

func (f *feedReader) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events)
}

func (f *feedReader) stop() {
	f.cancel()
	<-f.done
}
