package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// NextRequest is a runner's request for what concerns it.
type NextRequest struct {
	FreeSlots   int
	TokenSHA256 []string // one fresh hash per free slot
	Known       []string // lease ids it holds or already stops, and "drain"
}

// knownDrain is how a runner says that it acts on a drain.
const knownDrain = "drain"

// Next is what concerns a runner now.
type Next struct {
	Offers []Offer
	Stops  []Stop
	Drain  bool
	Gone   []domain.LeaseID
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

// Next waits until there is something for the runner, at most for wait.
func (d *Dispatcher) Next(ctx context.Context, id domain.RunnerID, req NextRequest, wait time.Duration) (Next, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	if err := d.Reads.SeenRunner(ctx, id); err != nil {
		return Next{}, err
	}
	for {
		queue, stops, own := d.hub.wait("queue"), d.hub.wait("stops"), d.hub.wait("runner/"+id.String())
		n, more, err := d.look(ctx, id, req)
		if err != nil || !n.empty() {
			return n, err
		}
		// Capacity or a slot that another replica frees is seen by polling.
		poll := time.NewTimer(min(pollEvery, more))
		select {
		case <-ctx.Done():
			poll.Stop()
			return n, nil
		case <-deadline.C:
			poll.Stop()
			return n, nil
		case <-queue:
		case <-stops:
		case <-own:
		case <-poll.C:
		}
		poll.Stop()
	}
}

func (n Next) empty() bool {
	return len(n.Offers) == 0 && len(n.Stops) == 0 && !n.Drain && !n.DrainOver && len(n.Gone) == 0
}

// look reads once what concerns the runner. more is when to look again at the
// latest.
func (d *Dispatcher) look(ctx context.Context, id domain.RunnerID, req NextRequest) (n Next, more time.Duration, err error) {
	more = pollEvery
	r, err := d.Reads.Runner(ctx, id)
	if err != nil {
		return n, more, err
	}
	switch domain.RunnerStatus(r.Status) {
	case domain.RunnerIsEvicted:
		return n, more, &domain.Error{Kind: domain.KindGone, Code: "runner_evicted", Message: "this runner was evicted", Next: "enrol it again under a new runner id"}
	case domain.RunnerIsLost:
		if _, err := d.Commands.NoteRunner(ctx, id, "back", time.Time{}); err != nil {
			return n, more, err
		}
	case domain.RunnerInDrain, domain.RunnerIsDrained:
		n.Drain = !slices.Contains(req.Known, knownDrain)
	}
	n.DrainOver = slices.Contains(req.Known, knownDrain) && r.Status != string(domain.RunnerInDrain) && r.Status != string(domain.RunnerIsDrained)
	live, err := d.Reads.LiveLeases(ctx, id)
	if err != nil {
		return n, more, err
	}
	if err := d.leaseNews(ctx, req, live, &n); err != nil {
		return n, more, err
	}
	if len(n.Offers) == 0 && r.Status == string(domain.RunnerActive) && req.FreeSlots > 0 {
		err = d.offer(ctx, id, r, req, live, &n)
	}
	return n, more, err
}

// leaseNews finds repeated offers, stops, and leases that are over.
func (d *Dispatcher) leaseNews(ctx context.Context, req NextRequest, live []projections.LiveLease, n *Next) error {
	now, err := d.Reads.Now(ctx)
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, l := range live {
		lid := l.LeaseID.String()
		held[lid] = true
		if l.Kind == "offer" && slices.Contains(req.TokenSHA256, l.TokenSHA256) {
			o, err := d.offerOf(ctx, l.AttemptID)
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

// offer leases waiting attempts to the runner, one per free slot.
func (d *Dispatcher) offer(ctx context.Context, id domain.RunnerID, r projections.RunnerView, req NextRequest, live []projections.LiveLease, n *Next) error {
	busy := 0
	used := map[string]bool{}
	for _, l := range live {
		used[l.TokenSHA256] = true
		if l.Kind != "upload" {
			busy++
		}
	}
	bundle := d.Policy()
	pool, known := bundle.Pool(r.Pool)
	fits := func(n need) bool { return len(misfits(n, r, pool, known)) == 0 }
	free := min(req.FreeSlots, len(req.TokenSHA256), r.Slots-busy)
	now, err := d.Reads.Now(ctx)
	if err != nil {
		return err
	}
	for _, hash := range req.TokenSHA256 {
		if free <= 0 {
			return nil
		}
		if used[hash] {
			continue
		}
		o, err := d.offerOne(ctx, id, r.Pool, hash, fits, now)
		if err != nil {
			return err
		}
		if o == nil {
			return nil
		}
		n.Offers = append(n.Offers, *o)
		free--
	}
	return nil
}

// candidatesPerTry is how many attempts one look at the queue may clash on.
const candidatesPerTry = 8

func (d *Dispatcher) offerOne(ctx context.Context, id domain.RunnerID, pool, hash string, fits func(need) bool, now time.Time) (*Offer, error) {
	candidates, err := d.queue.candidates(ctx, candidatesPerTry, fits, now)
	if err != nil {
		return nil, err
	}
	for _, c := range candidates {
		a, err := d.tryOffer(ctx, c, domain.Offer{RunnerID: id, Pool: pool, TokenSHA256: hash})
		d.queue.take(c.AttemptID)
		switch k := domain.KindOf(err); {
		case err == nil && a.Phase == domain.PhaseLeased && a.Lease.TokenSHA256 == hash:
			return d.offerOf(ctx, c.AttemptID)
		case err == nil, k == domain.KindConflict, k == domain.KindGone, k == domain.KindNotFound:
			continue // another was faster, or policy ended it
		default:
			return nil, err
		}
	}
	return nil, nil
}

func (d *Dispatcher) tryOffer(ctx context.Context, c projections.Queued, o domain.Offer) (domain.Attempt, error) {
	id := domain.NewID[domain.AttemptID](c.AttemptID)
	return d.Commands.Offer(ctx, id, c.SpecText, o)
}

// offerOf describes an offered attempt; nil if it is not offered any more.
func (d *Dispatcher) offerOf(ctx context.Context, attempt uuid.UUID) (*Offer, error) {
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
		return nil, fmt.Errorf("describe the offer of %s: %w", id, err)
	}
	return &Offer{Attempt: a, Lease: *a.Lease, JobSpec: raw, Spec: spec}, nil
}
