package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/eventstore/storetest"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

// TestServerCrash kills the database under writers, twice. Each repeats its
// command under the same id until it is answered, as a client does. Every
// command takes effect once, what was acknowledged is there, and the feed goes
// on by itself over the positions that the crash burnt.
func TestServerCrash(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t)
	pool := server.NewPool()
	if _, err := pool.Exec(t.Context(), storetest.TablesDDL); err != nil {
		t.Fatal(err)
	}
	s := postgres.Open(pool, storetest.Tables(), postgres.Options{DirectAppends: 2})
	t.Cleanup(s.Close)
	run(t, s, "q", postgres.SequencerOptions{TTL: 300 * time.Millisecond})

	const writers, commands = 6, 40
	var answered, indefinite atomic.Int64
	half := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			stream := eventstore.StreamID(fmt.Sprintf("crash/%d", w))
			for range commands {
				if err := insist(t, s, stream, uuid.New(), &indefinite); err != nil {
					t.Error(err)
					return
				}
				if n := answered.Add(1); n == writers*commands/3 || n == writers*commands*2/3 {
					half <- struct{}{}
				}
			}
		})
	}
	for range 2 {
		<-half
		server.Kill()
		server.Restart()
	}
	wg.Wait()
	waitFeed(t, s, 2*writers*commands)
	storetest.CheckFeed(t, s, 2*writers*commands)
	if indefinite.Load() == 0 {
		t.Error("no append noticed the crash: the test shows nothing")
	}
}

// insist runs one command until it is known to have taken effect.
func insist(t *testing.T, s *postgres.Store, stream eventstore.StreamID, command uuid.UUID, indefinite *atomic.Int64) error {
	deadline := time.Now().Add(time.Minute)
	for {
		l, err := s.Load(t.Context(), stream, command)
		if err == nil && l.Done != nil {
			return nil
		}
		if err == nil {
			_, err = s.Append(t.Context(), storetest.Command(l, stream, command, 2))
		}
		var c *eventstore.ConflictError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &c):
		case !errors.Is(err, eventstore.ErrUnavailable):
			return fmt.Errorf("%s: %w, want ErrUnavailable while the database is gone", stream, err)
		case time.Now().After(deadline):
			return fmt.Errorf("%s: %w, for a minute", stream, err)
		default:
			indefinite.Add(1)
		}
	}
}
