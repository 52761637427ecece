package domain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/platform-core/execution-plane-service/domain"
)

// model is what must be true of an attempt, said a second time and shorter. It
// reads event names, and knows nothing of the domain's state.
type model struct {
	phase   string
	epoch   int64
	live    int // live leases
	lost    int
	started bool
	denied  bool
	stop    domain.StopReason
	claim   *domain.Claim
	noFit   bool
	secret  bool // it had one
	scanned bool
}

// follows says which phase each event leads to from each; "" keeps the phase.
// What is not here cannot happen.
var follows = map[string]map[string]string{
	"":           {"created": "queued"},
	"queued":     {"policy_decided": "", "privileges_granted": "", "leased": "leased", "stop_requested": "ending", "sealed": "sealed"},
	"leased":     {"started": "running", "lease_released": "queued", "lease_expired": "queued", "stop_requested": "ending"},
	"running":    {"heartbeat": "", "progressed": "", "log_stored": "", "evidence_recorded": "", "artifact.created": "", "process_tree_reaped": "", "policy_decided": "", "privileges_granted": "", "secret_token_issued": "", "secret_resolved": "", "secret_revoked": "", "stop_requested": "", "completed": "finalizing", "lease_expired": "salvaging"},
	"finalizing": {"heartbeat": "", "log_stored": "", "artifact.created": "", "lease_expired": "", "seal_forced": "forced", "sealed": "sealed"},
	"salvaging":  {"log_stored": "", "artifact.created": "", "late_outcome_reported": "", "seal_forced": "forced", "sealed": "sealed"},
	"forced":     {"sealed": "sealed"},
	"ending":     {"sealed": "sealed"},
	"sealed":     {"scan_passed": "", "scan_failed": "", "succeeded": "closed", "failed": "closed", "cancelled": "closed", "timed_out": "closed"},
	"closed":     {},
}

func (m *model) observe(t *rapid.T, e domain.Event) {
	name := strings.TrimPrefix(e.EventType(), "execution.attempt.")
	next, ok := follows[m.phase][name]
	if !ok {
		t.Fatalf("%s cannot follow in %q", name, m.phase)
	}
	switch e := e.(type) {
	case domain.PolicyDecided:
		m.denied = m.denied || m.phase == "queued" && e.Verdict == "deny"
	case domain.Leased:
		if e.Epoch <= m.epoch {
			t.Fatalf("epoch %d after %d", e.Epoch, m.epoch)
		}
		m.epoch, m.live = e.Epoch, m.live+1
	case domain.LeaseReleased:
		m.live--
	case domain.LeaseExpired:
		m.live--
		if m.phase == "leased" {
			m.lost++
		}
	case domain.Started:
		m.started = true
	case domain.StopRequested:
		if m.stop != "" {
			t.Fatal("a second stop was accepted")
		}
		m.stop = e.Reason
		if m.phase == "leased" {
			m.live--
		}
	case domain.Completed:
		m.claim = &e.Claim
	case domain.SecretResolved:
		m.secret = true
	case domain.ScanPassed, domain.ScanFailed:
		m.scanned = true
	}
	if next == "closed" && m.secret && !m.scanned {
		t.Fatal("it ended without a scan, and it had a secret")
	}
	if next == "closed" {
		m.live = 0 // an upload lease ends with the attempt
	}
	if m.live < 0 || m.live > 1 {
		t.Fatalf("%d live leases", m.live)
	}
	if next != "" {
		m.phase = next
	}
}

// ending is what the result must say: status, code, side effects.
func (m *model) ending() string {
	stop := map[domain.StopReason]string{"cancel": "cancelled", "run_timeout": "run_timeout", "idle_timeout": "idle_timeout", "operator_abort": "operator_aborted"}[m.stop]
	code, effects := "", "possible"
	if !m.started || m.claim != nil && !m.claim.Launched {
		effects = "none"
	}
	switch {
	case m.denied:
		code = "policy_denied"
	case m.claim == nil && stop != "":
		code = stop
	case m.started && m.claim == nil:
		code = "lease_lost"
	case m.claim == nil && m.lost == clocksA.MaxOffers:
		code = "offers_exhausted"
	case m.claim == nil && m.noFit:
		code = "no_runner"
	case m.claim == nil:
		code = "queue_timeout"
	case stop != "" && slices.Contains([]string{"stopped", "agent_restarted", "start_abandoned", "executor_crashed"}, m.claim.Result):
		code = stop
	case m.claim.Result == "stopped":
		code = "executor_crashed"
	case m.claim.Result != "succeeded":
		code = m.claim.Result
	}
	status := "failed"
	switch code {
	case "":
		status = "succeeded"
	case "cancelled":
		status = "cancelled"
	case "run_timeout", "idle_timeout":
		status = "timed_out"
	}
	return status + "/" + code + "/" + effects
}

// machine drives the domain and the model side by side.
type machine struct {
	t       *rapid.T
	now     time.Time
	resumed time.Time
	state   domain.Attempt
	stream  []domain.Fact
	model   model
}

// command issues one command, folds what follows and checks what is always true.
func (m *machine) command(c domain.Command) {
	before := encode(m.t, m.state)
	events, err := domain.DecideAttempt(m.state, c, m.now)
	if late, ok := c.(domain.Complete); ok && errors.Is(err, domain.ErrLeaseLost) {
		events, err = domain.ReportLate(m.state, late), nil
	}
	if got := encode(m.t, m.state); got != before {
		m.t.Fatalf("%T changed the state it was given:\n%s\n%s", c, before, got)
	}
	var named *domain.Error
	if err != nil && (!errors.As(err, &named) || named.Code == "" || len(events) > 0) {
		m.t.Fatalf("%T: %v with %v", c, err, events)
	}
	if tick, ok := c.(domain.Tick); ok && len(events) > 0 && m.model.phase == "queued" {
		m.model.noFit = tick.NoRunner
	}
	for _, e := range events {
		was := m.state
		m.model.observe(m.t, e)
		m.state, err = domain.EvolveAttempt(m.state, e, m.now)
		if err != nil {
			m.t.Fatal(err)
		}
		m.stream = append(m.stream, domain.Fact{Event: e, At: m.now})
		if m.state.Epoch < was.Epoch {
			m.t.Fatalf("the epoch fell from %d to %d", was.Epoch, m.state.Epoch)
		}
		if was.Outcome != nil && encode(m.t, was.Outcome) != encode(m.t, m.state.Outcome) {
			m.t.Fatalf("the outcome changed from %+v to %+v", was.Outcome, m.state.Outcome)
		}
	}
	m.check()
}

func (m *machine) check() {
	raw := encode(m.t, m.state)
	if len(raw) > 4096 {
		m.t.Fatalf("the state has %d bytes:\n%s", len(raw), raw)
	}
	var back domain.Attempt
	if err := json.Unmarshal([]byte(raw), &back); err != nil {
		m.t.Fatal(err)
	}
	if d := diff(m.state, back); d != "" {
		m.t.Fatalf("the state does not survive JSON:\n%s", d)
	}
	if (m.state.Lease != nil) != (m.model.live == 1) {
		m.t.Fatalf("lease %+v, model has %d", m.state.Lease, m.model.live)
	}
	if m.state.Stop != nil && m.state.Stop.Reason != m.model.stop {
		m.t.Fatalf("stop %+v, the first was %s", m.state.Stop, m.model.stop)
	}
}

// refold reads the stream as a ledger holds it, as bytes, and compares with the
// state that commands carried along.
func (m *machine) refold() {
	var a domain.Attempt
	for _, f := range m.stream {
		name, schema, payload, err := domain.EncodeEvent(f.Event)
		if err != nil {
			m.t.Fatal(err)
		}
		e, err := domain.DecodeEvent(name, schema, payload)
		if err != nil {
			m.t.Fatal(err)
		}
		if a, err = domain.EvolveAttempt(a, e, f.At); err != nil {
			m.t.Fatal(err)
		}
	}
	if d := diff(m.state, a); d != "" {
		m.t.Fatalf("the fold of the stream differs from the state (-carried +folded):\n%s", d)
	}
}

func encode(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (m *machine) fence() domain.Fence {
	f := domain.Fence{RunnerID: runnerA, Epoch: max(m.model.epoch, 1), TokenSHA256: secretA, ResumedAt: m.resumed}
	switch rapid.IntRange(0, 19).Draw(m.t, "fence") {
	case 0:
		f.RunnerID = runnerB
	case 1:
		f.TokenSHA256 = secretB
	case 2:
		f.Epoch += rapid.SampledFrom([]int64{-1, 1}).Draw(m.t, "epoch")
	}
	return f
}

func (m *machine) draw() domain.Command {
	t := m.t
	switch kind := rapid.SampledFrom(commandKinds).Draw(t, "command"); kind {
	case "submit":
		c := domain.Submit{Created: created(), Policy: allowed()}
		if rapid.IntRange(0, 9).Draw(t, "deny") == 0 {
			c.Policy = denied()
		}
		return c
	case "offer":
		c := offer(runnerA)
		switch rapid.IntRange(0, 29).Draw(t, "new bundle") {
		case 0:
			c.Policy = ptr(denied())
		case 1:
			c.Policy = ptr(allowed())
		}
		return c
	case "start":
		return domain.Start{Fence: m.fence(), Isolation: "process"}
	case "report":
		return domain.Report{Fence: m.fence(), Progress: &domain.ProgressReport{Phase: "p", Done: 1, Total: 2}}
	case "log":
		c := storeLog(rapid.Int64Range(0, 3).Draw(t, "offset")*50, rapid.Int64Range(0, 2).Draw(t, "bytes")*50)
		c.Fence, c.Stream = m.fence(), rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(t, "stream")
		return c
	case "evidence":
		return domain.RecordEvidence{Fence: m.fence(), Evidence: evidence("up", rapid.SampledFrom([]string{"passed", "failed", "inconclusive"}).Draw(t, "result"))}
	case "artifact":
		return domain.RegisterArtifact{Fence: m.fence(), Artifact: artifactAt(0, "report").Event.(domain.ArtifactCreated)}
	case "fact":
		return domain.RecordFact{Fence: m.fence(), Fact: rapid.SampledFrom([]domain.Event{
			domain.ProcessTreeReaped{Confirmed: true}, domain.ProcessTreeReaped{Survivors: 1, Confirmed: true},
			tokenIssued("read-1"), resolved(), domain.SecretRevoked{Accessors: []string{"read-1"}},
		}).Draw(t, "fact")}
	case "complete":
		c := claim(rapid.SampledFrom(claims).Draw(t, "claim"))
		c.Launched = rapid.Bool().Draw(t, "launched")
		c.Logs, c.Artifacts = []domain.ClaimedLog{{Stream: "stdout", Bytes: 50, SHA256: digestA}}, rapid.IntRange(0, 1).Draw(t, "artifacts")
		return domain.Complete{Fence: m.fence(), Claim: c}
	case "release":
		return domain.Release{Fence: m.fence(), Operator: rapid.Bool().Draw(t, "operator"), Reason: "declined"}
	case "stop":
		return domain.RequestStop{Reason: rapid.SampledFrom([]domain.StopReason{domain.StopCancel, domain.StopRunTimeout, domain.StopIdleTimeout, domain.StopOperatorAbort}).Draw(t, "reason")}
	case "seal":
		return sealOf(m.state)
	case "seal_forced":
		return domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: unverified()}
	default:
		tick := domain.Tick{ResumedAt: m.resumed, NoRunner: rapid.Bool().Draw(t, "no runner")}
		if rapid.IntRange(0, 9).Draw(t, "evicted") == 0 {
			tick.EvictedRunner = rapid.SampledFrom([]domain.RunnerID{runnerA, runnerB}).Draw(t, "evicted runner")
		}
		return tick
	}
}

var (
	// What moves an attempt on is drawn more often than what ends it.
	commandKinds = []string{"submit", "offer", "offer", "offer", "start", "start", "start", "report", "report", "log", "log", "evidence", "artifact", "fact", "complete", "release", "stop", "seal", "seal_forced", "tick", "tick"}
	claims       = []string{"succeeded", "stopped", "stopped", "task_failed", "inputs_rejected", "policy_denied", "secret_denied", "vault_unavailable", "target_unreachable", "storage_unavailable", "executor_crashed", "agent_restarted", "start_abandoned"}
	pauses       = []int{0, 0, 0, 1, 1, 3, 3, 14, 15, 40, 90, 600, 3600}
)

// ticksToEnd bounds how many ticks, a minute apart, any attempt still needs. The
// longest way is a queue of an hour, then a run, a stop and the salvage window.
const ticksToEnd = 120

func TestRandomLives(t *testing.T) {
	ends := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := machine{t: t, now: t0}
		m.command(domain.Submit{Created: created(), Policy: allowed()})
		if rapid.IntRange(0, 19).Draw(t, "fresh") == 0 {
			m = machine{t: t, now: t0}
		}
		for range rapid.IntRange(0, 60).Draw(t, "commands") {
			m.now = m.now.Add(time.Duration(rapid.SampledFrom(pauses).Draw(t, "pause")) * time.Second)
			if rapid.IntRange(0, 19).Draw(t, "away") == 0 {
				m.resumed = m.now
			}
			m.command(m.draw())
		}
		m.refold()
		if m.model.phase == "" {
			return
		}
		for range ticksToEnd {
			if m.state.Phase == domain.PhaseClosed {
				break
			}
			m.now = m.now.Add(time.Minute)
			m.command(domain.Tick{ResumedAt: m.resumed})
			if m.state.Sealable(m.now) {
				m.command(sealOf(m.state))
			}
		}
		m.finish()
		ends[m.model.ending()]++
	})
	if len(ends) < 5 && !t.Failed() {
		t.Errorf("the lives are too alike to prove anything: %v", ends)
	}
}

// finish checks the end of a life.
func (m *machine) finish() {
	if m.state.Phase != domain.PhaseClosed || m.model.phase != "closed" {
		m.t.Fatalf("%d ticks did not end it: %s", ticksToEnd, encode(m.t, m.state))
	}
	m.refold()
	r, err := domain.ResultOf(m.stream)
	if err != nil {
		m.t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%s/%s/%s", r.Status, r.FailureCode, r.SideEffects), m.model.ending(); got != want {
		m.t.Fatalf("ended %s, the model says %s", got, want)
	}
	if (r.StartedAt != nil) != m.model.started || (r.Stop != nil) != (m.model.stop != "") {
		m.t.Fatalf("started %v, stop %+v", r.StartedAt, r.Stop)
	}
	if r.SideEffects == "none" && r.ExitSummary.Code != nil {
		m.t.Fatalf("exit code %d where none ran", *r.ExitSummary.Code)
	}
	n := len(m.stream)
	for range 5 { // the model lets nothing follow
		m.now = m.now.Add(time.Second)
		m.command(m.draw())
	}
	if len(m.stream) != n {
		m.t.Fatal("events after the end")
	}
}
