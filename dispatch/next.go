package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// NextRequest is a runner's request for what concerns it.
type NextRequest struct {
	FreeSlots   int
	TokenSHA256 []string // one fresh hash per free slot
	Known       []string // lease ids it holds or already stops, "drain", and "revoke/<attempt id>"
}

// knownDrain is how a runner says that it acts on a drain.
const knownDrain = "drain"

// Next is what concerns a runner now.
type Next struct {
	Offers []Offer
	Stops  []Stop
	Drain  bool
	Gone   []domain.LeaseID
	Revoke []Revoke // what runners of its pool left in Vault; it is to revoke that
	// DrainOver says that the runner acts on a drain that was taken back: the
	// answer comes at once, and says so by Drain being false.
	DrainOver bool
}

// Offer is a lease to start.
type Offer struct {
	Attempt domain.Attempt
	Lease   domain.Lease
	JobSpec json.RawMessage
	Spec    *domain.JobSpec
}

// Stop tells the holder of a lease to end its job.
type Stop struct {
	LeaseID   domain.LeaseID
	AttemptID domain.AttemptID
	Epoch     int64
	Reason    domain.StopReason
	Deadline  time.Duration // from now on
	Ladder    time.Duration
}

// Next waits until there is something for the runner, at most for wait. With no
// time to wait it still looks at the queue once. While it waits it asks nothing
// of the database.
func (d *Dispatcher) Next(ctx context.Context, id domain.RunnerID, req NextRequest, wait time.Duration) (Next, error) {
	if err := d.Reads.SeenRunner(ctx, id); err != nil {
		return Next{}, err
	}
	sub := d.hub.subscribe("runner/" + id.String())
	defer sub.end()
	h := d.held.add(id, sub, req.Known)
	defer d.held.remove(h)
	glance := wait <= 0
	if glance {
		wait = pollEvery
	}
	over := make(chan struct{})
	t := time.AfterFunc(wait, func() { close(over) })
	defer t.Stop()
	for {
		l, err := d.look(ctx, id, req, glance)
		if err != nil || !l.next.empty() {
			return l.next, err
		}
		if sub.follow(l.leases...) {
			continue // what happened before it followed them is seen now
		}
		d.held.sees(h, l.saw, revokesFor(l.runner))
		offers, end, err := d.await(ctx, sub, over, glance, l)
		if err != nil || len(offers) > 0 || end {
			return Next{Offers: offers}, err
		}
	}
}

// await waits for an attempt, for something that concerns the runner, or the end
// of the request. No offers, no end and no error mean that the runner must be
// looked at again.
func (d *Dispatcher) await(ctx context.Context, sub *subscription, over <-chan struct{}, glance bool, l *looking) (offers []Offer, end bool, err error) {
	if len(l.tokens) == 0 && glance {
		return nil, true, nil
	}
	var given, refreshed <-chan struct{}
	var w *waiter
	if len(l.tokens) > 0 {
		c := d.capabilityOf(l.runner)
		w = d.queue.enter(c.key(), c.fits)
		given = w.c
		if glance {
			refreshed = d.queue.refreshed()
		}
	}
	woken := false // what the look saw of the runner may not be so any more
	select {
	case <-ctx.Done():
	case <-over:
		end = true
	case <-refreshed:
		end = true
	case <-sub.c:
		woken = true
	case <-given:
	}
	if w == nil {
		return nil, end || ctx.Err() != nil, nil
	}
	it := d.queue.leave(w)
	if it != nil && !woken {
		select {
		case <-sub.c:
			woken = true
		default:
		}
	}
	if it != nil && (woken || ctx.Err() != nil) {
		d.queue.putBack(it)
		it = nil
	}
	if it != nil {
		offers, err = d.offer(ctx, l, w.class, it)
	}
	return offers, end || ctx.Err() != nil, err
}

func (n Next) empty() bool {
	return len(n.Offers) == 0 && len(n.Stops) == 0 && !n.Drain && !n.DrainOver && len(n.Gone) == 0 && len(n.Revoke) == 0
}

// looking is what one look at a runner saw.
type looking struct {
	next   Next
	runner projections.RunnerView
	saw    projections.RunnerState
	leases []string // topics of its live leases
	tokens []string // hashes that offers may be made under, one for each free slot
}

// look reads once what concerns the runner, the queue apart. What was left in Vault
// is looked for by the poll; a request that does not wait for it looks itself.
func (d *Dispatcher) look(ctx context.Context, id domain.RunnerID, req NextRequest, glance bool) (*looking, error) {
	l := &looking{}
	r, err := d.Reads.Runner(ctx, id)
	if err != nil {
		return l, err
	}
	n := &l.next
	switch domain.RunnerStatus(r.Status) {
	case domain.RunnerIsEvicted:
		return l, &domain.Error{Kind: domain.KindGone, Code: "runner_evicted", Message: "this runner was evicted", Next: "enrol it again under a new runner id"}
	case domain.RunnerIsLost:
		if _, err := d.Commands.NoteRunner(ctx, id, "back", time.Time{}); err != nil {
			return l, err
		}
		if r, err = d.Reads.Runner(ctx, id); err != nil {
			return l, err
		}
	case domain.RunnerInDrain, domain.RunnerIsDrained:
		n.Drain = !slices.Contains(req.Known, knownDrain)
	}
	n.DrainOver = slices.Contains(req.Known, knownDrain) && r.Status != string(domain.RunnerInDrain) && r.Status != string(domain.RunnerIsDrained)
	live, err := d.Reads.LiveLeases(ctx, id)
	if err != nil {
		return l, err
	}
	l.runner, l.saw = r, projections.StateOf(r, live)
	busy := 0
	used := map[string]bool{}
	for _, x := range live {
		l.leases = append(l.leases, "lease/"+x.AttemptID.String())
		used[x.TokenSHA256] = true
		if x.Kind != "upload" {
			busy++
		}
	}
	if serves(r.Status) {
		free := min(req.FreeSlots, r.Slots-busy)
		for _, hash := range req.TokenSHA256 {
			if len(l.tokens) < min(free, maxOffers) && !used[hash] {
				l.tokens = append(l.tokens, hash)
			}
		}
	}
	if err := d.leaseNews(ctx, req, live, n); err != nil {
		return l, err
	}
	if glance {
		if err := d.lookForLeft(ctx, []string{r.Pool}); err != nil {
			d.Log.WarnContext(ctx, "looking for what runners left in Vault failed; it is tried again", "pool", r.Pool, "error", err)
		}
	}
	n.Revoke = d.left.claim(revokesFor(r), req.Known, time.Now())
	return l, nil
}

// leaseNews finds repeated offers, stops, and leases that are over.
func (d *Dispatcher) leaseNews(ctx context.Context, req NextRequest, live []projections.LiveLease, n *Next) error {
	held := map[string]bool{}
	for _, l := range live {
		lid := l.LeaseID.String()
		held[lid] = true
		if l.Kind == "offer" && slices.Contains(req.TokenSHA256, l.TokenSHA256) {
			o, err := d.repeatedOffer(ctx, l.AttemptID)
			if err != nil {
				return err
			}
			if o != nil && o.Lease.TokenSHA256 == l.TokenSHA256 {
				n.Offers = append(n.Offers, *o)
			}
		}
		if l.StopReason != nil && !slices.Contains(req.Known, "stop/"+lid) {
			a, err := d.Commands.Attempt(ctx, domain.NewID[domain.AttemptID](l.AttemptID))
			if err != nil {
				return err
			}
			now, err := d.Reads.Now(ctx)
			if err != nil {
				return err
			}
			if s := StopOf(a, now); s != nil {
				n.Stops = append(n.Stops, *s)
			}
		}
	}
	for _, k := range req.Known {
		u, err := domain.ParseUUID(k)
		if err == nil && !held[k] {
			n.Gone = append(n.Gone, domain.NewID[domain.LeaseID](u))
		}
	}
	return nil
}

// StopOf is the stop that the holder of an attempt's lease must carry out; nil
// if none.
func StopOf(a domain.Attempt, now time.Time) *Stop {
	if a.Stop == nil || a.Lease == nil || a.Phase != domain.PhaseRunning {
		return nil
	}
	return &Stop{
		LeaseID: a.Lease.ID, AttemptID: a.ID, Epoch: a.Epoch, Reason: a.Stop.Reason,
		Deadline: max(0, a.Stop.Deadline.Sub(now)), Ladder: time.Duration(a.Clocks.StopSeconds) * time.Second,
	}
}

// maxMisses is how many attempts in a row one request may fail to get before it
// looks again.
const maxMisses = 8

// maxOffers bounds an answer, so that its first offer has not run out when its last
// one is made.
const maxOffers = 32

// offer leases attempts to the runner, the first of them and then whatever waits,
// one for each free slot.
func (d *Dispatcher) offer(ctx context.Context, l *looking, c *class, first *item) ([]Offer, error) {
	var out []Offer
	misses := 0
	for it := first; it != nil; it = d.queue.claim(c) {
		o, err := d.offerOne(ctx, l, it, l.tokens[len(out)])
		switch {
		case err != nil && len(out) == 0:
			return nil, err
		case err != nil:
			// What was leased is told; the error comes again if it lasts.
			d.Log.WarnContext(ctx, "a further offer failed", "runner_id", l.runner.RunnerID.String(), "error", err)
			return out, nil
		case o == nil:
			misses++
		default:
			out = append(out, *o)
		}
		if len(out) == len(l.tokens) || misses == maxMisses {
			break
		}
	}
	return out, nil
}

// offerOne tries to lease one attempt to the runner and settles it in the queue;
// nil if another was faster, policy ended it, or it cannot be described.
func (d *Dispatcher) offerOne(ctx context.Context, l *looking, it *item, hash string) (*Offer, error) {
	id := domain.NewID[domain.AttemptID](it.id)
	// The spec first: an offer that cannot be described would only run out.
	spec, raw, err := d.Commands.JobSpec(ctx, it.specText)
	if err != nil {
		return nil, d.failed(ctx, it, err)
	}
	a, err := d.Commands.Offer(ctx, id, it.specText, domain.Offer{RunnerID: domain.NewID[domain.RunnerID](l.runner.RunnerID), Pool: l.runner.Pool, TokenSHA256: hash})
	switch k := domain.KindOf(err); {
	case err == nil && a.Phase == domain.PhaseLeased && a.Lease.TokenSHA256 == hash:
		d.queue.offered(it)
		return &Offer{Attempt: a, Lease: *a.Lease, JobSpec: raw, Spec: spec}, nil
	case err == nil, k == domain.KindConflict, k == domain.KindGone, k == domain.KindNotFound, k == domain.KindUnavailable:
		d.queue.missed(it) // another was faster, or policy ended it
		return nil, nil
	}
	return nil, d.failed(ctx, it, err)
}

// failed settles an attempt whose offer failed. What is wrong with the one attempt
// must not keep runners from the others: it is put aside, and ends by its queue
// timeout. What is wrong with the database or the request is returned.
func (d *Dispatcher) failed(ctx context.Context, it *item, err error) error {
	if passing(ctx, err) {
		d.queue.missed(it)
		return err
	}
	d.Log.ErrorContext(ctx, "an attempt cannot be offered; others go before it", "attempt_id", it.id.String(), "error", err)
	d.queue.putAside(it)
	return nil
}

// passing reports whether an error is of the moment and not of what was read.
func passing(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// repeatedOffer describes an offer whose answer was lost; nil if the attempt is not
// offered any more, or cannot be described.
func (d *Dispatcher) repeatedOffer(ctx context.Context, attempt uuid.UUID) (*Offer, error) {
	id := domain.NewID[domain.AttemptID](attempt)
	a, err := d.Commands.Attempt(ctx, id)
	if err != nil {
		return nil, err
	}
	if a.Phase != domain.PhaseLeased {
		return nil, nil
	}
	v, err := d.Reads.Attempt(ctx, id)
	if err != nil {
		return nil, err
	}
	spec, raw, err := d.Commands.JobSpec(ctx, v.SpecText)
	if err != nil {
		if passing(ctx, err) {
			return nil, fmt.Errorf("describe the offer of %s: %w", id, err)
		}
		d.Log.ErrorContext(ctx, "an offer cannot be described; it runs out", "attempt_id", id.String(), "error", err)
		return nil, nil
	}
	return &Offer{Attempt: a, Lease: *a.Lease, JobSpec: raw, Spec: spec}, nil
}
