package sim

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// reads are the read models as a replica sees them: every question takes a moment,
// and may fail. It answers package dispatch and package commands.
type reads struct {
	w *World
	*Rows
}

var (
	_ dispatch.Reads = reads{}
	_ commands.Index = reads{}
)

// ask takes the moment that a question takes.
func (d reads) ask(ctx context.Context, what string) error {
	_, err := d.w.step(ctx, what)
	return err
}

// whole reports whether a join of an attempt's rows gives one.
func (a *attemptRow) whole() bool { return !a.CreatedAt.IsZero() && a.Phase != "" }

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// Now is the database's clock.
func (d reads) Now(ctx context.Context) (time.Time, error) {
	if err := d.ask(ctx, "now"); err != nil {
		return time.Time{}, err
	}
	return d.w.dbNow(), nil
}

// Attempt returns one attempt.
func (d reads) Attempt(ctx context.Context, id domain.AttemptID) (projections.AttemptView, error) {
	if err := d.ask(ctx, "attempt/"+id.String()); err != nil {
		return projections.AttemptView{}, err
	}
	return d.Rows.Attempt(ctx, id)
}

// EachQueued calls each for every waiting attempt.
func (d reads) EachQueued(ctx context.Context, each func(projections.Queued)) error {
	if err := d.ask(ctx, "queue"); err != nil {
		return err
	}
	d.queued(func(uuid.UUID) bool { return true }, each)
	return nil
}

// EachQueuedOf calls each for those of the attempts that wait.
func (d reads) EachQueuedOf(ctx context.Context, ids []uuid.UUID, each func(projections.Queued)) error {
	if err := d.ask(ctx, "queue of"); err != nil {
		return err
	}
	d.queued(func(id uuid.UUID) bool { return slices.Contains(ids, id) }, each)
	return nil
}

func (d reads) queued(wanted func(uuid.UUID) bool, each func(projections.Queued)) {
	now := d.w.dbNow()
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []projections.Queued
	for id, a := range d.attempts {
		if a.Phase == string(domain.PhaseQueued) && a.whole() && wanted(id) {
			out = append(out, projections.Queued{AttemptID: id, JobType: a.JobType, Action: a.Action, Environment: a.Environment, Runner: a.runner,
				SpecText: a.SpecText, Priority: a.Priority, CreatedAt: a.CreatedAt, NotBefore: a.NotBefore, ReadAt: now})
		}
	}
	slices.SortFunc(out, func(a, b projections.Queued) int { return compareIDs(a.AttemptID, b.AttemptID) })
	for _, q := range out {
		each(q)
	}
}

// Ended returns those of the attempts that have ended.
func (d reads) Ended(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error) {
	if err := d.ask(ctx, "ended"); err != nil {
		return nil, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		a := d.attempts[id]
		return a == nil || a.Phase != string(domain.PhaseClosed)
	}), nil
}

// DueAttempts lists open attempts whose timer or lease ran out at now.
func (d reads) DueAttempts(ctx context.Context, now time.Time, after *projections.Due, limit int) ([]projections.Due, error) {
	if err := d.ask(ctx, "due"); err != nil {
		return nil, err
	}
	order := func(a, b projections.Due) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), compareIDs(a.AttemptID, b.AttemptID))
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []projections.Due
	for id, a := range d.attempts {
		at, ok := d.dueAt(id, a)
		x := projections.Due{AttemptID: id, Phase: a.Phase, DueAt: at}
		if ok && !at.After(now) && (after == nil || order(x, *after) > 0) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, order)
	return out[:min(limit, len(out))], nil
}

// dueAt is the earlier of an open attempt's timer and its lease's end, where a tick
// could do something.
func (d reads) dueAt(id uuid.UUID, a *attemptRow) (at time.Time, ok bool) {
	l, leased := d.leases[id]
	switch {
	case a.Phase == string(domain.PhaseClosed), a.Phase == "":
		return at, false
	case a.Phase == string(domain.PhaseFinalizing):
		return l.LeaseUntil, leased && !a.Sealable
	case a.DueAt != nil && (!leased || a.DueAt.Before(l.LeaseUntil)):
		return *a.DueAt, true
	}
	return l.LeaseUntil, leased
}

// sealable lists attempts whose bundle may be sealed at now.
func (d reads) sealable(ctx context.Context) ([]domain.AttemptID, error) {
	if err := d.ask(ctx, "sealable"); err != nil {
		return nil, err
	}
	now := d.w.dbNow()
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []domain.AttemptID
	for id, a := range d.attempts {
		if a.Phase == string(domain.PhaseFinalizing) && (a.Sealable || a.DueAt != nil && !a.DueAt.After(now)) {
			out = append(out, domain.NewID[domain.AttemptID](id))
		}
	}
	slices.SortFunc(out, func(a, b domain.AttemptID) int { return compareIDs(a.UUID(), b.UUID()) })
	return out, nil
}

// view joins a runner's rows.
func (d reads) view(id uuid.UUID) (r projections.RunnerView, ok bool) {
	r = d.runners[id]
	if t, seen := d.w.seen[id]; seen {
		r.LastSeen = &t
	}
	for _, l := range d.leases {
		switch {
		case l.RunnerID != id:
		case l.Kind == "upload":
			r.Uploads++
		default:
			r.Leases++
		}
	}
	return r, r.Status != "" && !r.RegisteredAt.IsZero()
}

// Runner returns one runner.
func (d reads) Runner(ctx context.Context, id domain.RunnerID) (projections.RunnerView, error) {
	if err := d.ask(ctx, "runner"); err != nil {
		return projections.RunnerView{}, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	if r, ok := d.view(id.UUID()); ok {
		return r, nil
	}
	return projections.RunnerView{}, domain.ErrRunnerUnknown
}

// Runners lists all runners.
func (d reads) Runners(ctx context.Context) ([]projections.RunnerView, error) {
	if err := d.ask(ctx, "runners"); err != nil {
		return nil, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []projections.RunnerView
	for id := range d.runners {
		if r, ok := d.view(id); ok {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b projections.RunnerView) int {
		return cmp.Or(a.RegisteredAt.Compare(b.RegisteredAt), compareIDs(a.RunnerID, b.RunnerID))
	})
	return out, nil
}

// RunnerStates returns the states of many runners at once.
func (d reads) RunnerStates(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]projections.RunnerState, error) {
	if err := d.ask(ctx, "states"); err != nil {
		return nil, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := map[uuid.UUID]projections.RunnerState{}
	for _, id := range ids {
		if r, ok := d.view(id); ok {
			out[id] = projections.StateOf(r, d.live(id))
		}
	}
	return out, nil
}

// SeenRunner notes that a runner was heard of.
func (d reads) SeenRunner(ctx context.Context, id domain.RunnerID) error {
	if err := d.ask(ctx, "seen"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.w.seen[id.UUID()] = d.w.dbNow()
	return nil
}

func (d reads) live(runner uuid.UUID) (out []projections.LiveLease) {
	for _, l := range d.leases {
		if l.RunnerID == runner {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b projections.LiveLease) int { return compareIDs(a.AttemptID, b.AttemptID) })
	return out
}

// LiveLeases lists a runner's live leases.
func (d reads) LiveLeases(ctx context.Context, id domain.RunnerID) ([]projections.LiveLease, error) {
	if err := d.ask(ctx, "live/"+id.String()); err != nil {
		return nil, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.live(id.UUID()), nil
}

// LeaseCounts counts the leases of started attempts.
func (d reads) LeaseCounts(ctx context.Context, since, now time.Time) (live, over int, err error) {
	if err := d.ask(ctx, "counts"); err != nil {
		return 0, 0, err
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, l := range d.leases {
		if l.Kind != "lease" {
			continue
		}
		live++
		if l.LeaseUntil.After(since) && !l.LeaseUntil.After(now) {
			over++
		}
	}
	return live, over, nil
}

// SweepTimes returns the database's clock and when the sweep was last noted.
func (d reads) SweepTimes(ctx context.Context, _ string) (now, last time.Time, err error) {
	if err := d.ask(ctx, "sweep"); err != nil {
		return now, last, err
	}
	return d.w.dbNow(), d.w.swept, nil
}

// NoteSweep records that the sweep works now.
func (d reads) NoteSweep(ctx context.Context, _ string) error {
	if err := d.ask(ctx, "note"); err != nil {
		return err
	}
	d.w.noteSweep(holder(ctx))
	return nil
}

// SweptAt is when the sweep was last noted.
func (d reads) SweptAt(ctx context.Context) (time.Time, error) {
	if err := d.ask(ctx, "swept"); err != nil {
		return time.Time{}, err
	}
	return d.w.swept, nil
}

// Lease finds a lease by its id.
func (d reads) Lease(ctx context.Context, id domain.LeaseID) (commands.LeaseRecord, error) {
	if err := d.ask(ctx, "lease/"+id.String()); err != nil {
		return commands.LeaseRecord{}, err
	}
	return d.Rows.Lease(ctx, id)
}

// Artifact finds an attempt's artifact by name.
func (d reads) Artifact(ctx context.Context, id domain.AttemptID, artifact string) (commands.ArtifactRecord, bool, error) {
	if err := d.ask(ctx, "artifact/"+artifact); err != nil {
		return commands.ArtifactRecord{}, false, err
	}
	return d.Rows.Artifact(ctx, id, artifact)
}

// VaultTokens lists an attempt's Vault tokens.
func (d reads) VaultTokens(ctx context.Context, id domain.AttemptID) ([]commands.TokenRecord, error) {
	if err := d.ask(ctx, "tokens/"+id.String()); err != nil {
		return nil, err
	}
	return d.Rows.VaultTokens(ctx, id)
}

// LeftTokens lists the tokens that nobody looks after any more.
func (d reads) LeftTokens(ctx context.Context, pools []string, limit int) ([]projections.LeftToken, error) {
	if err := d.ask(ctx, "left tokens"); err != nil {
		return nil, err
	}
	return d.leftTokens(pools, d.w.dbNow(), limit), nil
}

// QueueDepth counts the attempts that wait.
func (d reads) QueueDepth(ctx context.Context) (int, error) {
	if err := d.ask(ctx, "depth"); err != nil {
		return 0, err
	}
	return d.Rows.QueueDepth(ctx)
}

// rowLease is a fenced lease that one replica may hold, by the database's clock.
type rowLease struct {
	holder string
	term   int64
	until  time.Time
}

// rowLeases are the table of them.
type rowLeases struct{ w *World }

// AcquireLease takes the named lease while nobody holds it.
func (l rowLeases) AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (term int64, ok bool, err error) {
	if err := l.ask(ctx, name); err != nil {
		return 0, false, err
	}
	now, is := l.w.dbNow(), l.w.rowLeases[name]
	if now.Before(is.until) {
		return 0, false, nil
	}
	l.w.count("lease", "acquired "+name)
	l.w.rowLeases[name] = rowLease{holder, is.term + 1, now.Add(ttl)}
	return is.term + 1, true, nil
}

// RenewLease prolongs a lease; false if another term began.
func (l rowLeases) RenewLease(ctx context.Context, name, holder string, term int64, ttl time.Duration) (bool, error) {
	if err := l.ask(ctx, name); err != nil {
		return false, err
	}
	is := l.w.rowLeases[name]
	if is.holder != holder || is.term != term {
		l.w.count("lease", "lost "+name)
		return false, nil
	}
	l.w.rowLeases[name] = rowLease{holder, term, l.w.dbNow().Add(ttl)}
	return true, nil
}

// ReleaseLease gives a lease back.
func (l rowLeases) ReleaseLease(ctx context.Context, name, holder string, term int64) error {
	if err := l.ask(ctx, name); err != nil {
		return err
	}
	if is := l.w.rowLeases[name]; is.holder == holder && is.term == term {
		l.w.rowLeases[name] = rowLease{"", term, l.w.dbNow()}
	}
	return nil
}

func (l rowLeases) ask(ctx context.Context, name string) error {
	if _, err := l.w.step(ctx, "row lease "+name); err != nil {
		return err
	}
	if l.w.stalled && name == "sweeper" {
		return errStalled
	}
	return nil
}
