package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// hit says that something of a runner suffered, so that its attempts may have.
type hit struct {
	Kind     string
	Runner   int    // -1: all of them
	Attempt  string // of a shim or an executor; else empty
	From, To time.Time
}

// tally counts one kind of fault.
type tally struct {
	planned, begun, effective int
	detail                    map[string]int
}

func (w *world) count(kind string) *tally {
	if w.tally[kind] == nil {
		w.tally[kind] = &tally{detail: map[string]int{}}
	}
	return w.tally[kind]
}

// step is something to do at its time. It may ask to be done again after a while.
type step struct {
	at time.Time
	do func() (again time.Duration)
}

// suffer carries out the plan's faults, each with its end. It runs on the test's
// own goroutine.
func (w *world) suffer() {
	var todo []step
	for _, f := range w.plan.Faults {
		w.count(f.Kind).planned++
		tries := 0
		todo = append(todo, step{w.began.Add(f.At), func() time.Duration {
			end := w.begin(f)
			if end == nil {
				// It suffers something else now, or nothing runs there.
				if tries++; tries < maxTries {
					return tryAgain
				}
				return 0
			}
			w.count(f.Kind).begun++
			todo = append(todo, step{time.Now().Add(f.For), end})
			return 0
		}})
	}
	for len(todo) > 0 && w.ctx.Err() == nil {
		w.supervise()
		slices.SortStableFunc(todo, func(a, b step) int { return a.at.Compare(b.at) })
		next := todo[0]
		todo = todo[1:]
		if wait := time.Until(next.at); wait > superviseEvery {
			todo = append(todo, next)
			w.sleep(superviseEvery)
			continue
		} else if !w.sleep(wait) {
			return
		}
		if again := next.do(); again > 0 {
			todo = append(todo, step{time.Now().Add(again), next.do})
		}
	}
}

// A fault that cannot be put on is tried again, for a few seconds in all.
const (
	maxTries = 10
	tryAgain = 300 * time.Millisecond
)

const superviseEvery = 300 * time.Millisecond

// supervise starts again what ended by itself: a replica does that where it finds no
// database at its start. A runner never does.
func (w *world) supervise() {
	for _, r := range w.replicas {
		if r.fault == "" && !r.proc.alive() {
			if code := r.proc.cmd.ProcessState.ExitCode(); code != 1 || len(w.serviceHits) == 0 {
				w.wrong.add("replica %d ended by itself: %s", r.n, r.proc.cmd.ProcessState)
			}
			w.restarted(w.startReplica(r))
		}
	}
	for _, r := range w.runners {
		if r.fault == "" && !r.proc.alive() {
			w.wrong.add("runner %d ended by itself: %s", r.n, r.proc.cmd.ProcessState)
			w.restarted(w.startRunner(r))
		}
	}
}

func (w *world) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

func (w *world) hit(h hit) {
	w.mu.Lock()
	w.hits = append(w.hits, h)
	w.mu.Unlock()
}

// begin puts a fault on and gives what takes it off; nil if it cannot be put on now.
func (w *world) begin(f fault) func() time.Duration {
	kind, what, _ := strings.Cut(f.Kind, ".")
	switch kind {
	case "replica":
		return w.beginReplica(f, w.replicas[f.Target%replicaCount], what)
	case "leader":
		return w.beginLeader(f, what)
	case "agent":
		return w.beginAgent(f, w.runners[f.Target], what)
	case "shim", "executor":
		return w.beginInhabitant(f, kind, what)
	case "link", "cable":
		return w.beginLink(f, w.runners[f.Target], what)
	case "postgres":
		return w.beginPostgres(f, what)
	case "s3":
		return w.beginS3(f, what)
	case "broker":
		return w.delivery.beginBroker(f, what)
	case "receiver":
		return w.delivery.beginReceiver(f, what)
	}
	w.wrong.add("the plan has a fault %q that nobody knows", f.Kind)
	return nil
}

func (w *world) beginReplica(f fault, r *replica, what string) func() time.Duration {
	if r.fault != "" {
		return nil
	}
	r.fault = f.Kind
	from := time.Now()
	whole := func() {
		r.fault = ""
		w.serviceHits = append(w.serviceHits, hit{Kind: f.Kind, From: from, To: time.Now()})
	}
	switch what {
	case "kill":
		if r.proc.kill() {
			w.count(f.Kind).effective++
		}
		return func() time.Duration {
			defer whole()
			return w.restarted(w.startReplica(r))
		}
	case "stop":
		return w.freeze(f, r.proc.cmd.Process.Pid, nil, whole)
	}
	// roll: one after the other ends in order and comes back.
	if slices.ContainsFunc(w.replicas, func(o *replica) bool { return o != r && o.fault != "" }) {
		whole()
		return nil
	}
	for _, o := range w.replicas {
		o.fault = f.Kind
	}
	return w.roll(f, slices.Clone(w.replicas))
}

func (w *world) restarted(err error) time.Duration {
	if err != nil {
		w.wrong.add("start again: %v", err)
	}
	return 0
}

func (w *world) roll(f fault, left []*replica) func() time.Duration {
	asked := time.Time{}
	return func() time.Duration {
		r := left[0]
		gone := asked.IsZero() && !r.proc.alive() // it found no database at its start
		if asked.IsZero() && !gone {
			if err := r.proc.term(); err != nil {
				w.wrong.add("end replica %d in order: %v", r.n, err)
			}
		}
		if asked.IsZero() {
			asked = time.Now()
		}
		if r.proc.alive() && time.Since(asked) < 20*time.Second {
			return 100 * time.Millisecond
		}
		if err := r.proc.ended(0); err != nil && !gone {
			w.wrong.add("a rolling restart: %v", err)
			r.proc.kill()
		}
		if !gone {
			w.count(f.Kind).effective++
		}
		w.restarted(w.startReplica(r))
		r.fault = ""
		w.serviceHits = append(w.serviceHits, hit{Kind: f.Kind, From: asked, To: time.Now()})
		if left = left[1:]; len(left) == 0 {
			return 0
		}
		asked = time.Time{}
		return 700 * time.Millisecond // until it listens
	}
}

// leaders says who holds each row lease, by its term.
func (w *world) leaders() map[string]int64 {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	rows, err := w.desk.Pool.Query(ctx, "SELECT name, term FROM service_leases")
	out := map[string]int64{}
	if err != nil {
		return out
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var term int64
		if rows.Scan(&name, &term) == nil {
			out[name] = term
		}
	}
	return out
}

// beginLeader hits the replica that writes the feed, if that can be told, and counts
// which leaderships changed hands meanwhile.
func (w *world) beginLeader(f fault, what string) func() time.Duration {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	var name string
	err := w.desk.Pool.QueryRow(ctx, `SELECT application_name FROM pg_stat_activity
		WHERE query LIKE '%sequencer_ticks%' AND query LIKE '%INSERT%' AND application_name LIKE 'replica-%' ORDER BY query_start DESC LIMIT 1`).Scan(&name)
	if err == nil {
		if _, err := fmt.Sscanf(name, "replica-%d", &f.Target); err != nil {
			w.wrong.add("a replica is called %q: %v", name, err)
		}
	}
	before := w.leaders()
	end := w.beginReplica(f, w.replicas[f.Target%replicaCount], what)
	if end == nil {
		return nil
	}
	return func() time.Duration {
		for lease, term := range w.leaders() {
			if before[lease] != 0 && term > before[lease] {
				w.count(f.Kind).detail[lease+" changed hands"]++
			}
		}
		return end()
	}
}

// freeze stops a process; its end lets it go on.
func (w *world) freeze(f fault, pid int, h *hit, whole func()) func() time.Duration {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		whole()
		return nil
	}
	stopped := false
	for end := time.Now().Add(time.Second); !stopped && time.Now().Before(end); time.Sleep(time.Millisecond) {
		stopped = processState(pid) == "T"
	}
	if stopped {
		w.count(f.Kind).effective++
		if f.For > lease() {
			w.count(f.Kind).detail["past the lease"]++
		}
	}
	return func() time.Duration {
		defer whole()
		_ = syscall.Kill(pid, syscall.SIGCONT) // somebody may have killed it meanwhile
		if h != nil {
			h.To = time.Now()
			w.hit(*h)
		}
		return 0
	}
}

func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := strings.LastIndexByte(string(stat), ')')
	if err != nil || end < 0 || len(stat) < end+3 {
		return ""
	}
	return string(stat[end+2 : end+3])
}

func (w *world) beginAgent(f fault, r *runner, what string) func() time.Duration {
	if r.fault != "" || !r.proc.alive() {
		return nil
	}
	r.fault = f.Kind
	h := hit{Kind: f.Kind, Runner: r.n, From: time.Now()}
	whole := func() { r.fault = "" }
	switch what {
	case "kill":
		if r.proc.kill() {
			w.count(f.Kind).effective++
			if f.For > lease() {
				w.count(f.Kind).detail["past the lease"]++
			}
		}
		return func() time.Duration {
			defer whole()
			h.To = time.Now()
			w.hit(h)
			return w.restarted(w.startRunner(r))
		}
	case "stop":
		return w.freeze(f, r.proc.cmd.Process.Pid, &h, whole)
	}
	// drain: it ends in order, with its jobs done, and comes back.
	if err := r.proc.term(); err != nil {
		whole()
		return nil
	}
	return func() time.Duration {
		if r.proc.alive() && time.Since(h.From) < drainLimit+45*time.Second {
			return 200 * time.Millisecond
		}
		defer whole()
		if err := r.proc.ended(0); err != nil {
			w.wrong.add("a runner that was drained: %v", err)
			r.proc.kill()
		}
		w.count(f.Kind).effective++
		if time.Since(h.From) > drainLimit {
			h.To = time.Now() // past the drain's limit jobs are ended
			w.hit(h)
		}
		return w.restarted(w.startRunner(r))
	}
}

// beginInhabitant hits the shim or the executor of one running job, of the
// target's if it has one.
func (w *world) beginInhabitant(f fault, kind, what string) func() time.Duration {
	all := w.inhabitants()
	byPID := map[int]inhabitant{}
	var executors []inhabitant
	for _, x := range all {
		byPID[x.pid] = x
		if x.verb == "executor" && x.attempt != "" {
			executors = append(executors, x)
		}
	}
	if len(executors) == 0 {
		return nil
	}
	target := executors[0]
	for _, x := range executors {
		if x.runner == fmt.Sprintf("runner-%d", f.Target) {
			target = x
			break
		}
	}
	h := hit{Kind: f.Kind, Attempt: target.attempt, From: time.Now(), To: time.Now()}
	if _, err := fmt.Sscanf(target.runner, "runner-%d", &h.Runner); err != nil {
		w.wrong.add("a runner is called %q: %v", target.runner, err)
	}
	pid := target.pid
	if kind == "shim" {
		if byPID[target.parent].verb != "shim" {
			return nil // the shim is gone already
		}
		pid = target.parent
	}
	if what == "stop" {
		return w.freeze(f, pid, &h, func() {})
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil
	}
	w.count(f.Kind).effective++
	w.hit(h)
	return func() time.Duration { return 0 }
}

func (w *world) beginLink(f fault, r *runner, what string) func() time.Duration {
	if r.link != "" || !r.proc.alive() {
		return nil
	}
	r.link = f.Kind
	h := hit{Kind: f.Kind, Runner: r.n, From: time.Now()}
	if what == "pulled" {
		return w.pullCable(f, r, h)
	}
	l := linkFault{Reset: f.Reset}
	switch what {
	case "blackhole":
		l.HoldUp, l.HoldDown = true, true
	case "requests-held":
		l.HoldUp = true
	case "answers-lost":
		l.HoldDown, l.Reset = true, true
	case "slow":
		l.Slow = true
	case "resets":
		l.Cut = true
	}
	r.proxy.begin(l)
	return func() time.Duration {
		if n := r.proxy.end(); n > 0 {
			w.count(f.Kind).effective++
			w.count(f.Kind).detail["pieces held, late or cut"] += n
			if f.For > lease() {
				w.count(f.Kind).detail["past the lease"]++
			}
		}
		r.link = ""
		h.To = time.Now()
		w.hit(h)
		return 0
	}
}

func (w *world) pullCable(f fault, r *runner, h hit) func() time.Duration {
	k := r.cable
	if err := k.pull(); err != nil {
		r.link = ""
		w.wrong.add("pull the cable of runner %d: %v", r.n, err)
		return nil
	}
	w.count(f.Kind).effective++
	if f.For > lease() {
		w.count(f.Kind).detail["past the lease"]++
	}
	return func() time.Duration {
		// A runner that was started again meanwhile has another cable.
		if err := k.plug(); err != nil && r.cable == k && r.proc.alive() {
			w.wrong.add("plug the cable of runner %d: %v", r.n, err)
		}
		r.link = ""
		h.To = time.Now()
		w.hit(h)
		return 0
	}
}

func (w *world) beginPostgres(f fault, what string) func() time.Duration {
	h := hit{Kind: f.Kind, From: time.Now()}
	whole := func() {
		h.To = time.Now()
		w.serviceHits = append(w.serviceHits, h)
	}
	if what == "restart" {
		defer whole()
		w.pg.Restart()
		w.count(f.Kind).effective++
		return func() time.Duration { return 0 }
	}
	w.pg.Kill()
	w.count(f.Kind).effective++
	return func() time.Duration {
		defer whole()
		w.pg.Restart()
		return 0
	}
}

func (w *world) beginS3(f fault, what string) func() time.Duration {
	if w.s3fault {
		return nil
	}
	w.s3fault = true
	w.count(f.Kind).effective++
	if what == "pause" {
		w.s3.Pause()
		return func() time.Duration {
			w.s3.Resume()
			w.s3fault = false
			return 0
		}
	}
	w.s3.Stop()
	return func() time.Duration {
		w.s3.Restart()
		w.s3fault = false
		return 0
	}
}

// account writes which faults took effect, and names those that did not.
func (w *world) account(into map[string]*tally) {
	for kind, c := range w.tally {
		if into[kind] == nil {
			into[kind] = &tally{detail: map[string]int{}}
		}
		into[kind].planned += c.planned
		into[kind].begun += c.begun
		into[kind].effective += c.effective
		for d, n := range c.detail {
			into[kind].detail[d] += n
		}
	}
}

// table writes tallies.
func table(all map[string]*tally) string {
	var b strings.Builder
	for _, kind := range faultKinds {
		c := all[kind]
		switch {
		case c == nil || c.planned == 0:
			fmt.Fprintf(&b, "  %-20s not planned: NOT TESTED\n", kind)
		case c.effective == 0:
			fmt.Fprintf(&b, "  %-20s planned %d times and never took effect: NOT TESTED\n", kind, c.planned)
		default:
			fmt.Fprintf(&b, "  %-20s planned %d, begun %d, took effect %d", kind, c.planned, c.begun, c.effective)
			for _, d := range slices.Sorted(maps.Keys(c.detail)) {
				fmt.Fprintf(&b, "; %s: %d", d, c.detail[d])
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
