package domain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

// TestFenceOrder: not yours (403) is said before ended (410), and ended before
// old (409), whatever else is wrong with the write.
func TestFenceOrder(t *testing.T) {
	right := fenceA
	runner, token, old, future, both := right, right, right, right, right
	runner.RunnerID, token.TokenSHA256 = runnerB, secretB
	old.Epoch, future.Epoch = 0, 2
	both.RunnerID, both.Epoch = runnerB, 0
	for _, c := range []struct {
		name   string
		stream []domain.Fact
		fence  domain.Fence
		now    int
		code   string
	}{
		{"foreign runner, live", running(), runner, 30, "not_lease_holder"},
		{"foreign token, live", running(), token, 30, "not_lease_holder"},
		{"foreign runner, dead lease", running(), runner, 9999, "not_lease_holder"},
		{"foreign runner, lost lease", salvaging(), runner, 120, "not_lease_holder"},
		{"foreign runner, after the epoch was raised", fenced(), runner, 80, "not_lease_holder"},
		{"foreign runner, ended", closed(), runner, 99, "not_lease_holder"},
		{"foreign token, ended", closed(), token, 99, "not_lease_holder"},
		{"right, ended", closed(), right, 99, "attempt_closed"},
		{"old epoch, ended", closed(), old, 99, "attempt_closed"},
		{"foreign and old, ended", closed(), both, 99, "attempt_closed"},
		{"old epoch", running(), old, 30, "stale_epoch"},
		{"old epoch, dead lease", running(), old, 9999, "stale_epoch"},
		{"an epoch that never was", running(), future, 30, "stale_epoch"},
		{"right, epoch raised", fenced(), right, 80, "stale_epoch"},
		{"right, dead lease", running(), right, 110, "lease_lost"},
		{"right, lost lease", salvaging(), right, 120, "lease_lost"},
		{"never leased", queued(), right, 5, "stale_epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := given(t, c.stream).when(c.now, domain.Report{Fence: c.fence}).thenError(c.code)
			kind := map[string]domain.Kind{"not_lease_holder": domain.KindForbidden, "attempt_closed": domain.KindGone}[c.code]
			if kind == "" {
				kind = domain.KindConflict
			}
			if e.Kind != kind {
				t.Errorf("kind %s, want %s", e.Kind, kind)
			}
		})
	}
	e := given(t, running()).when(30, domain.Report{Fence: old}).thenError("stale_epoch")
	if e.Details["epoch"] != int64(1) {
		t.Errorf("the answer carries the live epoch: %v", e.Details)
	}
}

// pairs is every phase of interest times every command: the first letters say
// what follows. ok: events; -: nothing to do; else the named error.
const pairs = `
              none     queued   leased   running  stopping finalizing uploaded salvaging fenced  closed
submit        ok       -        -        -        -        -          -        -         -       -
submit_other  ok       exists   exists   exists   exists   exists     exists   exists    exists  exists
submit_denied ok       -        -        -        -        -          -        -         -       -
offer         unknown  ok       illegal  illegal  illegal  illegal    illegal  illegal   illegal closed
start         unknown  stale    ok       illegal  illegal  illegal    illegal  lost      stale   closed
report        unknown  stale    illegal  ok       ok       -          -        lost      stale   closed
log           unknown  stale    illegal  ok       ok       ok         offset   ok        ok      closed
evidence      unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
artifact      unknown  stale    illegal  ok       ok       ok         ok       ok        ok      closed
fact_reaped   unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
fact_policy   unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
fact_token_issued unknown stale illegal  ok       ok       illegal    illegal  lost      stale   closed
fact_resolved unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
fact_revoked  unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
complete      unknown  stale    illegal  ok       ok       illegal    illegal  lost      stale   closed
release       unknown  stale    ok       illegal  illegal  illegal    illegal  lost      stale   closed
requeue       unknown  illegal  ok       illegal  illegal  illegal    illegal  illegal   illegal closed
stop          unknown  ok       ok       ok       -        -          -        -         -       -
tick          unknown  -        -        -        -        -          -        -         -       -
evict         unknown  -        ok       ok       ok       ok         -        -         -       -
seal          unknown  illegal  illegal  illegal  illegal  illegal    ok       illegal   illegal closed
seal_forced   unknown  illegal  illegal  illegal  illegal  ok         ok       ok        ok      -
`

func TestEveryPair(t *testing.T) {
	streams := map[string]func() []domain.Fact{
		"none": func() []domain.Fact { return nil }, "queued": queued, "leased": leased, "running": running,
		"stopping":   func() []domain.Fact { return stopping(domain.StopCancel) },
		"finalizing": finalizing, "uploaded": uploaded, "salvaging": salvaging, "fenced": fenced, "closed": closed,
	}
	other := created()
	other.SpecDigest = digestB
	chunk := storeLog(0, 110)
	commands := map[string]domain.Command{
		"submit": domain.Submit{Created: created(), Policy: allowed()}, "submit_other": domain.Submit{Created: other, Policy: allowed()},
		"submit_denied": domain.Submit{Created: created(), Policy: denied()},
		"offer":         offer(runnerA), "start": domain.Start{Fence: fenceA}, "report": domain.Report{Fence: fenceA}, "log": chunk,
		"evidence":          domain.RecordEvidence{Fence: fenceA, Evidence: evidence("up", "passed")},
		"artifact":          domain.RegisterArtifact{Fence: fenceA, Artifact: domain.ArtifactCreated{Name: "more"}},
		"fact_reaped":       domain.RecordFact{Fence: fenceA, Fact: domain.ProcessTreeReaped{Confirmed: true}},
		"fact_token_issued": domain.RecordFact{Fence: fenceA, Fact: tokenIssued("read-1")},
		"fact_resolved":     domain.RecordFact{Fence: fenceA, Fact: resolved()},
		"fact_revoked":      domain.RecordFact{Fence: fenceA, Fact: domain.SecretRevoked{Accessors: []string{"read-1"}}},
		"fact_policy":       domain.RecordFact{Fence: fenceA, Fact: allowed()},
		"complete":          domain.Complete{Fence: fenceA, Claim: claim("stopped")},
		"release":           domain.Release{Fence: fenceA, Reason: "declined"}, "requeue": domain.Release{Operator: true, Reason: "requeue"},
		"stop": domain.RequestStop{Reason: domain.StopCancel}, "tick": domain.Tick{}, "evict": domain.Tick{EvictedRunner: runnerA},
		"seal": domain.Seal{Sealed: sealed()}, "seal_forced": domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: unverified()},
	}
	codes := map[string]string{"unknown": "attempt_unknown", "exists": "attempt_exists", "illegal": "illegal_transition",
		"stale": "stale_epoch", "lost": "lease_lost", "closed": "attempt_closed", "offset": "log_offset"}

	lines := strings.Split(strings.TrimSpace(pairs), "\n")
	phases := strings.Fields(lines[0])
	if len(phases) != len(streams) || len(lines)-1 != len(commands) {
		t.Fatalf("the table has %d states of %d and %d commands of %d", len(phases), len(streams), len(lines)-1, len(commands))
	}
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i, phase := range phases {
			t.Run(cells[0]+" while "+phase, func(t *testing.T) {
				stream := streams[phase]()
				now := t0
				if len(stream) > 0 {
					now = stream[len(stream)-1].At
				}
				if len(stream) == 0 {
					now = sec(0)
				}
				events, err := domain.DecideAttempt(fold(stream), commands[cells[0]], now)
				got := "ok"
				var e *domain.Error
				switch {
				case errors.As(err, &e):
					got = e.Code
					if e.Message == "" || len(events) != 0 {
						t.Errorf("error %+v with events %v", e, events)
					}
				case err != nil:
					t.Fatalf("an error without a name: %v", err)
				case len(events) == 0:
					got = "-"
				}
				want := cells[i+1]
				if c, ok := codes[want]; ok {
					want = c
				}
				if got != want {
					t.Errorf("got %s %v, want %s", got, err, want)
				}
			})
		}
	}
}

type unknownCommand struct{ domain.Tick }

func TestCommandOfNoKindIsIllegal(t *testing.T) {
	e := given(t, running()).when(30, unknownCommand{}).thenError("illegal_transition")
	if e.Details["state"] != "running" || !strings.Contains(e.Error(), "running") {
		t.Errorf("the error names the pair: %v", e)
	}
}

func TestErrorsAreComparedByCode(t *testing.T) {
	err := fmt.Errorf("load: %w", domain.ErrStaleEpoch.With("epoch", 3))
	if !errors.Is(err, domain.ErrStaleEpoch) || errors.Is(err, domain.ErrLeaseLost) || domain.KindOf(err) != domain.KindConflict {
		t.Errorf("%v", err)
	}
	if domain.ErrStaleEpoch.Details != nil {
		t.Error("With changed the named error itself")
	}
	if domain.KindOf(errors.New("x")) != domain.KindInternal {
		t.Error("what has no kind is internal")
	}
	many := &domain.Error{Message: "bad", Violations: make([]domain.Violation, 5), Err: errors.New("cause")}
	if got := many.Error(); !strings.Contains(got, "and 2 more") || !strings.HasSuffix(got, ": cause") || errors.Unwrap(many) == nil {
		t.Errorf("%q", got)
	}
}
