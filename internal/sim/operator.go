package sim

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// submission is an attempt as the control plane knows it.
type submission struct {
	id       domain.AttemptID
	accepted bool
}

// submitAll plans the submits, and what operators do to each attempt.
func (w *World) submitAll() {
	for n := range w.Attempts {
		r := dice(mix(w.Seed, name("submission"), uint64(n)))
		at := time.Duration(r.Int64N(int64(w.arriving())))
		w.loop.plan(w.start.Add(at), mix(w.Seed, name("submit"), uint64(n)), func() { w.submit(r, uint64(n)) })
	}
}

func (w *World) submit(r *rand.Rand, n uint64) {
	controls := domain.Controls{TimeoutSeconds: 60 + r.IntN(240), QueueTimeoutSeconds: 30 + r.IntN(400), Priority: r.IntN(3)}
	if r.IntN(3) == 0 {
		controls.IdleTimeoutSeconds = 15 + r.IntN(45)
	}
	w.submitWith(r, n, controls)
}

func (w *World) submitWith(r *rand.Rand, n uint64, controls domain.Controls) {
	ids := &runner{ids: dice(mix(w.Seed, name("attempt"), n))}
	spec, raw := jobSpec(ids.newID(), ids.newID(), controls)
	if r.IntN(30) == 0 && !w.endless {
		spec.Target.Resources[0].Binding.Address = "192.0.2.1" // policy refuses it
		raw = encode(spec)
	}
	sub := &submission{id: spec.AttemptID}
	w.submissions = append(w.submissions, sub)
	command := domain.NewID[domain.CommandID](spec.AttemptID.UUID())
	w.insist(mix(n, 1), "submit", command, func(ctx context.Context, to *replica) (any, error) {
		s := *spec
		done, err := to.svc.Submit(ctx, meta(domain.NewID[domain.CommandID](uuid.New()), "control-plane", domain.RoleControlPlane), &s, raw)
		if domain.KindOf(err) == domain.KindOverloaded {
			w.count("fault", "queue_full")
		}
		return done, err
	}, func(err error) {
		if err == nil {
			sub.accepted = true
		}
	})
	if w.Faults.has(Operator) {
		w.operate(r, n, spec.AttemptID)
	}
}

// jobSpec makes a job that policy allows, and its bytes.
func jobSpec(operation, attempt uuid.UUID, controls domain.Controls) (*domain.JobSpec, []byte) {
	s := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](operation), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](attempt),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 80},
		}}},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(`{"expect":[{"name":"open","connect":true}]}`)},
		Controls: controls,
	}
	return s, encode(s)
}

func encode(s *domain.JobSpec) []byte {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // a JobSpec that this package made
	}
	return raw
}

// operate plans what people do to an attempt.
func (w *World) operate(r *rand.Rand, n uint64, id domain.AttemptID) {
	later := func(f func()) {
		span := 90 * time.Second
		if r.IntN(2) == 0 {
			span = 5 * time.Second // while it is offered and started
		}
		w.loop.plan(time.Now().Add(time.Duration(r.Int64N(int64(span)))), mix(w.Seed, name("operate"), n, r.Uint64()), f)
	}
	ids := &runner{ids: dice(mix(w.Seed, name("operator"), n))}
	for i := range uint64(3) {
		command := domain.NewID[domain.CommandID](ids.newID())
		m := meta(command, "operator", domain.RoleOperator)
		switch r.IntN(6) {
		case 0, 1:
			reason := domain.StopCancel
			if r.IntN(2) == 0 {
				reason = domain.StopOperatorAbort
			}
			later(func() {
				w.count("fault", string(reason))
				w.insist(mix(n, 2, i), "stop", command, func(ctx context.Context, to *replica) (any, error) {
					return to.svc.Stop(ctx, m, id, reason, "no longer wanted")
				}, func(error) {})
			})
		case 2:
			later(func() {
				w.count("fault", "requeue")
				w.insist(mix(n, 3, i), "requeue", command, func(ctx context.Context, to *replica) (any, error) {
					return to.svc.Requeue(ctx, m, id, "it hangs")
				}, func(error) {})
			})
		}
	}
}

// insist repeats a request of the control plane or an operator until the answer
// is definite.
func (w *World) insist(id uint64, what string, command domain.CommandID, do func(context.Context, *replica) (any, error), done func(error)) {
	var try func(n uint64)
	try = func(n uint64) {
		w.send(call{id: mix(id, name("try"), n), what: what, command: command, do: do, reply: func(_ any, err error) {
			if definite(err) {
				done(err)
				return
			}
			w.loop.plan(time.Now().Add(time.Second<<min(n, 4)), mix(w.Seed, id, name("again"), n), func() { try(n + 1) })
		}})
	}
	try(0)
}

// trouble plans the faults that come and go.
func (w *World) trouble() {
	w.spells(StoreAway, "store_away", 2, 12*time.Second, func(on bool) { w.storeAway = on })
	w.spells(Conflicts, "conflict_storm", 4, 8*time.Second, func(on bool) { w.storm = on })
	w.spells(ObjectsAway, "objects_away", 2, 90*time.Second, func(on bool) { w.objectsAway = on })
	w.spells(StalledSweeps, "stalled_sweeps", 2, 60*time.Second, func(on bool) { w.stalled = on; w.disturb() })
	w.spells(APIAway, "api_away", 2, 240*time.Second, func(on bool) { w.apiAway = on })
	w.spells(StalledFeed, "stalled_feed", 3, 60*time.Second, func(on bool) {
		w.fedTo = 0
		if on {
			w.fedTo = w.obs.events()
		}
	})
	if w.Faults.has(ObjectsGone) {
		w.loop.plan(w.start.Add(time.Minute), mix(w.Seed, name("objects gone")), func() {
			w.count("fault", "objects_gone")
			w.objectsAway = true
		})
		w.loop.plan(w.start.Add(61*time.Minute), mix(w.Seed, name("objects back")), func() { w.objectsAway = false })
	}
	w.spells(Downtime, "downtime", 2, 200*time.Second, func(on bool) {
		for _, r := range w.replicas {
			w.setUp(r, !on)
		}
	})
	w.jumps()
	for i, r := range w.replicas {
		w.spells(ReplicaKills, "replica_kill", 8, 20*time.Second, func(on bool) { w.setUp(r, !on) }, uint64(i))
		w.spells(ReplicaPauses, "replica_pause", 4, 90*time.Second, func(on bool) { w.pause(r, on) }, uint64(i))
	}
	for i := range w.runners {
		r, i := w.runners[i], uint64(i)
		w.spells(Partitions, "partition", 1, 120*time.Second, func(on bool) { r.cut = cut{on, on} }, i)
		w.spells(Partitions, "partition_in", 1, 120*time.Second, func(on bool) { r.cut.in = on }, i)
		w.spells(Partitions, "partition_out", 1, 120*time.Second, func(on bool) { r.cut.out = on }, i)
		w.spells(WallSteps, "wall_step", 4, 90*time.Second, func(on bool) {
			r.wall = 0
			if on {
				r.wall = time.Duration(r.rng.IntN(7200)-3600) * time.Second
			}
		}, i)
		w.spells(RunnerCrashes, "runner_crash", 8, 40*time.Second, func(on bool) {
			if on {
				r.crash()
			} else {
				r.restart()
			}
		}, i)
		w.spells(AgentPauses, "agent_pause", 2, 150*time.Second, func(on bool) {
			if on {
				r.pause(false)
			} else {
				r.resume(false)
			}
		}, i)
		w.spells(MachinePauses, "machine_pause", 2, 150*time.Second, func(on bool) {
			if on {
				r.pause(true)
			} else {
				r.resume(true)
			}
		}, i)
		w.changeRunner(r, i)
	}
}

func (w *World) setUp(r *replica, up bool) {
	switch {
	case !up:
		w.kill(r)
	case !r.up:
		w.disturb()
		w.boot(r)
	}
}

// spells plans times in which something is wrong.
func (w *World) spells(f Faults, what string, most int, longest time.Duration, set func(on bool), which ...uint64) {
	if !w.Faults.has(f) {
		return
	}
	r := dice(mix(append([]uint64{w.Seed, name(what)}, which...)...))
	for range 1 + r.IntN(most) {
		from := time.Duration(r.Int64N(int64(w.Busy)))
		length := time.Duration(r.Int64N(int64(longest)))
		if r.IntN(2) == 0 {
			length /= 8
		}
		key := r.Uint64()
		w.loop.plan(w.start.Add(from), key, func() {
			if !w.calm {
				w.count("fault", what)
				set(true)
			}
		})
		w.loop.plan(w.start.Add(from+length), key+1, func() {
			if !w.calm {
				set(false)
			}
		})
	}
}

// jumps makes the database's clock jump, there and back.
func (w *World) jumps() {
	if !w.Faults.has(ClockJumps) {
		return
	}
	r := dice(mix(w.Seed, name("jumps")))
	for range 1 + r.IntN(4) {
		by := time.Duration(r.IntN(120_000)-40_000) * time.Millisecond
		if r.IntN(2) == 0 {
			by /= 20
		}
		w.loop.plan(w.start.Add(time.Duration(r.Int64N(int64(w.Busy)))), r.Uint64(), func() {
			if w.calm {
				return
			}
			what := "clock_jump"
			if by < 0 {
				what = "clock_jump_back"
			}
			w.count("fault", what)
			w.jumpBy(by)
		})
	}
}

// changeRunner plans what operators do to a runner.
func (w *World) changeRunner(r *runner, n uint64) {
	if !w.Faults.has(Operator) {
		return
	}
	d := dice(mix(w.Seed, name("change"), n))
	for i := range uint64(2) {
		change := []string{"pause", "resume", "drain", "none", "none", "evict"}[d.IntN(6)]
		at := time.Duration(d.Int64N(int64(w.Busy)))
		command := domain.NewID[domain.CommandID](r.newID())
		if change == "none" || change == "evict" && n == 0 {
			continue
		}
		m := meta(command, "operator", domain.RoleOperator)
		act := func(change string, m2 uint64) {
			w.count("fault", change)
			w.insist(mix(name("change"), n, i, m2), "change", command, func(ctx context.Context, to *replica) (any, error) {
				done, err := to.svc.ChangeRunner(ctx, m, r.id, change, "as told")
				if err == nil && change == "evict" {
					err = to.dispatch.Evicted(ctx, r.id)
				}
				return done, err
			}, func(error) {})
		}
		w.loop.plan(w.start.Add(at), mix(w.Seed, name("change at"), n, i), func() { act(change, 0) })
	}
}

// heal ends all trouble.
func (w *World) heal() {
	w.calm = true
	w.storeAway, w.storm, w.objectsAway, w.stalled, w.apiAway, w.fedTo = false, false, false, false, false, 0
	for _, r := range w.replicas {
		w.pause(r, false)
		w.setUp(r, true)
	}
	for _, r := range w.runners {
		r.cut = cut{}
		if r.gone {
			continue
		}
		if r.frozen {
			r.resume(true)
		}
		if r.paused {
			r.resume(false)
		}
		r.restart()
	}
}
