package domain_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

func TestSubmit(t *testing.T) {
	given(t, nil).when(0, domain.Submit{Created: created(), Policy: allowed()}).then(created(), allowed())

	other := created()
	other.SpecDigest = digestB
	for name, stream := range map[string][]domain.Fact{"queued": queued(), "running": running(), "closed": closed()} {
		t.Run("again while "+name, func(t *testing.T) {
			given(t, stream).when(99, domain.Submit{Created: created(), Policy: denied()}).then()
			e := given(t, stream).when(99, domain.Submit{Created: other, Policy: allowed()}).thenError("attempt_exists")
			if d := cmp.Diff(map[string]any{"stored_sha256": digestA, "sent_sha256": digestB}, e.Details); d != "" {
				t.Errorf("both digests belong in the answer:\n%s", d)
			}
			if e.Kind != domain.KindConflict {
				t.Errorf("kind %s", e.Kind)
			}
		})
	}
}

func TestSubmitDeniedByPolicyEndsAtOnce(t *testing.T) {
	s := given(t, nil).when(0, domain.Submit{Created: created(), Policy: denied()})
	r, names := s.thenEnds(domain.StatusFailed, domain.CodePolicyDenied)
	if d := cmp.Diff([]string{"created", "policy_decided", "sealed", "failed"}, names); d != "" {
		t.Fatal(d)
	}
	if r.RawOutputBundle.State != "empty" || r.RawOutputBundle.ManifestSHA256 == "" || r.StartedAt != nil || r.SideEffects != "none" {
		t.Errorf("an attempt that never ran has the canonical empty bundle and no start: %+v", r)
	}
	if a := fold(s.after()); a.Phase != domain.PhaseClosed || !a.PolicyDenied || a.PublicState() != "failed" {
		t.Errorf("state %+v", a)
	}
}

func TestSubmitDeniedNamesADigestThatIsNone(t *testing.T) {
	c := created()
	c.SpecDigest = "not hex"
	if _, err := domain.DecideAttempt(domain.Attempt{}, domain.Submit{Created: c, Policy: denied()}, t0); err == nil {
		t.Fatal("an empty bundle needs the spec's digest")
	}
}

func offer(r domain.RunnerID) domain.Offer {
	return domain.Offer{RunnerID: r, Pool: "lab", TokenSHA256: secretA, PolicyDigest: digestB}
}

func TestOffer(t *testing.T) {
	a := given(t, queued()).when(10, offer(runnerA)).then(leasedAt(1, 10).Event)
	if a.Lease.Kind != "offer" || a.Epoch != 1 || a.Phase != domain.PhaseLeased || !a.DueAt().Equal(sec(25)) {
		t.Errorf("state %+v", a)
	}
	lost := append(leased(), at(25, domain.LeaseExpired{Epoch: 1, Cause: "offer_timeout"}))
	given(t, lost).when(29, offer(runnerA)).thenError("illegal_transition") // waits 5 s after the first lost offer
	given(t, lost).when(30, offer(runnerA)).then(leasedAt(2, 30).Event)
	given(t, queued()).when(3599, offer(runnerA)).then(leasedAt(1, 3599).Event)
	given(t, queued()).when(3600, offer(runnerA)).thenError("illegal_transition") // its time in the queue is up
	given(t, leased()).when(11, offer(runnerB)).thenError("illegal_transition")
	given(t, closed()).when(99, offer(runnerA)).thenError("attempt_closed")
	given(t, nil).when(0, offer(runnerA)).thenError("attempt_unknown")
}

func TestOfferUnderANewBundle(t *testing.T) {
	verdict := domain.PolicyDecided{At: "offer", Verdict: "allow", BundleDigest: digestA, InputDigest: digestB}
	c := offer(runnerA)
	c.Policy = &verdict
	a := given(t, queued()).when(10, c).then(verdict, leasedAt(1, 10).Event)
	if a.PolicyDigest != digestA || a.PolicyDenied {
		t.Errorf("state %+v", a)
	}
	refusal := verdict
	refusal.Verdict = "deny"
	c.Policy = &refusal
	s := given(t, queued()).when(10, c)
	r, names := s.thenEnds(domain.StatusFailed, domain.CodePolicyDenied)
	if d := cmp.Diff([]string{"policy_decided", "sealed", "failed"}, names); d != "" || r.StartedAt != nil || r.SideEffects != "none" {
		t.Errorf("%s %+v", d, r)
	}
	if a := fold(s.after()); a.Lease != nil || a.Epoch != 0 {
		t.Errorf("a denied offer leases nothing: %+v", a)
	}
	given(t, queued()).when(3600, c).thenError("illegal_transition") // too late for any verdict
}

func TestStart(t *testing.T) {
	start := domain.Start{Fence: fenceA, Isolation: "process"}
	a := given(t, leased()).when(24, start).then(domain.Started{Epoch: 1, LeaseUntil: sec(114), Isolation: "process"})
	if a.Phase != domain.PhaseRunning || !a.StartedAt.Equal(sec(24)) || a.Lease.Kind != "lease" {
		t.Errorf("state %+v", a)
	}
	given(t, leased()).when(25, start).thenError("lease_lost") // the offer ends at 25 exactly
	given(t, running()).when(24, start).thenError("illegal_transition")
	given(t, queued()).when(24, start).thenError("stale_epoch")
}

func TestReport(t *testing.T) {
	beat := domain.Heartbeat{Epoch: 1, LeaseUntil: sec(140)}
	a := given(t, running()).when(50, domain.Report{Fence: fenceA}).then(beat)
	if !a.Lease.Until.Equal(sec(140)) || a.Lease.Kind != "lease" {
		t.Errorf("lease %+v", a.Lease)
	}
	progress := &domain.ProgressReport{Phase: "probe", Done: 1, Total: 3, Message: "m"}
	progressed := domain.Progressed{Epoch: 1, Phase: "probe", Done: 1, Total: 3, Message: "m"}
	given(t, running()).when(50, domain.Report{Fence: fenceA, Progress: progress}).then(beat, progressed)
	recent := append(running(), at(49, progressed))
	given(t, recent).when(50, domain.Report{Fence: fenceA, Progress: progress}).then(beat) // at most every 2 s
	given(t, recent).when(51, domain.Report{Fence: fenceA, Progress: progress}).then(domain.Heartbeat{Epoch: 1, LeaseUntil: sec(141)}, progressed)

	up := given(t, finalizing()).when(50, domain.Report{Fence: fenceA, Progress: progress}).then(domain.Heartbeat{Epoch: 1, LeaseUntil: sec(750)})
	if up.Lease.Kind != "upload" {
		t.Errorf("a report in finalizing renews the upload lease: %+v", up.Lease)
	}
	given(t, leased()).when(11, domain.Report{Fence: fenceA}).thenError("illegal_transition")
	given(t, salvaging()).when(120, domain.Report{Fence: fenceA}).thenError("lease_lost")
	given(t, running()).when(110, domain.Report{Fence: fenceA}).thenError("lease_lost") // dead before anyone ticked
}

func storeLog(offset, bytes int64) domain.StoreLog {
	return domain.StoreLog{Fence: fenceA, Stream: "stdout", Offset: offset, Bytes: bytes, Key: "k", SHA256: digestA, ObjectBytes: bytes + 20}
}

func TestLog(t *testing.T) {
	some := append(running(), logAt(30, 0, 100))
	a := given(t, running()).when(30, storeLog(0, 100)).then(logAt(30, 0, 100).Event)
	if a.LogBytes["stdout"] != 100 {
		t.Errorf("log bytes %v", a.LogBytes)
	}
	given(t, some).when(31, storeLog(100, 10)).then(logAt(31, 100, 10).Event)
	given(t, some).when(31, storeLog(0, 100)).then() // the reply was lost
	given(t, some).when(31, storeLog(20, 30)).then()
	for _, c := range []domain.StoreLog{storeLog(101, 10), storeLog(50, 100), storeLog(0, 101)} {
		e := given(t, some).when(31, c).thenError("log_offset")
		if e.Details["offset"] != int64(100) || e.Kind != domain.KindOffset {
			t.Errorf("the answer carries the server's offset: %+v", e)
		}
	}
	given(t, leased()).when(11, storeLog(0, 1)).thenError("illegal_transition")
	given(t, queued()).when(11, storeLog(0, 1)).thenError("stale_epoch")
	given(t, finalizing()).when(50, storeLog(0, 100)).then(logAt(50, 0, 100).Event)
	before := fold(some)
	if next, err := domain.EvolveAttempt(before, logAt(31, 100, 10).Event, sec(31)); err != nil || before.LogBytes["stdout"] != 100 || next.LogBytes["stdout"] != 110 {
		t.Errorf("two states share a map: %v %v %v", before.LogBytes, next.LogBytes, err)
	}
}

func evidence(name, result string) domain.EvidenceRecorded {
	return domain.EvidenceRecorded{Epoch: 1, ID: evidenceA, Name: name, Type: "api_check", Result: result, Source: "stdout", ObservedAt: sec(30)}
}

func TestEvidence(t *testing.T) {
	sent := evidence("up", "passed")
	sent.Epoch = 77 // the ledger's epoch counts, not the sender's
	a := given(t, running()).when(30, domain.RecordEvidence{Fence: fenceA, Evidence: sent}).then(evidence("up", "passed"))
	if a.Evidence != 1 {
		t.Errorf("evidence %d", a.Evidence)
	}
	human := evidence("up", "passed")
	human.Type = "human_verification"
	for _, stream := range [][]domain.Fact{running(), finalizing(), closed()} {
		given(t, stream).when(41, domain.RecordEvidence{Fence: fenceA, Evidence: human}).thenError("human_verification_refused")
	}
	given(t, finalizing()).when(50, domain.RecordEvidence{Fence: fenceA, Evidence: sent}).thenError("illegal_transition")
	given(t, salvaging()).when(120, domain.RecordEvidence{Fence: fenceA, Evidence: sent}).thenError("lease_lost")
	full := running()
	for i := range domain.MaxEvidence {
		full = append(full, at(21, evidence(fmt.Sprint(i), "passed")))
	}
	e := given(t, full).when(30, domain.RecordEvidence{Fence: fenceA, Evidence: sent}).thenError("too_many")
	if e.Details["limit"] != domain.MaxEvidence {
		t.Errorf("details %v", e.Details)
	}
}

func TestArtifact(t *testing.T) {
	ev := artifactAt(30, "report").Event.(domain.ArtifactCreated)
	sent := ev
	sent.Epoch, sent.Salvaged = 77, true
	register := domain.RegisterArtifact{Fence: fenceA, Artifact: sent}
	given(t, running()).when(30, register).then(ev)
	given(t, finalizing()).when(50, register).then(ev)
	given(t, leased()).when(11, register).thenError("illegal_transition")
	given(t, closed()).when(61, register).thenError("attempt_closed")
	full := running()
	for i := range domain.MaxArtifacts {
		full = append(full, artifactAt(21, fmt.Sprint(i)))
	}
	given(t, full).when(30, register).thenError("too_many")
}

func TestFacts(t *testing.T) {
	gone := domain.ProcessTreeReaped{Epoch: 1, Survivors: 0, Confirmed: true, Method: "cgroup"}
	fact := func(e domain.Event) domain.RecordFact { return domain.RecordFact{Fence: fenceA, Fact: e} }
	if a := given(t, running()).when(30, fact(domain.ProcessTreeReaped{Confirmed: true, Method: "cgroup"})).then(gone); !a.Reaped {
		t.Error("a confirmed reap is remembered")
	}
	for _, e := range []domain.ProcessTreeReaped{{Epoch: 1, Survivors: 2, Confirmed: true}, {Epoch: 1, Confirmed: false}} {
		if a := given(t, append(running(), at(29, gone))).when(30, fact(e)).then(e); a.Reaped {
			t.Errorf("%+v proves nothing", e)
		}
	}
	verdict := domain.PolicyDecided{At: "runner", Verdict: "deny", BundleDigest: digestB, InputDigest: digestA, Epoch: 1}
	sent := verdict
	sent.At, sent.Epoch = "submit", 9
	if a := given(t, running()).when(30, fact(sent)).then(verdict); !a.PolicyDenied || a.Phase != domain.PhaseRunning {
		t.Errorf("a runner's verdict is kept, the runner then claims: %+v", a)
	}
	given(t, running()).when(30, fact(domain.Succeeded{})).thenError("illegal_transition")
	given(t, running()).when(30, fact(created())).thenError("illegal_transition")
	given(t, finalizing()).when(50, fact(gone)).thenError("illegal_transition")
}

func TestComplete(t *testing.T) {
	c := claim("succeeded")
	complete := domain.Complete{Fence: fenceA, Claim: c, Environment: "env"}
	a := given(t, running()).when(40, complete).then(domain.Completed{Epoch: 1, Claim: c, UploadUntil: sec(740), Environment: "env"})
	if a.Phase != domain.PhaseFinalizing || a.Outcome == nil || a.Outcome.Status != domain.StatusSucceeded || a.Lease.Kind != "upload" {
		t.Errorf("state %+v", a)
	}
	given(t, leased()).when(11, complete).thenError("illegal_transition")
	given(t, finalizing()).when(41, complete).thenError("illegal_transition")
	given(t, closed()).when(61, complete).thenError("attempt_closed")
	for _, result := range []string{"", "cancelled", "run_timeout", "idle_timeout", "lease_lost", "queue_timeout", "no_runner", "offers_exhausted", "operator_aborted", "Succeeded"} {
		bad := complete
		bad.Claim.Result = result
		e := given(t, running()).when(40, bad).thenError("claim_unknown")
		if len(e.Violations) != 1 || e.Violations[0].Pointer != "/result" || e.Kind != domain.KindInvalid {
			t.Errorf("%q: %+v", result, e)
		}
	}
}

func TestLateOutcomeIsAFactAndNothingMore(t *testing.T) {
	late := domain.Complete{Fence: fenceA, Claim: claim("succeeded")}
	given(t, salvaging()).when(120, late).thenError("lease_lost")
	events := domain.ReportLate(fold(salvaging()), late)
	if d := diff([]domain.Event{domain.LateOutcomeReported{Epoch: 1, Claim: claim("succeeded")}}, events); d != "" {
		t.Fatal(d)
	}
	a := fold(append(salvaging(), facts(120, events)...))
	if a.Completed || a.Outcome.FailureCode != domain.CodeLeaseLost {
		t.Errorf("a late outcome changed the outcome: %+v", a.Outcome)
	}
	other := late
	other.RunnerID = runnerB
	stale := late
	stale.Epoch = 2
	secret := late
	secret.TokenSHA256 = secretB
	for name, c := range map[string]domain.Complete{"another runner": other, "another epoch": stale, "another token": secret} {
		if got := domain.ReportLate(fold(salvaging()), c); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	uploadLost := append(finalizing(), at(740, domain.LeaseExpired{Epoch: 1, Started: true, Cause: "upload_timeout"}))
	for name, stream := range map[string][]domain.Fact{"running": running(), "finalizing": finalizing(), "upload lost": uploadLost, "queued": queued(), "closed": closed()} {
		if got := domain.ReportLate(fold(stream), late); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := domain.ReportLate(fold(fenced()), late); len(got) != 1 {
		t.Errorf("a holder fenced by the stop deadline may still say what it saw: %v", got)
	}
}

func TestRelease(t *testing.T) {
	a := given(t, leased()).when(12, domain.Release{Fence: fenceA, Reason: "declined"}).then(domain.LeaseReleased{Epoch: 1, Reason: "declined"})
	if a.Phase != domain.PhaseQueued || a.Lease != nil || a.OffersLost != 1 || a.Epoch != 1 || !a.NotBefore.After(sec(12)) {
		t.Errorf("a job that the runner cannot do costs an offer and waits: %+v", a)
	}
	a = given(t, leased()).when(12, domain.Release{Fence: fenceA, Reason: "draining"}).then(domain.LeaseReleased{Epoch: 1, Reason: "draining"})
	if a.OffersLost != 0 || a.NotBefore.After(sec(12)) {
		t.Errorf("a runner that leaves costs no offer: %+v", a)
	}
	given(t, leased()).when(12, domain.Release{Operator: true, Reason: "requeue", ReasonText: "why"}).then(domain.LeaseReleased{Epoch: 1, Reason: "requeue", ReasonText: "why"})
	for _, stream := range [][]domain.Fact{queued(), running(), finalizing()} {
		given(t, stream).when(41, domain.Release{Operator: true, Reason: "requeue"}).thenError("illegal_transition")
	}
	given(t, closed()).when(61, domain.Release{Operator: true, Reason: "requeue"}).thenError("attempt_closed")
	given(t, running()).when(21, domain.Release{Fence: fenceA, Reason: "declined"}).thenError("illegal_transition")
	released := append(leased(), at(12, domain.LeaseReleased{Epoch: 1, Reason: "draining"}))
	given(t, released).when(12, offer(runnerA)).then(leasedAt(2, 12).Event)
	given(t, released).when(13, domain.Start{Fence: fenceA}).thenError("lease_lost")
}

func TestStop(t *testing.T) {
	cancel := domain.RequestStop{Reason: domain.StopCancel, ReasonText: "why"}
	for name, stream := range map[string][]domain.Fact{"queued": queued(), "leased": leased()} {
		t.Run(name+" ends at once", func(t *testing.T) {
			s := given(t, stream).when(12, cancel)
			r, names := s.thenEnds(domain.StatusCancelled, domain.CodeCancelled)
			if d := cmp.Diff([]string{"stop_requested", "sealed", "cancelled"}, names); d != "" {
				t.Fatal(d)
			}
			want := &domain.StopSummary{Reason: domain.StopCancel, RequestedAt: sec(12), Proof: domain.ProofReaped}
			if d := diff(want, r.Stop); d != "" || r.SideEffects != "none" || r.StartedAt != nil {
				t.Errorf("%s\n%+v", d, r)
			}
			a := fold(s.after())
			if a.Lease != nil || a.Phase != domain.PhaseClosed {
				t.Errorf("state %+v", a)
			}
		})
	}
	a := given(t, running()).when(30, cancel).then(domain.StopRequested{Reason: domain.StopCancel, ReasonText: "why", Deadline: ptr(sec(70))})
	if a.Phase != domain.PhaseRunning || a.Outcome != nil || !a.DueAt().Equal(sec(70)) {
		t.Errorf("a running job is asked, its outcome waits for the answer: %+v", a)
	}
	abort := domain.RequestStop{Reason: domain.StopOperatorAbort}
	for _, stream := range [][]domain.Fact{stopping(domain.StopCancel), finalizing(), salvaging(), closed()} {
		given(t, stream).when(41, abort).then() // the first accepted stop stands
	}
	given(t, nil).when(0, cancel).thenError("attempt_unknown")
}

func TestTimeoutIsOnlyForWhatStarted(t *testing.T) {
	for _, r := range []domain.StopReason{domain.StopRunTimeout, domain.StopIdleTimeout} {
		given(t, queued()).when(12, domain.RequestStop{Reason: r}).thenError("illegal_transition")
		given(t, leased()).when(12, domain.RequestStop{Reason: r}).thenError("illegal_transition")
		given(t, running()).when(30, domain.RequestStop{Reason: r}).then(domain.StopRequested{Reason: r, Deadline: ptr(sec(70))})
	}
}
