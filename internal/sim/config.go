package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// Faults is a set of kinds of trouble.
type Faults uint32

// The kinds of trouble.
const (
	LostMessages  Faults = 1 << iota // requests and replies that never arrive
	Duplicates                       // requests that are carried out twice, the second one late
	Delays                           // messages that take seconds, and so overtake each other
	StoreBefore                      // appends that fail before they are stored
	StoreAfter                       // appends that fail after they were stored
	Conflicts                        // storms of clashes
	StoreAway                        // the store is away for a while
	ReplicaKills                     // a replica is killed at whatever step it is in
	Downtime                         // all replicas are away for a while
	StalledSweeps                    // nobody sweeps for a while
	SlowReplicas                     // a replica stands still between two steps
	ClockJumps                       // the database's clock jumps
	Partitions                       // a runner cannot be reached, nor reach anyone
	RunnerCrashes                    // an agent is killed and comes back
	AgentPauses                      // SIGSTOP of an agent; its shim goes on
	MachinePauses                    // a runner's machine stands still
	ObjectsAway                      // object storage is away for a while
	Operator                         // cancels, aborts, requeues, evictions, pauses
	SilentJobs                       // jobs that never end or never say anything
	RunnerDrift                      // runners' clocks that run fast or slow
	ReplicaPauses                    // SIGSTOP of a replica
	APIAway                          // no runner reaches any replica, while the sweeper works
	WallSteps                        // a runner's wall clock is set
	ObjectsGone                      // object storage is away for an hour
	StalledFeed                      // the sequencer stands still
	QueueLimit                       // submits are answered 429 while the queue is long
	endOfFaults
)

const allFaults = endOfFaults - 1

var faultNames = []string{"lost", "duplicates", "delays", "store_before", "store_after", "conflicts", "store_away",
	"replica_kills", "downtime", "stalled_sweeps", "slow_replicas", "clock_jumps", "partitions", "runner_crashes",
	"agent_pauses", "machine_pauses", "objects_away", "operator", "silent_jobs", "runner_drift",
	"replica_pauses", "api_away", "wall_steps", "objects_gone", "stalled_feed", "queue_limit"}

// FaultNames lists what counts as a fault in a report.
func FaultNames() []string {
	return []string{"request_lost", "reply_lost", "duplicate", "delayed", "store_before", "store_after", "stored_unanswered", "conflict",
		"store_away", "replica_kill", "downtime", "stalled_sweeps", "slow_replica", "clock_jump", "partition", "runner_crash",
		"agent_pause", "machine_pause", "objects_away", "endless_job", "silent_job", "late_start", "second_start", "second_completion",
		"partition_in", "partition_out", "replica_pause", "api_away", "wall_step", "objects_gone", "stalled_feed", "queue_full",
		"clock_jump_back", "runner_drift", "picky_runner", "pause", "resume", "drain", "evict", "cancel", "operator_abort", "requeue"}
}

// TransitionNames lists what must have happened to attempts, runners and the service
// in a campaign, beside the faults: an event, how an attempt ended, why a lease
// ended, why the service said that it was back.
func TransitionNames() map[string][]string {
	return map[string][]string{
		"event": {"attempt.created", "attempt.policy_decided", "attempt.leased", "attempt.lease_released", "attempt.lease_expired", "attempt.started",
			"attempt.heartbeat", "attempt.progressed", "attempt.log_stored", "attempt.evidence_recorded", "artifact.created",
			"attempt.process_tree_reaped", "attempt.stop_requested", "attempt.completed", "attempt.late_outcome_reported", "attempt.sealed",
			"attempt.succeeded", "attempt.failed", "attempt.cancelled", "attempt.timed_out",
			"runner.registered", "runner.paused", "runner.resumed", "runner.draining", "runner.drained", "runner.evicted", "runner.lost",
			"runner.write_refused", "service.resumed"},
		"end": {"succeeded/", "failed/task_failed", "failed/lease_lost", "failed/offers_exhausted", "failed/queue_timeout", "failed/policy_denied",
			"failed/operator_aborted", "failed/agent_restarted", "failed/start_abandoned", "failed/executor_crashed", "cancelled/cancelled",
			"timed_out/run_timeout", "timed_out/idle_timeout"},
		"expired": {"offer_timeout", "lease_timeout", "upload_timeout", "stop_deadline", "evicted"},
		"resumed": {"no_sweep", "clock", "mass_expiry"},
		"salvage": {"log", "artifact"},
	}
}

func (f Faults) has(k Faults) bool { return f&k != 0 }

func (f Faults) String() string {
	var out []string
	for i, n := range faultNames {
		if f.has(1 << i) {
			out = append(out, n)
		}
	}
	return strings.Join(out, ",")
}

// ParseFaults reads the names that String writes.
func ParseFaults(s string) (Faults, error) {
	var f Faults
next:
	for name := range strings.SplitSeq(s, ",") {
		if name == "" {
			continue
		}
		for i, n := range faultNames {
			if n == name {
				f |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("there is no fault %q; there are %s", name, allFaults)
	}
	return f, nil
}

// Config is a run. ConfigOf draws one from a seed.
type Config struct {
	Seed     uint64
	Profile  string // default, fast
	Replicas int
	Runners  int
	Attempts int
	Busy     time.Duration // how long attempts arrive and faults happen
	Faults   Faults
	Skew     time.Duration // of the database's clock against the replicas'
	Drift    float64       // a runner's clock is off by at most this share, where it drifts
}

// ConfigOf draws a run from a seed. Each run has some kinds of trouble only, so
// that one kind does not hide another.
func ConfigOf(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	c := Config{
		Seed: seed, Profile: "fast", Replicas: 1 + r.IntN(3), Runners: 1 + r.IntN(5), Attempts: 4 + r.IntN(20),
		Busy: time.Duration(60+r.IntN(240)) * time.Second, Drift: 0.0002,
		Skew: time.Duration(r.IntN(1200)-600) * time.Second,
	}
	if r.IntN(2) == 0 {
		c.Profile = "default"
		c.Busy *= 2
	}
	for i := range faultNames {
		if r.IntN(5) < 2 {
			c.Faults |= 1 << i
		}
	}
	c.Faults &^= ObjectsGone
	switch r.IntN(30) {
	case 0, 1:
		c.Attempts, c.Runners, c.Busy = 60, 14, c.Busy/2 // enough leases for them to expire by the dozen
		c.Faults |= APIAway | SilentJobs
	case 2, 3, 4:
		c.Faults = 0 // a quiet run must be quiet
	case 5:
		c.Faults |= ObjectsGone
		c.Busy, c.Attempts = 65*time.Minute, min(c.Attempts, 6)
	}
	return c
}

func (c Config) String() string {
	return fmt.Sprintf("seed %d: %s profile, %d replicas, %d runners, %d attempts, %s busy, database clock %+ds, faults [%s]",
		c.Seed, c.Profile, c.Replicas, c.Runners, c.Attempts, c.Busy, int(c.Skew.Seconds()), c.Faults)
}

// arriving is how long attempts arrive.
func (c Config) arriving() time.Duration {
	if c.Faults.has(ObjectsGone) {
		return min(c.Busy, 3*time.Minute)
	}
	return c.Busy
}

func (c Config) profile() domain.Profile {
	p, _ := domain.ProfileByName(c.Profile)
	return p
}
