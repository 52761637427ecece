package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// replica is one process of the service.
type replica struct {
	n       int
	up      bool
	life    int // raised when it is killed: what ran in it is gone
	svc     *commands.Service
	sealing map[domain.AttemptID]bool
	busy    bool // a sweep is on its way
}

var catalog = runners.Catalogue()

func (w *World) boot(r *replica) {
	r.up, r.busy, r.sealing = true, false, map[domain.AttemptID]bool{}
	r.svc = commands.New(commands.Config{
		Store: w.store, Index: worldIndex{w, Rows{w.mem}}, Policy: policy.BuiltinDev, Actions: catalog,
		Profile: w.profile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	})
}

func (w *World) kill(r *replica) {
	if r.up {
		r.up = false
		r.life++
	}
}

func (w *World) sweepEvery() time.Duration {
	if w.Profile == "fast" {
		return 500 * time.Millisecond
	}
	return 2 * time.Second
}

const (
	sweeperTerm = 5 * time.Second
	massShare   = 0.5
	massLeast   = 10
)

// rowLease is a fenced lease that one replica may hold, by the database's clock.
type rowLease struct {
	holder *replica
	until  time.Time
}

// tick is a replica's timer: it sweeps where it holds the sweeper's lease, and
// seals.
func (w *World) tick(r *replica) {
	n := uint64(time.Since(w.start))
	key := mix(w.Seed, name("tick"), uint64(r.n), n)
	w.loop.plan(time.Now().Add(w.sweepEvery()), key, func() { w.tick(r) })
	if !r.up || w.storeAway {
		return
	}
	if !r.busy && !w.stalled {
		now := w.dbNow()
		if w.sweeper.holder == nil || w.sweeper.holder == r || !now.Before(w.sweeper.until) {
			w.sweeper = rowLease{r, now.Add(sweeperTerm)}
			r.busy = true
			life := r.life
			w.spawn(mix(key, 1), r, func(ctx context.Context) {
				if err := w.sweep(ctx, r); err != nil {
					w.count("sweep", word(err))
				}
				if r.life == life {
					r.busy = false
				}
			})
		}
	}
	w.sealAll(r, key)
}

// sweep lets every timer that is due fire, as package dispatch does: a gap since
// the last sweep moves resumed_at before this sweep is noted.
func (w *World) sweep(ctx context.Context, r *replica) error {
	if _, err := w.step(ctx, "sweep"); err != nil {
		return err
	}
	now, last := w.dbNow(), w.swept
	if gap := now.Sub(last); !last.IsZero() && gap > domain.AwayAfter {
		w.count("resume", "no_sweep")
		if err := r.svc.Resume(ctx, "no_sweep", gap); err != nil {
			return err
		}
	}
	if _, err := w.step(ctx, "note"); err != nil {
		return err
	}
	w.swept = w.dbNow()
	p, err := r.svc.Presence(ctx)
	if err != nil {
		return err
	}
	due, expiring, live := w.timers.due(w, now)
	if expiring >= massLeast && float64(expiring) > massShare*float64(live) && now.Sub(p.ResumedAt) >= 2*w.profile().Lease("opentofu") {
		w.count("resume", "mass_expiry")
		return r.svc.Resume(ctx, "mass_expiry", 0)
	}
	for _, id := range due {
		if _, err := r.svc.Tick(ctx, id, commands.TickOptions{Presence: p}); err != nil {
			w.count("tick", word(err))
		}
	}
	return w.sweepEvicted(ctx, r)
}

// timers remembers when the next timer runs out, until something is stored.
type timers struct {
	appends int
	next    time.Time
}

// due lists attempts with a timer that may have run out, and counts the running
// leases that have, and all.
func (t *timers) due(w *World, now time.Time) (ids []domain.AttemptID, expiring, live int) {
	if n := w.obs.appended(); n == t.appends && now.Before(t.next) {
		return nil, 0, 0
	} else {
		*t = timers{n, now.Add(time.Hour)}
	}
	seen := map[domain.AttemptID]bool{}
	look := func(id domain.AttemptID, at time.Time) bool {
		due := !now.Before(at)
		if due {
			seen[id] = true
		}
		if at.Before(t.next) {
			t.next = at
		}
		return due
	}
	eachRow(w.mem, "leases", "", func(l leaseRow) {
		live++
		if look(l.AttemptID, l.LeaseUntil) && l.Kind == "lease" {
			expiring++
		}
	})
	eachRow(w.mem, "attempt_status", `"due_at":"`, func(s statusRow) {
		if s.Phase != domain.PhaseClosed {
			look(s.AttemptID, *s.DueAt)
		}
	})
	for id := range seen {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b domain.AttemptID) int { return cmp.Compare(a.String(), b.String()) })
	return ids, expiring, live
}

func (w *World) sweepEvicted(ctx context.Context, r *replica) error {
	var out []error
	eachRow(w.mem, "runner_status", `"evicted"`, func(s runnerStatusRow) {
		eachRow(w.mem, "leases", s.RunnerID.String(), func(l leaseRow) {
			if l.RunnerID == s.RunnerID {
				_, err := r.svc.Tick(ctx, l.AttemptID, commands.TickOptions{EvictedRunner: s.RunnerID})
				out = append(out, err)
			}
		})
	})
	return errors.Join(out...)
}

// sealAll seals what waits for it. Nothing keeps two replicas from sealing the
// same attempt.
func (w *World) sealAll(r *replica, key uint64) {
	appends, now := w.obs.appended(), w.dbNow()
	if w.idleAt == appends {
		return // nothing was waiting then, and nothing was stored since
	}
	w.idleAt = appends
	eachRow(w.mem, "attempt_status", `"finalizing"`, func(s statusRow) {
		id := s.AttemptID
		w.idleAt = -1
		if s.Phase != domain.PhaseFinalizing || r.sealing[id] {
			return
		}
		if ready := s.Sealable || s.DueAt != nil && !now.Before(*s.DueAt); !ready && dice(mix(key, 2, name(id.String()))).IntN(8) > 0 {
			return // now and then it is tried too early: the domain holds it back
		}
		r.sealing[id] = true
		life := r.life
		w.spawn(mix(key, name(id.String())), r, func(ctx context.Context) {
			_, err := r.svc.Seal(ctx, id, func(a domain.Attempt, _ time.Time) (domain.Sealed, error) { return w.bundle(ctx, a) })
			w.count("seal", word(err))
			if r.life == life {
				delete(r.sealing, id)
			}
		})
	})
}

// bundle fixes what an attempt left behind, from its objects.
func (w *World) bundle(ctx context.Context, a domain.Attempt) (domain.Sealed, error) {
	if _, err := w.step(ctx, "bundle"); err != nil {
		return domain.Sealed{}, err
	}
	if w.objectsAway {
		w.count("fault", "objects_away")
		return domain.Sealed{}, errObjectsAway
	}
	s := domain.Sealed{State: "incomplete", URI: "s3://bucket/bundles/" + a.ID.String(), ManifestSHA256: sha("manifest " + a.ID.String())}
	if a.Uploaded() {
		s.State = "complete"
	}
	for _, stream := range logStreams {
		if n := a.LogBytes[stream]; n > 0 {
			s.Logs = append(s.Logs, domain.SealedLog{Stream: stream, Bytes: n, SHA256: sha(stream), Complete: s.State == "complete"})
			s.Bytes += n
		}
	}
	return s, nil
}

// offer is a lease to start.
type offer struct {
	attempt domain.AttemptID
	lease   domain.LeaseID
	epoch   int64
	token   string // its hash
	clocks  domain.Clocks
}

// news is what concerns a runner now.
type news struct {
	offers []offer
	stops  map[domain.LeaseID]domain.StopReason
	live   map[domain.LeaseID]bool
	status domain.RunnerStatus
}

// next answers a runner's request for work, as package dispatch does.
func (w *World) next(ctx context.Context, r *replica, id domain.RunnerID, slots int, tokens []string) (news, error) {
	if _, err := w.step(ctx, "next"); err != nil {
		return news{}, err
	}
	n := news{stops: map[domain.LeaseID]domain.StopReason{}, live: map[domain.LeaseID]bool{}}
	st, ok := find(w.mem, "runner_status", id.String(), func(s runnerStatusRow) bool { return s.RunnerID == id })
	if !ok {
		return n, domain.ErrRunnerUnknown
	}
	n.status = st.Status
	if st.Status == domain.RunnerIsEvicted {
		return n, &domain.Error{Kind: domain.KindGone, Code: "runner_evicted", Message: "this runner was evicted"}
	}
	busy := 0
	used := map[string]bool{}
	var repeated []leaseRow
	eachRow(w.mem, "leases", id.String(), func(l leaseRow) {
		if l.RunnerID != id {
			return
		}
		n.live[l.LeaseID], used[l.TokenSHA256] = true, true
		if l.Kind != "upload" {
			busy++
		}
		if l.Kind == "offer" && slices.Contains(tokens, l.TokenSHA256) {
			repeated = append(repeated, l)
		}
		if l.StopReason != nil {
			n.stops[l.LeaseID] = *l.StopReason
		}
	})
	for _, l := range repeated {
		a, err := r.svc.Attempt(ctx, l.AttemptID)
		if err != nil {
			return n, err
		}
		if a.Phase == domain.PhaseLeased && a.Lease.ID == l.LeaseID {
			n.offers = append(n.offers, offer{a.ID, l.LeaseID, a.Epoch, l.TokenSHA256, a.Clocks})
		}
	}
	if len(n.offers) > 0 || st.Status != domain.RunnerActive {
		return n, nil
	}
	for _, token := range tokens {
		if busy >= slots {
			break
		}
		if used[token] {
			continue
		}
		o, err := w.offerOne(ctx, r, id, token)
		if err != nil {
			return n, err
		}
		if o == nil {
			break
		}
		n.offers = append(n.offers, *o)
		busy++
	}
	return n, nil
}

// offerOne leases the first waiting attempt that can be had.
func (w *World) offerOne(ctx context.Context, r *replica, id domain.RunnerID, token string) (*offer, error) {
	if _, err := w.step(ctx, "queue"); err != nil {
		return nil, err
	}
	now := w.dbNow()
	var waiting []attemptRow
	eachRow(w.mem, "attempt_status", `"queued"`, func(s statusRow) {
		if s.NotBefore != nil && now.Before(*s.NotBefore) {
			return
		}
		if a, ok := find(w.mem, "attempts", s.AttemptID.String(), func(a attemptRow) bool { return a.AttemptID == s.AttemptID }); ok {
			waiting = append(waiting, a)
		}
	})
	slices.SortFunc(waiting, func(a, b attemptRow) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.AttemptID.String(), b.AttemptID.String()))
	})
	for _, c := range waiting[:min(len(waiting), 8)] {
		a, err := r.svc.Offer(ctx, c.AttemptID, c.SpecText, domain.Offer{RunnerID: id, Pool: "default", TokenSHA256: token})
		w.count("answer", "offer "+word(err))
		switch k := domain.KindOf(err); {
		case err == nil && a.Phase == domain.PhaseLeased && a.Lease.TokenSHA256 == token:
			return &offer{a.ID, a.Lease.ID, a.Epoch, token, a.Clocks}, nil
		case err == nil, k == domain.KindConflict, k == domain.KindGone, k == domain.KindNotFound:
		default:
			return nil, err
		}
	}
	return nil, nil
}

// storeChunk is the service's way of taking a chunk of log: check, object, event.
func (w *World) storeChunk(ctx context.Context, r *replica, m commands.Meta, c commands.LeaseCall, attempt domain.AttemptID, stream string, offset int64, content []byte) (int64, error) {
	if _, have, err := r.svc.CheckLog(ctx, c, stream, offset, int64(len(content))); err != nil {
		return have, err
	}
	if _, err := w.step(ctx, "object"); err != nil {
		return 0, err
	}
	if w.objectsAway {
		w.count("fault", "objects_away")
		return 0, &domain.Error{Kind: domain.KindUnavailable, Code: "objects_away", Message: "object storage is away", Err: errObjectsAway}
	}
	digest := sha(string(content))
	key := fmt.Sprintf("log/%s/%s/%d-%s", attempt, stream, offset, digest)
	w.objects[key] = content
	stored := w.obs.stored(m.CommandID)
	have, err := r.svc.StoreLog(ctx, m, c, domain.StoreLog{
		Stream: stream, Offset: offset, Bytes: int64(len(content)), Key: key, SHA256: digest, ObjectBytes: int64(len(content)) + 12,
	})
	w.obs.answered(call{what: "storing a chunk", command: m.CommandID}, have, err, stored)
	return have, err
}
