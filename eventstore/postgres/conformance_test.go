package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name      string
		isolation string // of the sessions, as a database may have it by default
		opts      postgres.Options
		open      func(*pgxpool.Pool, []eventstore.Table, postgres.Options) *postgres.Store
	}{
		{"alone", "read committed", postgres.Options{DirectAppends: 1000}, postgres.Open},
		// Nearly every append of the suite is a batch of one: it takes the statement for many all the same.
		{"gathered", "read committed", postgres.Options{DirectAppends: -1, Writers: 1}, postgres.OpenMany},
		// Here clashes come as serialization failures.
		{"two by two", "repeatable read", postgres.Options{DirectAppends: 2, Writers: 2, MaxBatch: 2}, postgres.Open},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) storetest.Harness { return harness(t, c.isolation, c.opts, c.open) })
		})
	}
}

func harness(t *testing.T, isolation string, opts postgres.Options,
	open func(*pgxpool.Pool, []eventstore.Table, postgres.Options) *postgres.Store) storetest.Harness {
	pool := pgtest.NewPool(t)
	if _, err := pool.Exec(t.Context(), storetest.TablesDDL); err != nil {
		t.Fatal(err)
	}
	var faults faults
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
	cfg.ConnConfig.DialFunc = faults.dial(cfg.ConnConfig.DialFunc)
	faulty, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(faulty.Close)
	store, replica := open(faulty, storetest.Tables(), opts), open(pool, storetest.Tables(), opts)
	t.Cleanup(store.Close)
	t.Cleanup(replica.Close)
	return storetest.Harness{
		Store: store, Replica: replica, Feed: replica,
		Settle: func(ctx context.Context) error { return settle(ctx, replica) },
		Rows: func(ctx context.Context, table string) (map[string]map[string]any, error) {
			return rowsOf(ctx, pool, table)
		},
		FailNext: faults.failNext,
	}
}

// settle ticks until a tick finds nothing.
func settle(ctx context.Context, s *postgres.Store) error {
	term, ok, err := s.AcquireLease(ctx, postgres.SequencerLease, "settle", time.Minute)
	if err != nil || !ok {
		return fmt.Errorf("acquire the sequencer's lease: %v %w", ok, err)
	}
	q := postgres.NewSequencer(s, "settle", postgres.SequencerOptions{})
	for {
		fed, err := q.Step(ctx, term)
		if err != nil {
			return err
		}
		if fed == 0 {
			return s.ReleaseLease(ctx, postgres.SequencerLease, "settle", term)
		}
	}
}

func rowsOf(ctx context.Context, pool *pgxpool.Pool, table string) (map[string]map[string]any, error) {
	rows, err := pool.Query(ctx, "SELECT * FROM "+pgx.Identifier{table}.Sanitize())
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for _, r := range list {
		key := fmt.Sprint(r["id"])
		if table == "suite_lease" {
			key = fmt.Sprint(r["pool"], "/", r["slot"])
		}
		out[key] = r
	}
	return out, nil
}

// faults breaks the connection that carries the next append: before the server
// hears of it, or after the server has answered.
type faults struct{ before, after atomic.Bool }

func (f *faults) failNext(persisted bool) {
	f.before.Store(!persisted)
	f.after.Store(persisted)
}

func (f *faults) dial(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &faultyConn{Conn: c, faults: f}, nil
	}
}

type faultyConn struct {
	net.Conn
	faults *faults
	cut    atomic.Bool
}

var errCut = errors.New("connection cut by the test")

// Write knows an append by the type of its events, which only its arguments hold.
func (c *faultyConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("suite.happened")) {
		if c.faults.before.CompareAndSwap(true, false) {
			_ = c.Conn.Close()
			return 0, errCut
		}
		if c.faults.after.CompareAndSwap(true, false) {
			c.cut.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	if !c.cut.Load() {
		return c.Conn.Read(b)
	}
	// The answer to a whole pipeline ends with ReadyForQuery, idle.
	var answer []byte
	for buf := make([]byte, 4096); !bytes.HasSuffix(answer, []byte{'Z', 0, 0, 0, 5, 'I'}); {
		n, err := c.Conn.Read(buf)
		answer = append(answer, buf[:n]...)
		if err != nil {
			return 0, errors.Join(errCut, err)
		}
	}
	_ = c.Conn.Close()
	return 0, errors.Join(errCut, io.ErrUnexpectedEOF)
}
