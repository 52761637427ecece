package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/runners"
)

// Config is what the API is made of.
type Config struct {
	Commands Commands
	Dispatch Dispatch
	Intake   Intake
	Inputs   Inputs
	Packages Packages
	Logs     Logs
	// Followers, if not nil, makes runners send sooner what somebody follows.
	Followers Followers
	Reads     Reads
	Streams   Streams
	Feed      eventstore.Feed
	Policies  Policies
	Health    Health
	// PolicyReplaced, if not nil, makes this replica decide with the bundle that the
	// ledger calls the active one.
	PolicyReplaced func(ctx context.Context) error
	// Endpoints, Deliveries and Forwarder may be nil, each by itself: this replica was
	// told of none, does not deliver, does not publish.
	Endpoints  Endpoints
	Deliveries Deliveries
	Forwarder  Forwarder
	Actions    *runners.Catalog
	Metrics    *Metrics
	Profile    domain.Profile
	Log        *slog.Logger // nil: nothing is logged

	// WaitResult blocks until a result may stand behind a place in the feed, or ctx
	// ends; a wake is a hint. nil: a held request looks every PollEvery.
	// Wait of the *catchup.Runner of results is the one there is.
	WaitResult func(ctx context.Context, after int64) error

	// FlushEvery is how often agents are told to send log; 0 for 2 s.
	FlushEvery time.Duration
	// PollEvery is how often a followed feed or stream of events looks for more; 0
	// for 500 ms.
	PollEvery time.Duration
	// LogPollEvery is how often a followed log looks for what no wake told; 0 for 5 s.
	LogPollEvery time.Duration
	// RequestTimeout bounds a request that is not held; 0 for 30 s.
	RequestTimeout time.Duration
	// MaxHeld is how many requests may be held at once before more are answered
	// 429; 0 for 10,000.
	MaxHeld int
	// Now is the clock of token expiry; nil for time.Now.
	Now func() time.Time
}

// API is the HTTP handler of all routes. Safe for concurrent use.
type API struct {
	server  *server
	handler http.Handler
}

type server struct {
	Config
	now    func() time.Time
	tokens *tokenCache
	held   atomic.Int64
	// uploads has a place for each body that is read while it comes.
	uploads chan struct{}
	drain   chan struct{} // closed by Drain
	once    sync.Once
}

// New makes the handler. Nothing is started: held requests end with their
// clients, or with Drain.
func New(c Config) *API {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	orDuration := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	orDuration(&c.FlushEvery, 2*time.Second)
	orDuration(&c.PollEvery, 500*time.Millisecond)
	orDuration(&c.LogPollEvery, 5*time.Second)
	orDuration(&c.RequestTimeout, 30*time.Second)
	if c.MaxHeld <= 0 {
		c.MaxHeld = 10_000
	}
	s := &server{Config: c, now: c.Now, drain: make(chan struct{}), uploads: make(chan struct{}, maxUploads)}
	if s.now == nil {
		s.now = time.Now
	}
	s.tokens = &tokenCache{read: c.Reads.Token, now: time.Now, kept: map[domain.TokenID]keptToken{}}
	return &API{server: s, handler: newRouter(s)}
}

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Drain ends the requests that are held or followed, so that a shutdown need not
// wait for them. Other requests are still served.
func (a *API) Drain() { a.server.once.Do(func() { close(a.server.drain) }) }

// Server returns an HTTP server with the API's limits; the caller sets Addr or
// brings a listener. Its Shutdown drains first.
func (a *API) Server() *http.Server {
	srv := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(a.server.Log.Handler(), slog.LevelWarn),
		// Bodies and answers have deadlines of their own for each request (see
		// serve): one for the whole server would cut held requests off.
	}
	srv.RegisterOnShutdown(a.Drain)
	return srv
}

var errTooManyHeld = &domain.Error{Kind: domain.KindOverloaded, Code: "too_many_held", Message: "too many requests wait at present",
	Next: "ask again after the time in Retry-After, or without wait"}

// hold counts a request that waits, and gives it a context that ends with Drain.
func (s *server) hold(ctx context.Context) (context.Context, func(), error) {
	if s.held.Add(1) > int64(s.MaxHeld) {
		s.held.Add(-1)
		return ctx, nil, errTooManyHeld
	}
	s.Metrics.held.Inc()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		select {
		case <-s.drain:
			cancel()
		case <-ended:
		}
	}()
	return ctx, func() {
		close(ended)
		cancel()
		s.held.Add(-1)
		s.Metrics.held.Dec()
	}, nil
}

// drained says that a held request ends because the service does, and not its
// caller: it is answered as if its time were up.
func drained(q *request, err error) bool {
	return errors.Is(err, context.Canceled) && q.Context().Err() == nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
