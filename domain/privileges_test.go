package domain_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

// A verdict that grants privileges says so beside it, wherever it was given; one that
// refuses grants nothing.
func TestVerdictsGrantPrivileges(t *testing.T) {
	granted := func(at string, epoch int64, p ...string) domain.PrivilegesGranted {
		return domain.PrivilegesGranted{At: at, Privileges: p, BundleDigest: digestB, InputDigest: digestA, Epoch: epoch}
	}
	created := sampleCreated()
	given(t, nil).when(0, domain.Submit{Created: created, Policy: allowed(), Privileges: []string{"elevated"}}).
		then(created, allowed(), granted("submit", 0, "elevated"))
	given(t, nil).when(0, domain.Submit{Created: created, Policy: allowed()}).then(created, allowed())

	verdict := domain.PolicyDecided{At: "offer", Verdict: "allow", BundleDigest: digestB, InputDigest: digestA}
	c := offer(runnerA)
	c.Policy, c.Privileges = &verdict, []string{"destructive", "sudo"}
	given(t, queued()).when(10, c).then(verdict, granted("offer", 0, "destructive", "sudo"), leasedAt(1, 10).Event)

	fact := domain.PolicyDecided{Verdict: "allow", BundleDigest: digestB, InputDigest: digestA}
	told := fact
	told.At, told.Epoch = "runner", 1
	given(t, running()).when(50, domain.RecordFact{Fence: fenceA, Fact: fact, Privileges: []string{"sudo"}}).then(told, granted("runner", 1, "sudo"))
	fact.Verdict, told.Verdict = "deny", "deny"
	given(t, running()).when(50, domain.RecordFact{Fence: fenceA, Fact: fact, Privileges: []string{"sudo"}}).then(told)

	_, names := given(t, nil).when(0, domain.Submit{Created: created, Policy: denied(), Privileges: []string{"elevated"}}).thenEnds(domain.StatusFailed, domain.CodePolicyDenied)
	for _, n := range names {
		if n == "privileges_granted" {
			t.Errorf("a refused job was granted privileges: %v", names)
		}
	}
}

// What an operator ordered is told apart from what a replica began with.
func TestOperatorReplacesThePolicy(t *testing.T) {
	var s domain.Service
	step := func(c domain.ServiceCommand) []domain.Event {
		t.Helper()
		events, err := domain.DecideService(s, c, sec(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if s, err = domain.EvolveService(s, e, sec(1)); err != nil {
				t.Fatal(err)
			}
		}
		return events
	}
	step(domain.ActivatePolicy{BundleDigest: digestA})
	if s.PolicyOrdered {
		t.Error("nobody ordered the first one")
	}
	want := domain.PolicyReplaced{BundleDigest: digestB, Before: digestA, ReasonText: domain.TextRef(digestA)}
	if d := diff([]domain.Event{want}, step(domain.ReplacePolicy{BundleDigest: digestB, ReasonText: domain.TextRef(digestA)})); d != "" || s.PolicyDigest != digestB || !s.PolicyOrdered {
		t.Errorf("%s; state %+v", d, s)
	}
	if got := step(domain.ReplacePolicy{BundleDigest: digestB, ReasonText: domain.TextRef(digestA)}); len(got) != 0 {
		t.Errorf("the same again: %v", got)
	}
	if got := step(domain.ActivatePolicy{BundleDigest: digestB}); len(got) != 0 || !s.PolicyOrdered {
		t.Errorf("a replica that begins with it: %v, state %+v", got, s)
	}
	step(domain.ActivatePolicy{BundleDigest: digestA})
	if s.PolicyDigest != digestA || s.PolicyOrdered {
		t.Errorf("a replica that brings news: %+v", s)
	}
	// To order what a replica brought makes it an order.
	if got := step(domain.ReplacePolicy{BundleDigest: digestA, ReasonText: domain.TextRef(digestA)}); len(got) != 1 || !s.PolicyOrdered {
		t.Errorf("to order the active one: %v, state %+v", got, s)
	}
}
