package callbacks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// storeResults writes what the reader of results would have written.
func storeResults(t *testing.T, pool *pgxpool.Pool, from, n int) {
	t.Helper()
	for i := range n {
		id := uuid.New()
		body := fmt.Appendf(nil, `{"attempt_id":%q,"status":"succeeded","contract":[]}`, id)
		sum := sha256.Sum256(body)
		_, err := pool.Exec(t.Context(), `INSERT INTO results (seq, generation, attempt_id, job_type, environment, sha256, body, ended_at)
			VALUES ($1, 1, $2, 'verification', 'dev', $3, $4, clock_timestamp())`, from+i, id, hex.EncodeToString(sum[:]), body)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOnPostgres delivers from the real ledger: what was scheduled, tried and
// delivered stands there, over a change of the leader too.
func TestOnPostgres(t *testing.T) {
	pool := pgtest.NewPool(t)
	store := postgres.Open(pool, projections.WrittenTables(), postgres.Options{})
	t.Cleanup(store.Close)
	reads := projections.NewReader(pool)
	service := commands.New(commands.Config{Store: store, Index: commands.NewIndex(reads), Policy: policy.BuiltinDev, Actions: runners.Catalogue(),
		Profile: domain.FastProfile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/"})
	in := newInbox(t, nil)
	gone := newInbox(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	living, dead := named(t, "living", in.url), named(t, "dead", gone.url)
	replica := func() *Worker {
		w, _ := newWorker(newLedger(), living, dead)
		w.Commands, w.Reads, w.Leases, w.Woken = service, reads, store, nil
		return w
	}
	const n = 150
	delivered := func(want int) {
		t.Helper()
		limit := time.Now().Add(60 * time.Second)
		for {
			done, err := reads.Callbacks(t.Context(), projections.CallbackFilter{Endpoint: "living", State: "delivered", Limit: 10 * n})
			if err != nil {
				t.Fatal(err)
			}
			if len(done) >= want {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("%d of %d delivered", len(done), want)
			}
			pause(t.Context(), 20*time.Millisecond, nil)
		}
	}
	storeResults(t, pool, 1, n)
	began := time.Now()
	stop := start(t, replica())
	delivered(n)
	t.Logf("%.0f deliveries/s, scheduling included", n/time.Since(began).Seconds())
	stop()
	storeResults(t, pool, n+1, 10)
	start(t, replica())
	delivered(n + 10)
	seen := map[string]int{}
	for _, r := range in.requests() {
		if !r.good {
			t.Fatalf("a signature does not verify: %v", r.header)
		}
		seen[r.header.Get("webhook-id")]++
	}
	// A leader that ends may leave some calls without a record; they are made again.
	if len(seen) != n+10 || len(in.requests()) > n+10+living.parallelism {
		t.Errorf("%d results in %d calls", len(seen), len(in.requests()))
	}
	stopped, err := reads.StoppedEndpoints(context.Background())
	if err != nil || len(stopped) != 1 || stopped[0].Endpoint != "dead" || stopped[0].Cause != domain.EndpointGone {
		t.Errorf("stopped endpoints %+v, %v", stopped, err)
	}
	if got := len(gone.requests()); got > dead.parallelism {
		t.Errorf("%d calls to an endpoint that answers 410", got)
	}
}
