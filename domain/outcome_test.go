package domain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

// ends is one row of "How an attempt ends". Its story is told up to its last
// command; what then stands in the result is compared whole.
type ends struct {
	name    string
	stream  []domain.Fact
	last    domain.Command
	now     int
	status  domain.Status
	cat     domain.Category
	code    domain.FailureCode
	effects string
	started bool
	exit    *int
	proof   domain.StopProof // "": no stop in the result
	reason  domain.StopReason
	rec     domain.Category
}

// claimed is a story that ends by a runner's claim and the seal after it.
func claimed(name string, before []domain.Fact, c domain.Claim, e ends) ends {
	e.name, e.stream, e.last, e.now, e.started = name, completedWith(before, c), domain.Seal{Sealed: sealed()}, 60, true
	if e.effects == "" {
		e.effects = "possible"
	}
	if e.exit == nil && c.Launched {
		e.exit = c.Code
	}
	return e
}

func unlaunched(result string) domain.Claim {
	c := claim(result)
	c.Launched, c.Code = false, nil
	return c
}

func exitCode(result string, code int, rec domain.Category) domain.Claim {
	c := claim(result)
	c.Code, c.Recommended = &code, rec
	return c
}

func reaped(before []domain.Fact) []domain.Fact {
	return append(before, at(35, domain.ProcessTreeReaped{Epoch: 1, Confirmed: true, Method: "cgroup"}))
}

const (
	succeeded = domain.StatusSucceeded
	failed    = domain.StatusFailed
	timedOut  = domain.StatusTimedOut
	cancelled = domain.StatusCancelled
	unknown   = domain.CategoryUnknown
	infra     = domain.CategoryInfrastructure
	policyErr = domain.CategoryPolicy
)

func endings() []ends {
	rows := []ends{
		claimed("ran to its end", running(), claim("succeeded"), ends{status: succeeded, cat: domain.CategorySuccess}),
		claimed("ran to its end, evidence failed", append(running(), at(30, evidence("up", "failed"))), claim("succeeded"), ends{status: succeeded, cat: domain.CategorySuccess}),
		claimed("tool reports failure", running(), exitCode("task_failed", 2, ""), ends{status: failed, cat: unknown, code: domain.CodeTaskFailed}),
		claimed("tool reports failure, validation recommended", running(), exitCode("task_failed", 2, domain.CategoryValidation), ends{status: failed, cat: domain.CategoryValidation, code: domain.CodeTaskFailed, rec: domain.CategoryValidation}),
		claimed("tool reports failure, success recommended", running(), exitCode("task_failed", 2, domain.CategorySuccess), ends{status: failed, cat: unknown, code: domain.CodeTaskFailed, rec: domain.CategorySuccess}),
		claimed("tool killed by signal 9", running(), exitCode("task_failed", 137, ""), ends{status: failed, cat: unknown, code: domain.CodeTaskFailed}),
		claimed("inputs rejected", running(), exitCode("inputs_rejected", 3, ""), ends{status: failed, cat: domain.CategoryValidation, code: domain.CodeInputsRejected}),
		claimed("the recommendation cannot move another code", running(), exitCode("inputs_rejected", 3, infra), ends{status: failed, cat: domain.CategoryValidation, code: domain.CodeInputsRejected, rec: infra}),
		{name: "policy refuses at submit", last: domain.Submit{Created: created(), Policy: denied()}, status: failed, cat: policyErr, code: domain.CodePolicyDenied, effects: "none"},
		{name: "policy refuses at the offer", stream: queued(), last: domain.Offer{RunnerID: runnerA, Policy: ptr(denied())}, now: 10, status: failed, cat: policyErr, code: domain.CodePolicyDenied, effects: "none"},
		claimed("policy refuses at the runner", running(), unlaunched("policy_denied"), ends{status: failed, cat: policyErr, code: domain.CodePolicyDenied, effects: "none"}),
		claimed("secret denied", running(), unlaunched("secret_denied"), ends{status: failed, cat: policyErr, code: domain.CodeSecretDenied, effects: "none"}),
		claimed("Vault broke", running(), unlaunched("vault_unavailable"), ends{status: failed, cat: infra, code: domain.CodeVaultUnavailable, effects: "none"}),
		claimed("target broke", running(), exitCode("target_unreachable", 4, ""), ends{status: failed, cat: infra, code: domain.CodeTargetUnreachable}),
		claimed("S3 broke", running(), exitCode("storage_unavailable", 1, ""), ends{status: failed, cat: infra, code: domain.CodeStorageUnavailable}),
		claimed("executor broke", running(), exitCode("executor_crashed", 139, ""), ends{status: failed, cat: infra, code: domain.CodeExecutorCrashed}),
		{name: "lease lost after start", stream: salvaging(), last: sealOf(fold(salvaging())), now: 710, status: failed, cat: infra, code: domain.CodeLeaseLost, effects: "possible", started: true},
		claimed("agent restarted", running(), exitCode("agent_restarted", 0, ""), ends{status: failed, cat: infra, code: domain.CodeAgentRestarted}),
		claimed("started, never launched", running(), unlaunched("start_abandoned"), ends{status: failed, cat: infra, code: domain.CodeStartAbandoned, effects: "none"}),
		{name: "five offers lost", stream: fourOffersLost(), last: domain.Tick{}, now: 1000, status: failed, cat: infra, code: domain.CodeOffersExhausted, effects: "none"},
		{name: "never leased in time", stream: queued(), last: domain.Tick{}, now: 3600, status: failed, cat: infra, code: domain.CodeQueueTimeout, effects: "none"},
		{name: "no runner could ever fit", stream: queued(), last: domain.Tick{NoRunner: true}, now: 3600, status: failed, cat: infra, code: domain.CodeNoRunner, effects: "none"},
		{name: "an exit code without a launch is none", stream: completedWith(running(), domain.Claim{Result: "vault_unavailable", Code: ptr(7)}), last: domain.Seal{Sealed: sealed()}, now: 60, status: failed, cat: infra, code: domain.CodeVaultUnavailable, effects: "none", started: true},
		claimed("the runner stopped unasked", running(), exitCode("stopped", 143, ""), ends{status: failed, cat: infra, code: domain.CodeExecutorCrashed}),
	}
	for reason, e := range map[domain.StopReason]ends{
		domain.StopCancel:        {status: cancelled, cat: unknown, code: domain.CodeCancelled},
		domain.StopRunTimeout:    {status: timedOut, cat: unknown, code: domain.CodeRunTimeout},
		domain.StopIdleTimeout:   {status: timedOut, cat: unknown, code: domain.CodeIdleTimeout},
		domain.StopOperatorAbort: {status: failed, cat: infra, code: domain.CodeOperatorAborted},
	} {
		rows = append(rows, stopped(reason, e)...)
	}
	return rows
}

// stopped are the ways in which a stop of this reason can end.
func stopped(reason domain.StopReason, e ends) []ends {
	e.reason = reason
	with := func(p domain.StopProof, effects string) ends {
		x := e
		x.proof, x.effects = p, effects
		return x
	}
	late := ends{reason: reason, proof: domain.ProofTooLate, status: succeeded, cat: domain.CategorySuccess}
	lateFailed := ends{reason: reason, proof: domain.ProofTooLate, status: failed, cat: unknown, code: domain.CodeTaskFailed}
	name := string(reason) + ": "
	rows := []ends{
		claimed(name+"reaped", reaped(stopping(reason)), exitCode("stopped", 143, ""), with(domain.ProofReaped, "")),
		claimed(name+"nobody proved it", stopping(reason), exitCode("stopped", 143, ""), with(domain.ProofUnconfirmed, "")),
		claimed(name+"before the launch", stopping(reason), unlaunched("stopped"), with(domain.ProofReaped, "none")),
		claimed(name+"agent restarted", reaped(stopping(reason)), exitCode("agent_restarted", 0, ""), with(domain.ProofUnconfirmed, "")),
		claimed(name+"start abandoned", stopping(reason), unlaunched("start_abandoned"), with(domain.ProofReaped, "none")),
		claimed(name+"too late, succeeded", stopping(reason), claim("succeeded"), late),
		claimed(name+"too late, failed", stopping(reason), exitCode("task_failed", 1, ""), lateFailed),
	}
	lost := func(name string, stream []domain.Fact) ends {
		x := with(domain.ProofUnconfirmed, "possible")
		x.name, x.stream, x.last, x.now, x.started = name, stream, sealOf(fold(stream)), 720, true
		return x
	}
	rows = append(rows,
		lost(name+"deadline passed", append(stopping(reason), at(70, domain.LeaseExpired{Epoch: 1, Started: true, Cause: "stop_deadline"}))),
		lost(name+"lease lost", append(stopping(reason), at(69, domain.LeaseExpired{Epoch: 1, Started: true, Cause: "lease_timeout"}))))
	if reason == domain.StopCancel || reason == domain.StopOperatorAbort {
		for where, stream := range map[string][]domain.Fact{"queued": queued(), "leased": leased()} {
			x := with(domain.ProofReaped, "none")
			x.name, x.stream, x.last, x.now = name+where, stream, domain.RequestStop{Reason: reason}, 12
			rows = append(rows, x)
		}
	}
	return rows
}

func fourOffersLost() []domain.Fact {
	stream := queued()
	for i := int64(1); i <= 4; i++ {
		stream = append(stream, leasedAt(i, 100*int(i)), at(100*int(i)+15, domain.LeaseExpired{Epoch: i, Cause: "offer_timeout"}))
	}
	return append(stream, leasedAt(5, 900))
}

// TestHowAnAttemptEnds is the table of docs/api.md, row by row.
func TestHowAnAttemptEnds(t *testing.T) {
	seen, messages := map[domain.FailureCode]bool{}, map[string]domain.FailureCode{}
	for _, e := range endings() {
		seen[e.code] = true
		t.Run(e.name, func(t *testing.T) {
			r, _ := given(t, e.stream).when(e.now, e.last).thenEnds(e.status, e.code)
			if r.ExitSummary.Category != e.cat || r.SideEffects != e.effects || r.RecommendedCategory != e.rec {
				t.Errorf("category %s, side effects %s, recommended %q; want %s, %s, %q", r.ExitSummary.Category, r.SideEffects, r.RecommendedCategory, e.cat, e.effects, e.rec)
			}
			if (r.StartedAt != nil) != e.started {
				t.Errorf("started_at %v", r.StartedAt)
			}
			if d := cmp.Diff(e.exit, r.ExitSummary.Code); d != "" {
				t.Errorf("exit code %s", d)
			}
			if (r.Stop != nil) != (e.proof != "") || r.Stop != nil && (r.Stop.Proof != e.proof || r.Stop.Reason != e.reason || r.Stop.RequestedAt.IsZero()) {
				t.Errorf("stop %+v, want %s %s", r.Stop, e.reason, e.proof)
			}
			if b := r.RawOutputBundle; b.ID == "" || b.URI == "" || b.ManifestSHA256 == "" || (b.State == "empty") != (r.StartedAt == nil) {
				t.Errorf("bundle %+v", b)
			}
			m := r.ExitSummary.Message
			if m == "" || m == "The attempt ended." {
				t.Errorf("the message does not name the cause: %q", m)
			}
			if was, ok := messages[m]; ok && was != e.code {
				t.Errorf("%s and %s have one message: %q", was, e.code, m)
			}
			messages[m] = e.code
		})
	}
	for _, code := range failureCodes(t) {
		if !seen[code] {
			t.Errorf("no row of the table ends as %q", code)
		}
	}
}

// failureCodes reads the constants from the source, so that a new code cannot be
// left out of the table.
func failureCodes(t *testing.T) []domain.FailureCode {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []domain.FailureCode
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "FailureCode" {
			return true
		}
		text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, domain.FailureCode(text))
		return true
	})
	if len(out) < 19 {
		t.Fatalf("only %d failure codes found", len(out))
	}
	return out
}

// TestEveryClaimIsKnownOrRefused: a runner may claim only what it alone can know.
func TestEveryClaimIsKnownOrRefused(t *testing.T) {
	service := map[domain.FailureCode]bool{
		domain.CodeLeaseLost: true, domain.CodeOffersExhausted: true, domain.CodeQueueTimeout: true, domain.CodeNoRunner: true,
		domain.CodeOperatorAborted: true, domain.CodeRunTimeout: true, domain.CodeIdleTimeout: true, domain.CodeCancelled: true,
	}
	for _, code := range failureCodes(t) {
		if code != domain.CodeNone && domain.ValidClaim(string(code)) == service[code] {
			t.Errorf("%s: claimable %v", code, domain.ValidClaim(string(code)))
		}
	}
	if !domain.ValidClaim("succeeded") || !domain.ValidClaim(domain.ClaimStopped) || domain.ValidClaim("") {
		t.Error("succeeded and stopped can be claimed, nothing cannot")
	}
}

func TestMessageTellsOfOpenPromises(t *testing.T) {
	end := func(want domain.OutputContract, more ...domain.Fact) string {
		stream := append(running(), more...)
		c := stream[0].Event.(domain.Created)
		c.Contract = want
		stream[0].Event = c
		r, _ := given(t, completedWith(stream, claim("succeeded"))).when(60, domain.Seal{Sealed: sealed()}).thenEnds(succeeded, "")
		return r.ExitSummary.Message
	}
	promise := domain.OutputContract{Evidence: []string{"up"}}
	plain := end(domain.OutputContract{})
	open := end(promise)
	wrong := end(promise, at(30, evidence("up", "failed")))
	if kept := end(promise, at(30, evidence("up", "passed"))); kept != plain || open == plain || wrong == plain || wrong == open {
		t.Errorf("%q, %q, %q, %q", plain, kept, open, wrong)
	}
}
