package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/internal/pgembed"
	"github.com/platform-core/execution-plane-service/migrations"
)

// size says how long and how often is measured.
type size struct {
	rounds  int           // pairs of each figure
	window  time.Duration // of one measurement of a rate
	samples int           // of one measurement of a latency
	jobs    int           // of one measurement of whole jobs
	held    int           // requests that wait
	long    int           // versions of the long stream
	streams int           // attempts in the ledger that is verified
	logSize int           // bytes of log
	deliver delivery
	tiny    bool
}

// delivery is how much is published and delivered.
type delivery struct {
	events    int           // published in one measurement
	stock     int           // of them by the stock path, which is slow
	backlogs  []int         // events in the ledger, the least first
	first     int           // of a backlog, how many are published
	rate      int           // events a second while latencies are measured
	lasting   time.Duration // of one measurement of latencies
	results   int           // that wait to be delivered
	perSecond int           // attempts that end while latencies of calls are measured
}

func full() size {
	return size{rounds: 5, window: time.Second, samples: 200, jobs: 400, held: 1000, long: 100_000, streams: 5000, logSize: 64 << 20,
		deliver: delivery{events: 20_000, stock: 1500, backlogs: []int{10_000, 100_000, 400_000}, first: 5000,
			rate: 500, lasting: 30 * time.Second, results: 2000, perSecond: 40}}
}

func smoke() size {
	return size{rounds: 1, window: 40 * time.Millisecond, samples: 5, jobs: 16, held: 20, long: 300, streams: 40, logSize: 2 << 20, tiny: true,
		deliver: delivery{events: 300, stock: 30, backlogs: []int{300, 600}, first: 200, rate: 200, lasting: 300 * time.Millisecond, results: 40, perSecond: 40}}
}

// bench is one run on one server.
type bench struct {
	size
	server   *pgembed.Server
	admin    *pgxpool.Pool
	fsync    bool
	part     string
	made     int
	broker   *broker // nil until a part needs it
	report   *report
	progress func(string)
}

// settings make one measurement like the next: no checkpoint falls into one of a
// pair, and a commit is a commit, whether or not the disk is waited for.
func settings() map[string]string {
	return map[string]string{
		"max_wal_size": "8GB", "checkpoint_timeout": "1h", "synchronous_commit": "on", "max_connections": "300",
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none",
	}
}

const template = "bench_template"

// measure runs the parts on one server for each mode.
func measure(ctx context.Context, parts []part, fsync []bool, s size, progress func(string)) (*report, error) {
	r := newReport(s)
	for i, mode := range fsync {
		if err := measureOn(ctx, parts, mode, i > 0, s, r, progress); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func measureOn(ctx context.Context, parts []part, fsync, again bool, s size, r *report, progress func(string)) (err error) {
	server, err := pgembed.Start(ctx, pgembed.Options{Fsync: fsync, Settings: settings(), NoDownload: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	b := &bench{size: s, server: server, fsync: fsync, report: r, progress: progress}
	defer func() { err = errors.Join(err, b.broker.end()) }()
	if b.admin, err = pgxpool.New(ctx, server.URL); err != nil {
		return fmt.Errorf("open the server: %w", err)
	}
	defer b.admin.Close()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if p.once && again {
			continue
		}
		b.part = p.name
		progress(fmt.Sprintf("%s (fsync %s): %s", p.name, onOff(fsync), p.what))
		if err := p.run(ctx, b); err != nil {
			return fmt.Errorf("%s (fsync %s): %w", p.name, onOff(fsync), err)
		}
	}
	return nil
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// prepare makes the migrated database that the others are copies of.
func (b *bench) prepare(ctx context.Context) error {
	if _, err := b.admin.Exec(ctx, "CREATE DATABASE "+template); err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	pool, err := pgxpool.New(ctx, b.server.DatabaseURL(template))
	if err != nil {
		return fmt.Errorf("open the template: %w", err)
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	return b.report.about(ctx, b.admin, b.fsync)
}

// database makes a migrated, empty database; drop ends it.
func (b *bench) database(ctx context.Context) (databaseURL string, drop func(), err error) {
	return b.copyOf(ctx, template)
}

// copyOf makes a copy of a database that nobody is connected to.
func (b *bench) copyOf(ctx context.Context, of string) (databaseURL string, drop func(), err error) {
	b.made++
	name := fmt.Sprintf("bench_%d", b.made)
	if _, err := b.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+of); err != nil {
		return "", nil, fmt.Errorf("make a database: %w", err)
	}
	return b.server.DatabaseURL(name), func() {
		// The server is thrown away as a whole; this only frees its disk earlier.
		_, _ = b.admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// pool makes a database and opens it with some connections; done closes both.
func (b *bench) pool(ctx context.Context, conns int) (pool *pgxpool.Pool, done func(), err error) {
	u, drop, err := b.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	pool, err = openPool(ctx, u, conns)
	if err != nil {
		drop()
		return nil, nil, err
	}
	return pool, func() { pool.Close(); drop() }, nil
}

func openPool(ctx context.Context, databaseURL string, conns int) (*pgxpool.Pool, error) {
	if _, err := url.Parse(databaseURL); err != nil {
		return nil, err
	}
	c, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(conns)
	return pgxpool.NewWithConfig(ctx, c)
}

// warm is how long a measurement runs before it counts.
func (b *bench) warm() time.Duration { return b.window / 5 }

// rate runs do from some clients at once and returns how often per second it was
// done within the window. n numbers the calls.
func (b *bench) rate(ctx context.Context, clients int, do func(ctx context.Context, client int, n int64) error) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls, done atomic.Int64
	var counting atomic.Bool
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(ctx, c, calls.Add(1)); err != nil {
					cancel(err)
					return
				}
				if counting.Load() {
					done.Add(1)
				}
			}
		})
	}
	wait(ctx, b.warm())
	counting.Store(true)
	began := time.Now()
	wait(ctx, b.window)
	for done.Load() == 0 && ctx.Err() == nil {
		wait(ctx, b.window) // a slow machine and a short window
	}
	counting.Store(false)
	took := time.Since(began)
	close(stop)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return float64(done.Load()) / took.Seconds(), nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// taker takes one measurement.
type taker func(ctx context.Context) (float64, error)

// compare takes ours and the peer's in turns and adds the figure. Both have run
// once before the first pair counts.
func (b *bench) compare(ctx context.Context, f figure, ours, peer taker) error {
	if !b.tiny {
		for _, t := range []taker{ours, peer} {
			if _, err := t(ctx); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
	}
	for range b.rounds {
		a, err := ours(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		p, err := peer(ctx)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.Name, f.PeerName, err)
		}
		f.ours, f.peers = append(f.ours, a), append(f.peers, p)
	}
	b.add(f)
	return nil
}

func (b *bench) add(f figure) {
	f.Part, f.Fsync = b.part, onOff(b.fsync)
	f.finish()
	b.report.Figures = append(b.report.Figures, f)
	b.progress("  " + f.line())
}

// median and percentile sort their argument.
func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n > 0 && n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return percentile(v, 0.5)
}

func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, int(p*float64(len(v))))]
}
