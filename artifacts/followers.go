package artifacts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// FollowerRows are what replicas tell each other of who follows; see
// projections.Reader, which is the one there is.
type FollowerRows interface {
	NoteFollowers(ctx context.Context, ids []uuid.UUID, good time.Duration) error
	Followed(ctx context.Context) ([]uuid.UUID, error)
}

const (
	followedFor   = 10 * time.Second // from one note on
	noteFollowers = 3 * time.Second  // while somebody follows at this replica
	askFollowers  = time.Second      // at most, and only while runners ask
	followTimeout = 2 * time.Second
)

// Followers knows which attempts' logs somebody follows, here or at another
// replica, so that their runners send sooner. While nobody follows, a replica
// writes nothing, and reads one empty table once a second at most, if runners
// report to it. Safe for concurrent use.
type Followers struct {
	Rows FollowerRows
	Log  *slog.Logger

	mu     sync.Mutex
	here   map[uuid.UUID]int      // how many follow at this replica; guarded by mu
	kick   chan struct{}          // holds a wake when one more is followed; made under mu
	all    map[uuid.UUID]struct{} // as read last; guarded by mu
	asked  time.Time              // when that was; guarded by mu
	asking chan struct{}          // closed when the read under way ends; nil if none; guarded by mu
}

// Follow notes that one more follows the attempt's log, until the returned
// function is called.
func (f *Followers) Follow(id domain.AttemptID) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.here == nil {
		f.here = map[uuid.UUID]int{}
	}
	f.here[id.UUID()]++
	if f.here[id.UUID()] == 1 {
		select {
		case f.wake() <- struct{}{}:
		default:
		}
	}
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.here[id.UUID()]--; f.here[id.UUID()] == 0 {
			delete(f.here, id.UUID())
		}
	})
}

// wake is called under mu.
func (f *Followers) wake() chan struct{} {
	if f.kick == nil {
		f.kick = make(chan struct{}, 1)
	}
	return f.kick
}

// Followed reports whether somebody follows the attempt's log. It is at most some
// seconds behind; while the database does not answer, nobody elsewhere follows.
func (f *Followers) Followed(ctx context.Context, id domain.AttemptID) bool {
	f.mu.Lock()
	for f.here[id.UUID()] == 0 && time.Since(f.asked) >= askFollowers {
		asking := f.asking
		if asking == nil {
			f.ask(ctx)
			break
		}
		f.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return false
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	_, elsewhere := f.all[id.UUID()]
	return elsewhere || f.here[id.UUID()] > 0
}

// ask reads who follows elsewhere. It is called under mu and gives it up meanwhile.
func (f *Followers) ask(ctx context.Context) {
	asking := make(chan struct{})
	f.asking = asking
	f.mu.Unlock()
	// Others wait for the answer too: it must not end with the one who asks.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
	ids, err := f.Rows.Followed(ctx)
	cancel()
	f.mu.Lock()
	defer close(asking)
	f.asking, f.asked, f.all = nil, time.Now(), nil
	if err != nil {
		f.Log.DebugContext(ctx, "who follows logs elsewhere is not known", "error", err)
		return
	}
	f.all = make(map[uuid.UUID]struct{}, len(ids))
	for _, x := range ids {
		f.all[x] = struct{}{}
	}
}

// Run tells the other replicas what is followed here, until ctx ends.
func (f *Followers) Run(ctx context.Context) error {
	f.mu.Lock()
	kick := f.wake()
	f.mu.Unlock()
	for ctx.Err() == nil {
		ids := f.ids()
		if len(ids) == 0 {
			select {
			case <-ctx.Done():
			case <-kick:
			}
			continue
		}
		limited, cancel := context.WithTimeout(ctx, followTimeout)
		err := f.Rows.NoteFollowers(limited, ids, followedFor)
		cancel()
		if err != nil && ctx.Err() == nil {
			f.Log.WarnContext(ctx, "other replicas cannot be told which logs are followed; their runners send at their own pace", "error", err)
		}
		pause(ctx, noteFollowers, kick)
	}
	return nil
}

func (f *Followers) ids() []uuid.UUID {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]uuid.UUID, 0, len(f.here))
	for id := range f.here {
		out = append(out, id)
	}
	return out
}
