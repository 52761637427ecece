package postgres

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
)

// Options tune a Store. The zero value takes the defaults.
type Options struct {
	// DirectAppends is how many appends may be in flight at once before further
	// ones are gathered into batches. Default 2; negative: all are gathered.
	DirectAppends int
	// Writers is how many batches may be in flight at once. Default 2.
	Writers int
	// MaxBatch is how many appends a batch holds at most. Default 256.
	MaxBatch int
	// LockTimeout bounds the wait for a row lock. It must stay well below the 5 s
	// that an append's clock may be off. Default 2 s.
	LockTimeout time.Duration
	// Timeout bounds one append or batch, whatever its callers' contexts say.
	// Default 10 s.
	Timeout time.Duration
	// OnAppend is called after an append of this store was committed, with its
	// events, before Append returns. It must not block.
	OnAppend func(events []eventstore.Event)
}

func (o Options) withDefaults() Options {
	if o.DirectAppends == 0 {
		o.DirectAppends = 2
	}
	if o.Writers <= 0 {
		o.Writers = 2
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = 256
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	return o
}

// Store implements eventstore.Store and eventstore.Feed on a migrated database.
type Store struct {
	pool   *pgxpool.Pool
	tables []eventstore.Table
	index  map[string]int // table name to its place in tables
	opts   Options
	shapes sync.Map // shape, as text, to the append statement of that shape

	alwaysMany bool // one append, too, takes the statement for many; for tests

	inflight atomic.Int64   // appends that are running or queued
	running  sync.WaitGroup // appends and writers that Close waits for
	queue    queue

	wakersMu sync.Mutex
	wakers   []func()
}

var (
	_ eventstore.Store = (*Store)(nil)
	_ eventstore.Feed  = (*Store)(nil)
)

// ErrClosed is returned by appends after Close.
var ErrClosed = fmt.Errorf("%w: the event store is closing", eventstore.ErrUnavailable)

// Open returns a store on the pool. The tables are those that Append's rows may
// name, in the order in which they are written. The pool stays the caller's,
// who closes it after the store.
func Open(pool *pgxpool.Pool, tables []eventstore.Table, opts Options) *Store {
	s := &Store{pool: pool, tables: tables, index: make(map[string]int, len(tables)), opts: opts.withDefaults()}
	for i, t := range tables {
		s.index[t.Name] = i
	}
	s.queue.busy = make(map[eventstore.StreamID]struct{})
	return s
}

// Close refuses new appends and waits until all that were taken on have ended.
// Reads go on as long as the pool does.
func (s *Store) Close() {
	s.queue.mu.Lock()
	s.queue.closed = true
	s.queue.mu.Unlock()
	s.running.Wait()
}

// begin counts an append in; false after Close.
func (s *Store) begin() bool {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if s.queue.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// onCommit registers a function that is called after every commit of an append.
func (s *Store) onCommit(wake func()) {
	s.wakersMu.Lock()
	defer s.wakersMu.Unlock()
	s.wakers = append(s.wakers, wake)
}

func (s *Store) committed(events []eventstore.Event) {
	s.wakersMu.Lock()
	wakers := s.wakers
	s.wakersMu.Unlock()
	for _, wake := range wakers {
		wake()
	}
	if s.opts.OnAppend != nil {
		s.opts.OnAppend(events)
	}
}

// unavailable marks an error as one of the database.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%s: %w", doing, errors.Join(eventstore.ErrUnavailable, err))
}
