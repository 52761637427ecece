package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// replica is one process of the service.
type replica struct {
	n        int
	up       bool
	paused   bool     // SIGSTOP
	held     []func() // what goes on when it does
	life     int      // raised when it is killed: what ran in it is gone
	svc      *commands.Service
	dispatch *dispatch.Dispatcher
	sealing  map[domain.AttemptID]bool
	retries  map[domain.AttemptID]retry // of seals that failed
}

// retry is when a seal that failed is tried again, and how long after the last try.
type retry struct {
	at    time.Time
	pause time.Duration
}

var catalog = runners.Catalogue()

// queueLimit is how many attempts may wait in a run with admission control.
const queueLimit = 3

// boot starts a replica: its commands, its dispatcher with queue and sweeper, and
// its sealer.
func (w *World) boot(r *replica) {
	r.up, r.sealing, r.retries = true, map[domain.AttemptID]bool{}, map[domain.AttemptID]retry{}
	reads := reads{w, w.rows}
	c := commands.Config{
		Store: flakyStore{w, w.mem, r}, Index: reads, Policy: policy.BuiltinDev, Actions: catalog,
		Profile: w.profile(), Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
	}
	if w.Faults.has(QueueLimit) {
		c.MaxQueue = queueLimit
	}
	r.svc = commands.New(c)
	d := dispatch.New(dispatch.Config{
		Commands: r.svc, Reads: reads, Feed: feed{w, w.mem}, Policy: policy.BuiltinDev, Profile: w.profile(),
		Leases: rowLeases{w}, Holder: holderName(r.n, r.life),
	})
	r.dispatch = d
	key := mix(w.Seed, name("replica"), uint64(r.n), uint64(r.life))
	loop := func(n uint64, run func(context.Context) error) {
		w.spawn(mix(key, n), r, func(ctx context.Context) {
			if err := run(ctx); err != nil {
				w.obs.violate("loop", domain.AttemptID{}, "a loop of replica %d ended: %v", r.n, err)
			}
		})
	}
	loop(1, d.Run)
	loop(2, d.Sweep)
	loop(3, func(ctx context.Context) error { w.seal(ctx, r, mix(key, 4)); return nil })
}

func holderName(n, life int) string { return fmt.Sprintf("replica %d, life %d", n, life) }

// holder names the replica's life that carries a call.
func holder(ctx context.Context) string {
	if t, ok := ctx.Value(taskKey{}).(*task); ok && t.replica != nil {
		return holderName(t.replica.n, t.life)
	}
	return ""
}

// kill ends a replica at whatever step it is in.
func (w *World) kill(r *replica) {
	if !r.up {
		return
	}
	life := r.life
	r.up, r.paused, r.held = false, false, nil
	r.life++
	w.disturb()
	w.mu.Lock()
	defer w.mu.Unlock()
	for t, cancel := range w.cancel {
		if t.replica == r && t.life == life {
			cancel()
		}
	}
}

// pause stops a replica, or lets it go on with what it was about to do.
func (w *World) pause(r *replica, on bool) {
	w.disturb()
	if r.paused == on || !r.up {
		return
	}
	r.paused = on
	held := r.held
	r.held = nil
	if !on {
		w.wentOn = time.Now()
	}
	for i, f := range held {
		w.loop.plan(time.Now(), mix(w.Seed, name("goes on"), uint64(r.n), uint64(i), uint64(time.Since(w.start))), f)
	}
}

const (
	sealEvery  = 2 * time.Second
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// seal looks for attempts to seal until ctx ends. Nothing keeps two replicas from
// sealing the same attempt.
func (w *World) seal(ctx context.Context, r *replica, key uint64) {
	reads := reads{w, w.rows}
	for n := uint64(0); ctx.Err() == nil; n++ {
		woken := r.dispatch.Finalizing()
		ids, err := reads.sealable(ctx)
		if err != nil {
			ids = nil
		}
		if n%16 == 0 {
			ids = append(ids, w.finalizing()...) // too early: the domain holds it back
		}
		for _, id := range ids {
			if !r.sealing[id] && !time.Now().Before(r.retries[id].at) {
				w.sealOne(r, mix(key, n, name(id.String())), id)
			}
		}
		t := time.NewTimer(sealEvery)
		select {
		case <-t.C:
		case <-woken:
			t.Stop()
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// finalizing lists what is not closed yet and fixed in its outcome.
func (w *World) finalizing() (out []domain.AttemptID) {
	for _, s := range w.submissions {
		if a, err := w.rows.Attempt(context.Background(), s.id); err == nil && a.Phase == string(domain.PhaseFinalizing) {
			out = append(out, s.id)
		}
	}
	return out
}

func (w *World) sealOne(r *replica, key uint64, id domain.AttemptID) {
	r.sealing[id] = true
	life := r.life
	w.spawn(key, r, func(ctx context.Context) {
		_, err := r.svc.Seal(ctx, id, func(a domain.Attempt, _ time.Time) (domain.Seal, error) {
			sealed, err := w.bundle(ctx, a)
			return domain.Seal{Sealed: sealed}, err
		})
		w.count("seal", word(err))
		if r.life != life || w.over { // at the end of a run all tasks end at once, and not one by one
			return
		}
		delete(r.sealing, id)
		if err == nil || definite(err) {
			delete(r.retries, id)
			return
		}
		d := min(max(firstRetry, 2*r.retries[id].pause), lastRetry)
		r.retries[id] = retry{time.Now().Add(d), d}
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
