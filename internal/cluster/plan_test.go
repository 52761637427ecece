package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// The cluster.
const (
	replicaCount = 3
	runnerCount  = 5
	slotCount    = 3

	receiverCount = 2
)

// plan is what a seed means.
type plan struct {
	Seed   uint64
	Length time.Duration // faults begin within it
	Jobs   []job
	Faults []fault
}

// job is one attempt and what its caller does.
type job struct {
	ID, Operation uuid.UUID
	At            time.Duration // submitted
	Work          work
	Timeout       int             // seconds
	Cancels       []time.Duration // after the submit, each by a caller of its own
	Follow        string          // "", poll, tail
}

// fault is one thing that breaks, and when it is whole again.
type fault struct {
	Kind   string
	Target int // replica or runner
	At     time.Duration
	For    time.Duration
	Reset  bool // connections of a held link are thrown away at its end
}

func (f fault) String() string {
	return fmt.Sprintf("%s %d at %s for %s", f.Kind, f.Target, f.At.Round(time.Millisecond), f.For.Round(time.Millisecond))
}

// faultKinds lists all there are; those of the cable need namespaces, those of
// brokers and receivers a cluster that delivers.
var faultKinds = []string{
	"replica.kill", "replica.stop", "leader.stop", "leader.kill", "replica.roll",
	"agent.kill", "agent.stop", "agent.drain", "shim.kill", "shim.stop", "executor.kill", "executor.stop",
	"link.blackhole", "link.requests-held", "link.answers-lost", "link.slow", "link.resets",
	"cable.pulled", "postgres.kill", "postgres.restart", "s3.kill", "s3.pause",
	"broker.kill", "broker.restart", "broker.pause",
	"receiver.down", "receiver.500", "receiver.redirect", "receiver.slow", "receiver.late", "receiver.mid-body", "receiver.no-answer",
}

// planned are the kinds that a cluster can suffer.
func planned(netns, delivers bool) []string {
	return slices.DeleteFunc(slices.Clone(faultKinds), func(kind string) bool {
		switch what, _, _ := strings.Cut(kind, "."); what {
		case "cable":
			return !netns
		case "broker", "receiver":
			return !delivers
		}
		return false
	})
}

// random gives everything a plan draws; it draws nothing from elsewhere.
type random struct{ *rand.Rand }

func (r random) between(a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)+1))
}

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func (r random) uuid() uuid.UUID {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return b
}

func planOf(seed uint64, length time.Duration, netns, delivers bool) plan {
	r := random{rand.New(rand.NewPCG(seed, 7))}
	p := plan{Seed: seed, Length: length}
	for at := time.Duration(0); at < length; at += r.between(50*time.Millisecond, 550*time.Millisecond) {
		p.Jobs = append(p.Jobs, r.job(at))
	}
	// Faults are drawn from a stream of their own, so that jobs are the same with
	// namespaces and without.
	r = random{rand.New(rand.NewPCG(seed, 8))}
	kinds := planned(netns, delivers)
	var deck []string
	step := 1200 * time.Millisecond
	short := length < longRound/2
	if short {
		step = length * 2 / time.Duration(len(kinds)+1) // so that each kind comes once
	}
	for at := step / 2; at < length; at += r.between(step/5, step-step/5) {
		if len(deck) == 0 { // each kind once before any comes again
			deck = slices.Clone(kinds)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := r.fault(deck[0], at)
		if short && at > length/6 {
			f.For = min(f.For, length-time.Second) // a short round has to end
		}
		p.Faults = append(p.Faults, f)
		deck = deck[1:]
	}
	return p
}

func (r random) job(at time.Duration) job {
	j := job{ID: r.uuid(), Operation: r.uuid(), At: at, Timeout: 60}
	j.Work = work{
		Lines: 20 + r.IntN(250), Errors: r.IntN(30), PauseMS: 1 + r.IntN(25), End: endOK,
		Stubborn: r.chance(10), Family: r.chance(10), Artifact: r.chance(30),
	}
	if r.chance(60) {
		j.Work.Extra = r.IntN(3000)
	}
	switch x := r.IntN(100); {
	case x < 8:
		j.Work.End = endFail
	case x < 14:
		j.Work.End = endCrash
	case x < 20:
		j.Work.End = endHang
		j.Work.PauseMS = 10 + r.IntN(20)
		j.Timeout = 6 + r.IntN(3) // the action asks for as much
	}
	if r.chance(25) {
		for range 1 + r.IntN(3) {
			j.Cancels = append(j.Cancels, r.between(0, 3*time.Second))
		}
	}
	j.Follow = []string{"", "", "poll", "tail"}[r.IntN(4)]
	return j
}

func (r random) fault(kind string, at time.Duration) fault {
	f := fault{Kind: kind, At: at, Reset: r.chance(50)}
	past := lease() + r.between(time.Second, 2*time.Second)
	switch kind {
	case "replica.kill", "leader.kill":
		f.Target, f.For = r.IntN(replicaCount), r.between(100*time.Millisecond, 3*time.Second)
	case "replica.stop", "leader.stop":
		f.Target, f.For = r.IntN(replicaCount), r.between(time.Second, 6*time.Second)
	case "postgres.kill":
		f.For = r.between(0, 1500*time.Millisecond)
	case "s3.kill", "s3.pause":
		f.For = r.between(500*time.Millisecond, 5*time.Second)
	case "agent.kill":
		f.Target, f.For = r.IntN(runnerCount), r.between(50*time.Millisecond, 4*time.Second)
		if r.chance(40) {
			f.For = past
		}
	case "link.slow", "link.resets", "shim.stop", "executor.stop":
		f.Target, f.For = r.IntN(runnerCount), r.between(time.Second, lease()+time.Second)
	case "agent.stop", "link.blackhole", "link.requests-held", "link.answers-lost", "cable.pulled":
		f.Target, f.For = r.IntN(runnerCount), r.between(time.Second, lease())
		if r.chance(40) {
			f.For = past
		}
	case "agent.drain", "shim.kill", "executor.kill":
		f.Target = r.IntN(runnerCount)
	case "broker.kill":
		f.For = r.between(0, 4*time.Second)
	case "broker.pause":
		f.For = r.between(time.Second, 14*time.Second) // the service waits for an answer for ten
	default:
		if strings.HasPrefix(kind, "receiver.") {
			f.Target, f.For = r.IntN(receiverCount), r.between(time.Second, 8*time.Second)
		}
	}
	return f
}

// spec is the JobSpec of a job.
func (j job) spec() *domain.JobSpec {
	return &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](j.Operation), PlanNodeID: j.Work.String(), AttemptID: j.attempt(),
		JobType: "verification", Action: "verify.tcp.connect",
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: 9},
		}}},
		Inputs:         domain.Inputs{Parameters: []byte(`{"interval_seconds":0.1,"stable_successes":1,"stable_seconds":0,"expect":[{"name":"port_open","connect":true}]}`)},
		OutputContract: domain.OutputContract{Evidence: []string{"port_open"}},
		Controls:       domain.Controls{TimeoutSeconds: j.Timeout},
	}
}

func (j job) attempt() domain.AttemptID { return domain.NewID[domain.AttemptID](j.ID) }

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d jobs in %s, %d faults:\n", p.Seed, len(p.Jobs), p.Length, len(p.Faults))
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	return b.String()
}
