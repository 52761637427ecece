package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
)

// runner is a machine with an agent and, for each job, a shim. The agent may
// crash or be stopped; the shim goes on, and ends the job by its own clock.
type runner struct {
	w       *World
	n       int
	rng     *rand.Rand
	ids     *rand.Rand // for ids alone, so that draws elsewhere do not change them
	planned uint64
	id      domain.RunnerID
	tokenID domain.TokenID
	slots   int
	drift   float64

	up      bool
	life    int  // raised by each crash of the agent
	cut     cut  // partitioned
	paused  bool // the agent
	frozen  bool // the machine
	gone    bool // for good
	evicted bool
	picky   bool // it declines what it is offered
	drain   bool // the service told it to take nothing more
	asked   int  // counts held requests
	hangUp  func()
	idle    time.Time     // since when the held request has tokens for offers; zero: it has none
	wall    time.Duration // how far its wall clock is off
	waiting []func()      // what the agent does when it goes on
	held    []func()      // what shims do when the machine goes on
	tokens  []string      // one per slot, until an offer uses it
	jobs    []*job
}

// cut says in which direction a runner's messages are lost.
type cut struct{ out, in bool }

// wallNow is what the runner's wall clock shows. Nothing but the times that it tells
// may depend on it.
func (r *runner) wallNow() time.Time { return time.Now().Add(r.wall) }

func (r *runner) newID() uuid.UUID {
	var u uuid.UUID
	for i := range u {
		u[i] = byte(r.ids.UintN(256))
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

func (r *runner) command() domain.CommandID { return domain.NewID[domain.CommandID](r.newID()) }

// after plans something that the agent does, unless it was killed by then.
func (r *runner) after(d time.Duration, f func()) {
	life := r.life
	r.planned++
	r.w.loop.plan(time.Now().Add(d), mix(r.w.Seed, name("runner"), uint64(r.n), r.planned), func() { r.agent(life, f) })
}

func (r *runner) agent(life int, f func()) {
	switch {
	case r.life != life || !r.up || r.evicted:
	case r.paused || r.frozen:
		r.waiting = append(r.waiting, func() { r.agent(life, f) })
	default:
		f()
	}
}

// shimAfter plans something that a shim does, whatever becomes of the agent.
func (r *runner) shimAfter(d time.Duration, f func()) {
	r.planned++
	r.w.loop.plan(time.Now().Add(d), mix(r.w.Seed, name("shim"), uint64(r.n), r.planned), func() { r.shim(f) })
}

func (r *runner) shim(f func()) {
	if r.frozen {
		r.held = append(r.held, func() { r.shim(f) })
		return
	}
	f()
}

// send sends a request of the agent.
func (r *runner) send(what string, command domain.CommandID, timeout time.Duration, do func(context.Context, *replica) (any, error), reply func(any, error)) (hangUp func()) {
	life := r.life
	r.planned++
	return r.w.send(call{
		id: mix(name("message"), uint64(r.n), r.planned), from: r, what: what, command: command, timeout: timeout, do: do,
		reply: func(v any, err error) { r.agent(life, func() { reply(v, err) }) },
	})
}

// insist repeats a request under one command id until the answer is definite.
func (r *runner) insist(what string, command domain.CommandID, do func(context.Context, *replica) (any, error), done func(any, error)) {
	r.send(what, command, r.timeout(), do, func(v any, err error) {
		if definite(err) {
			done(v, err)
			return
		}
		r.after(time.Duration(200+r.rng.IntN(2_000))*time.Millisecond, func() { r.insist(what, command, do, done) })
	})
}

func (r *runner) timeout() time.Duration {
	if r.w.Profile == "fast" {
		return time.Second
	}
	return 5 * time.Second
}

func (r *runner) meta(command domain.CommandID) commands.Meta {
	return meta(command, r.id.String(), domain.RoleRunner)
}

func (r *runner) begin() {
	r.up = true
	r.tokens = nil
	for range r.slots {
		r.tokens = append(r.tokens, r.newID().String())
	}
	r.poll()
	r.report()
}

// request is what the runner asks with: a token's hash for each free slot, and what
// it knows.
func (r *runner) request() dispatch.NextRequest {
	var req dispatch.NextRequest
	free := r.slots
	for _, j := range r.jobs {
		if !j.completed && !j.refused {
			free--
		}
		req.Known = append(req.Known, j.call.LeaseID.String())
		if j.stopped {
			req.Known = append(req.Known, "stop/"+j.call.LeaseID.String())
		}
	}
	if r.drain {
		req.Known = append(req.Known, "drain")
		return req
	}
	for _, t := range r.tokens[:max(0, min(free, len(r.tokens)))] {
		req.TokenSHA256 = append(req.TokenSHA256, sha(t))
	}
	req.FreeSlots = len(req.TokenSHA256)
	return req
}

// poll holds a request for work, over and over. One that is asked anew gives up the
// one before it.
func (r *runner) poll() {
	if r.hangUp != nil {
		r.hangUp()
	}
	r.asked++
	asked, req := r.asked, r.request()
	wait := time.Duration(1+r.rng.IntN(30)) * time.Second
	r.idle = time.Time{}
	if req.FreeSlots > 0 {
		r.idle = time.Now()
	}
	sent := time.Now()
	r.hangUp = r.send("next", domain.CommandID{}, wait+5*time.Second, func(ctx context.Context, to *replica) (any, error) {
		return to.dispatch.Next(ctx, r.id, req, wait)
	}, func(v any, err error) {
		if asked != r.asked {
			return
		}
		pause := time.Duration(10+r.rng.IntN(90)) * time.Millisecond
		if n, ok := v.(dispatch.Next); ok && err == nil {
			r.learn(n, sent)
		} else if domain.KindOf(err) == domain.KindGone {
			r.leave()
			return
		} else {
			pause = time.Duration(500+r.rng.IntN(3_500)) * time.Millisecond
		}
		r.idle = time.Time{}
		r.after(pause, func() {
			if asked == r.asked {
				r.poll()
			}
		})
	})
}

// freed asks anew: there is a slot more.
func (r *runner) freed() {
	if r.up && r.hangUp != nil {
		r.after(time.Millisecond, r.poll)
	}
}

func (r *runner) learn(n dispatch.Next, sent time.Time) {
	if n.Drain && !r.drain {
		r.w.count("runner", "told to drain")
	}
	r.drain = n.Drain
	for _, j := range slices.Clone(r.jobs) {
		for _, s := range n.Stops {
			if s.LeaseID == j.call.LeaseID {
				j.onStop(s.Reason)
			}
		}
		if slices.Contains(n.Gone, j.call.LeaseID) && j.started && sent.After(j.startAcked) {
			j.onLost()
		}
	}
	for _, o := range n.Offers {
		if slices.ContainsFunc(r.jobs, func(j *job) bool { return j.call.LeaseID == o.Lease.ID }) {
			continue
		}
		i := slices.IndexFunc(r.tokens, func(t string) bool { return sha(t) == o.Lease.TokenSHA256 })
		if i < 0 {
			continue // the agent that asked for it is no more
		}
		token := r.tokens[i]
		r.tokens[i] = r.newID().String()
		r.take(o, token)
	}
}

// take begins with an offered attempt, or gives it back.
func (r *runner) take(o dispatch.Offer, token string) {
	j := &job{
		r: r, attempt: o.Attempt.ID, clocks: o.Attempt.Clocks, spool: map[string][]byte{}, acked: map[string]int64{}, chunks: map[string]*chunk{},
		call: commands.LeaseCall{LeaseID: o.Lease.ID, Epoch: o.Lease.Epoch, Token: token, RunnerID: r.id},
	}
	id := r.command()
	r.w.obs.caller(id, j)
	if r.picky || r.rng.IntN(25) == 0 && !r.w.endless {
		reason := []string{domain.ReleaseDeclined, domain.ReleaseDraining, domain.ReleasePolicyUnavailable}[r.rng.IntN(3)]
		r.insist("release", id, func(ctx context.Context, to *replica) (any, error) {
			return nil, to.svc.Release(ctx, r.meta(id), j.call, reason)
		}, func(any, error) {})
		return
	}
	r.jobs = append(r.jobs, j)
	if r.w.on(Delays) && r.rng.IntN(6) == 0 {
		r.w.count("fault", "late_start")
		r.after(time.Duration(r.rng.IntN(25_000))*time.Millisecond, func() { j.start(id) })
		return
	}
	j.start(id)
}

// report renews the lease of every started job.
func (r *runner) report() {
	every := r.w.profile().ReportEvery
	for _, j := range slices.Clone(r.jobs) {
		if j.started && !j.refused {
			j.report(0)
		}
	}
	r.after(every, r.report)
}

// crash kills the agent; its shims go on. What it had on disk is there when it
// comes back.
func (r *runner) crash() {
	r.up = false
	r.life++
	r.waiting = nil
	r.paused, r.drain = false, false
	r.idle = time.Time{}
	if r.hangUp != nil {
		r.hangUp()
		r.hangUp = nil
	}
}

func (r *runner) restart() {
	if r.up || r.evicted {
		return
	}
	r.up = true
	id := r.command()
	r.insist("register", id, func(ctx context.Context, to *replica) (any, error) {
		return to.svc.RegisterRunner(ctx, r.meta(id), commands.RegisterRunner{TokenID: r.tokenID, Registered: r.registration()})
	}, func(_ any, err error) {
		if err != nil {
			r.w.count("register", word(err))
			r.leave()
			return
		}
		r.life++ // it takes its jobs over only now: answers to what they began before are not for them
		for _, j := range slices.Clone(r.jobs) {
			j.restarted()
		}
		r.begin()
	})
}

// leave is what an evicted runner does: it ends everything and goes.
func (r *runner) leave() {
	for _, j := range slices.Clone(r.jobs) {
		j.end("stopped")
	}
	r.evicted = true
	r.waiting = nil
}

func (r *runner) pause(machine bool) {
	if machine {
		r.frozen = true
		for _, j := range r.jobs {
			j.act(false)
		}
		return
	}
	r.paused = true
}

// resume lets an agent or a machine go on. Shims look at their clock first.
func (r *runner) resume(machine bool) {
	if machine {
		if !r.frozen { // two pauses at once: the first one's end was the end
			return
		}
		r.frozen = false
		for _, j := range slices.Clone(r.jobs) {
			if j.running && !j.fenced() {
				j.act(true)
			} else if j.running {
				j.running = false // the kernel ended it as it woke
				j.result = "stopped"
				r.after(0, j.finish)
			}
		}
		held := r.held
		r.held = nil
		for _, f := range held {
			f()
		}
	} else {
		r.paused = false
	}
	if !r.paused && !r.frozen {
		waiting := r.waiting
		r.waiting = nil
		for _, f := range waiting {
			f()
		}
	}
}

func (r *runner) registration() domain.RunnerRegistered {
	return domain.RunnerRegistered{
		RunnerID: r.id, Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"), JobTypes: []string{"verification"},
		Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: r.slots,
	}
}

// enrol lets a new runner in, before anything goes wrong.
func (w *World) enrol() error {
	n := len(w.runners)
	key := mix(w.Seed, name("runner"), uint64(n))
	r := &runner{w: w, n: n, rng: dice(key), ids: dice(mix(key, 1))}
	r.id, r.slots = domain.NewID[domain.RunnerID](r.newID()), 1+r.rng.IntN(3)
	r.drift = (2*r.rng.Float64() - 1) * w.Drift
	if w.Faults.has(Delays) && r.rng.IntN(8) == 0 {
		r.picky = true
		w.count("fault", "picky_runner")
	}
	if !w.Faults.has(RunnerDrift) {
		r.drift = 0
	} else {
		w.count("fault", "runner_drift")
	}
	enrolment := domain.NewID[domain.EnrolmentID](r.newID())
	register, create := r.command(), r.command()
	var failed error
	w.outside(key, func(ctx context.Context) error {
		s := w.replicas[0].svc
		if err := s.CreateEnrolment(ctx, meta(create, "operator", domain.RoleOperator), domain.EnrolmentCreated{
			EnrolmentID: enrolment, Pool: "default", SHA256: sha("secret"), ExpiresAt: w.dbNow().Add(time.Hour)}); err != nil {
			return err
		}
		reg, err := s.RegisterRunner(ctx, r.meta(register), commands.RegisterRunner{
			Enrolment: &commands.EnrolmentProof{ID: enrolment, Secret: "secret"}, TokenSHA256: sha("runner secret"), Registered: r.registration()})
		r.tokenID = reg.TokenID
		return err
	}, &failed)
	if failed != nil {
		return fmt.Errorf("enrol a runner: %w", failed)
	}
	w.runners = append(w.runners, r)
	return nil
}

// outside carries something out that no fault touches, and waits for it.
func (w *World) outside(key uint64, fn func(ctx context.Context) error, failed *error) {
	done := false
	w.spawn(mix(key, name("outside")), nil, func(ctx context.Context) {
		*failed = fn(ctx)
		done = true
	})
	w.loop.run(time.Now().Add(time.Hour), func() bool { return done })
	if !done && *failed == nil {
		*failed = errors.New("it did not end")
	}
}
