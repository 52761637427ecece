package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

func benchStore(b *testing.B, opts postgres.Options) (*postgres.Store, *pgxpool.Pool) {
	b.Helper()
	pool := pgtest.NewPool(b)
	if _, err := pool.Exec(b.Context(), storetest.TablesDDL); err != nil {
		b.Fatal(err)
	}
	s := postgres.Open(pool, storetest.Tables(), opts)
	b.Cleanup(s.Close)
	return s, pool
}

// prepared makes n appends of one event to streams of their own, with a row.
func prepared(b *testing.B, s *postgres.Store, round, n int) []eventstore.Append {
	b.Helper()
	l, err := s.Load(b.Context(), "bench/none", uuid.New())
	if err != nil {
		b.Fatal(err)
	}
	out := make([]eventstore.Append, n)
	for i := range out {
		stream := eventstore.StreamID(fmt.Sprintf("bench/%06d/%06d", round, i))
		out[i] = storetest.Command(l, stream, uuid.New(), 1)
		out[i].Rows = []eventstore.Change{{Table: "suite_status", Row: fmt.Appendf(nil, `{"id":%q,"status":"s","n":1,"at":null}`, stream)}}
	}
	return out
}

// BenchmarkBatch stores batches of a size; ns/append is per append.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s, _ := benchStore(b, postgres.Options{})
			round := 0
			for b.Loop() {
				b.StopTimer()
				round++
				batch := prepared(b, s, round, size)
				b.StartTimer()
				results, err := s.AppendBatch(batch)
				if err != nil {
					b.Fatal(err)
				}
				for _, err := range results {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/append")
		})
	}
}

// BenchmarkCommand runs whole commands, load and append, from many callers.
func BenchmarkCommand(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			s, _ := benchStore(b, postgres.Options{})
			var next atomic.Int64
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				stream := eventstore.StreamID(fmt.Sprintf("bench/%d", next.Add(1)))
				for pb.Next() {
					if _, err := storetest.Do(b.Context(), s, stream, 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
