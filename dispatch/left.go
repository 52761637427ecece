package dispatch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Revoke names the Vault tokens that a runner left of an attempt.
type Revoke struct {
	AttemptID domain.AttemptID
	Accessors []string
}

// knownRevoke and an attempt's id are how a runner says that it revokes what is
// left of the attempt.
const knownRevoke = "revoke/"

const (
	maxRevokes = 16               // attempts in one answer
	maxTold    = 50               // tokens of one attempt in it, as many as one request may say are revoked
	maxLeft    = 2000             // tokens of one pool that one look reads
	tellAgain  = 30 * time.Second // after which a pool is told once more of what is still left
)

// left are the Vault tokens that nobody looks after any more, as this replica saw
// them last. One runner of the pool is told of each; if they are still left later,
// one is told again.
type left struct {
	mu   sync.Mutex
	all  map[string][]Revoke     // by pool; guarded by mu
	due  map[string]time.Time    // when each pool may be looked at again; guarded by mu
	told map[uuid.UUID]time.Time // by attempt; guarded by mu
}

// ripe are those of the pools that may be looked at again.
func (l *left) ripe(pools []string, now time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pools), func(p string) bool { return now.Before(l.due[p]) })
}

// update takes over what a look at the pools gave. The longer it took, the longer
// they are left alone.
func (l *left) update(pools []string, rows []projections.LeftToken, now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.due, l.told = map[string][]Revoke{}, map[string]time.Time{}, map[uuid.UUID]time.Time{}
	}
	for _, p := range pools {
		delete(l.all, p)
		l.due[p] = now.Add(min(max(pollEvery/2, resyncShare*took), resyncMost))
	}
	for _, r := range rows {
		id := domain.NewID[domain.AttemptID](r.AttemptID)
		of := l.all[r.Pool]
		switch n := len(of); {
		case n == 0 || of[n-1].AttemptID != id:
			l.all[r.Pool] = append(of, Revoke{id, []string{r.Accessor}})
		case len(of[n-1].Accessors) < maxTold: // the others when these are gone
			of[n-1].Accessors = append(of[n-1].Accessors, r.Accessor)
		}
	}
	for id, at := range l.told {
		if now.Sub(at) >= tellAgain {
			delete(l.told, id)
		}
	}
}

// claim are the tokens that a runner of the pool is to be told of now.
func (l *left) claim(pool string, known []string, now time.Time) (out []Revoke) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all[pool] {
		if len(out) == maxRevokes {
			break
		}
		if l.untold(r, known, now) {
			l.told[r.AttemptID.UUID()] = now
			out = append(out, r)
		}
	}
	return out
}

// waits reports whether there is something to tell to a runner that knows this.
func (l *left) waits(pool string, known []string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all[pool], func(r Revoke) bool { return l.untold(r, known, now) })
}

func (l *left) untold(r Revoke, known []string, now time.Time) bool {
	at, told := l.told[r.AttemptID.UUID()]
	return !(told && now.Sub(at) < tellAgain) && !slices.Contains(known, knownRevoke+r.AttemptID.String())
}

// revokesFor is the pool for which a runner revokes what was left; "" for one that
// policy does not approve.
func revokesFor(r projections.RunnerView) string {
	if r.Status == string(domain.RunnerUnapproved) {
		return ""
	}
	return r.Pool
}

// lookForLeft reads what runners of these pools left.
func (d *Dispatcher) lookForLeft(ctx context.Context, pools []string) error {
	began := time.Now()
	pools = d.left.ripe(pools, began)
	if len(pools) == 0 {
		return nil
	}
	rows, err := d.Reads.LeftTokens(ctx, pools, maxLeft)
	if err != nil {
		return err
	}
	d.left.update(pools, rows, began, time.Since(began))
	return nil
}

// wakeFor wakes one request of each pool for which there is something to revoke.
func (h *held) wakeFor(l *left, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	woken := map[string]bool{}
	for x := range h.all {
		if x.pool != "" && !woken[x.pool] && l.waits(x.pool, x.known, now) {
			woken[x.pool] = true
			x.sub.wake()
		}
	}
}

// pools are those of the runners whose requests are held.
func (h *held) pools() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for x := range h.all {
		if x.pool != "" {
			out = append(out, x.pool)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
