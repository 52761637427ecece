package artifacts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// waitingRoom lists attempts that wait to be sealed.
type waitingRoom struct {
	SealReads
	mu      sync.Mutex
	waiting []projections.Sealable // guarded by mu
	tries   map[uuid.UUID]int      // guarded by mu
}

func newWaitingRoom(n int) *waitingRoom {
	w := &waitingRoom{tries: map[uuid.UUID]int{}}
	for range n {
		w.waiting = append(w.waiting, projections.Sealable{AttemptID: uuid.New()})
	}
	return w
}

func (w *waitingRoom) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (w *waitingRoom) SealableAttempts(context.Context, time.Time, *projections.Sealable, int) ([]projections.Sealable, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]projections.Sealable{}, w.waiting...), nil
}

func (w *waitingRoom) tried(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tries[id]++
}

func (w *waitingRoom) allTries() map[uuid.UUID]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.tries)
}

func (w *waitingRoom) leave(id uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, x := range w.waiting {
		if x.AttemptID == id {
			w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
			return
		}
	}
}

func (w *waitingRoom) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)
}

func (w *waitingRoom) sealer(seal func(context.Context, domain.AttemptID) error) *Sealer {
	return &Sealer{Reads: w, Woken: func() <-chan struct{} { return nil }, Log: slog.New(slog.DiscardHandler), instead: seal}
}

// Object storage is away for an hour, refusing or silent. Every attempt is tried
// again and again, not too often; all are sealed soon after it is back.
func TestAnHourWithoutObjectStorage(t *testing.T) {
	for name, answers := range map[string]bool{"it refuses": true, "it is silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 60
				room := newWaitingRoom(n)
				back := time.Now().Add(time.Hour)
				s := room.sealer(func(ctx context.Context, id domain.AttemptID) error {
					room.tried(id.UUID())
					if time.Now().Before(back) {
						if !answers {
							select {
							case <-ctx.Done():
							case <-time.After(stallsAfter):
							}
						}
						return fmt.Errorf("store: %w", objects.ErrUnavailable)
					}
					time.Sleep(50 * time.Millisecond)
					room.leave(id.UUID())
					return nil
				})
				end := runs(t, s)
				time.Sleep(time.Hour - time.Second)
				if room.left() != n || s.Waiting() == 0 {
					t.Errorf("%d of %d wait while it is away, %d are said to", room.left(), n, s.Waiting())
				}
				all := room.allTries()
				for id, tries := range all {
					if tries < 2 || tries > 150 {
						t.Errorf("%s was tried %d times in an hour", id, tries)
					}
				}
				if len(all) != n {
					t.Errorf("%d of %d were tried", len(all), n)
				}
				time.Sleep(time.Minute + lastRetry)
				if room.left() != 0 || s.Waiting() != 0 {
					t.Errorf("%d still wait a while after it is back, %d are said to", room.left(), s.Waiting())
				}
				end()
			})
		})
	}
}

// Four attempts whose objects never come hold all slots once, for as long as one
// transfer may stall, and half of them ever after: the others go on.
func TestHangingSealsLeaveSlotsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newWaitingRoom(4)
		hang := map[uuid.UUID]bool{}
		for _, x := range room.waiting {
			hang[x.AttemptID] = true
		}
		s := room.sealer(func(ctx context.Context, id domain.AttemptID) error {
			if hang[id.UUID()] {
				select {
				case <-ctx.Done():
				case <-time.After(stallsAfter):
				}
				return fmt.Errorf("store: %w", objects.ErrUnavailable)
			}
			time.Sleep(100 * time.Millisecond)
			room.leave(id.UUID())
			return nil
		})
		end := runs(t, s)
		time.Sleep(time.Second) // all four hang
		for round := range 5 {
			room.mu.Lock()
			for range 20 {
				room.waiting = append(room.waiting, projections.Sealable{AttemptID: uuid.New()})
			}
			room.mu.Unlock()
			wait := 5 * time.Second
			if round == 0 {
				wait += stallsAfter
			}
			time.Sleep(wait)
			if left := room.left(); left != 4 {
				t.Errorf("round %d: %d wait after %s", round, left-4, wait)
			}
			time.Sleep(17 * time.Second)
		}
		end()
	})
}

// runs lets a sealer work until end is called.
func runs(t *testing.T, s *Sealer) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.sealAll(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
