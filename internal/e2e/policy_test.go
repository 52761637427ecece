package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// labPolicy is a bundle that allows this machine in some environments.
func labPolicy(t *testing.T, environments string) *policy.Bundle {
	t.Helper()
	b, err := policy.Load(fstest.MapFS{"lab.yaml": {Data: []byte(`
pools:
  - {name: default, job_types: [verification], actions: ["verify.*"], environments: ["*"], max_slots: 8}
runners:
  - {name: verification-runner, version: "*", job_types: [verification], environments: ["*"]}
retry_policies:
  - {name: retry/default, interval: 1s, factor: 1.5, max_interval: 10s, jitter: 0.1, stable_successes: 3}
operation_policies:
  - {name: change/elevated, actions: ["verify.*"], environments: ["*"]}
targets:
  - {id: targets/lab, actions: ["verify.*"], environments: [` + environments + `], hosts: [localhost], cidrs: [127.0.0.0/8], ports: ["1-65535"]}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func activate(t *testing.T, w *world, r *replica, b *policy.Bundle) {
	t.Helper()
	if _, err := r.operator.PutPolicyBundle(w.ctx, newKey(), b.Digest(), b.Bytes()); err != nil {
		t.Fatal(err)
	}
	got, err := r.operator.ActivatePolicy(w.ctx, newKey(), wire.ActivatePolicyRequest{BundleDigest: b.Digest(), Reason: "the lab moved"})
	if err != nil || got.BundleDigest != b.Digest() || !got.Ordered {
		t.Fatalf("activated %+v, %v", got, err)
	}
}

func decidesWith(w *world, r *replica, b *policy.Bundle) {
	w.t.Helper()
	w.eventually("the replica decides with the bundle", func() bool {
		spec, err := json.Marshal(tcp(1))
		if err != nil {
			w.t.Fatal(err)
		}
		d, err := r.control.DryRun(w.ctx, spec)
		return err == nil && d.Policy != nil && d.Policy.BundleDigest == b.Digest()
	})
}

// An operator makes another bundle the active one while everything runs: each
// replica takes it over, what waits is decided again before it is offered, what runs
// goes on under the bundle of its offer, and a restart does not undo it.
func TestOperatorReplacesThePolicy(t *testing.T) {
	t.Parallel()
	closed, open := labPolicy(t, "staging"), labPolicy(t, "staging, test")
	w := newWorld(t, setup{policy: closed})
	a, b := w.startService(), w.startService()
	refused := w.result(a.control, w.submit(a.control, tcp(openPort(t))))
	if refused.FailureCode != domain.CodePolicyDenied {
		t.Fatalf("before: %+v", refused)
	}

	activate(t, w, a, open)
	if spec, err := json.Marshal(tcp(1)); err != nil {
		t.Fatal(err)
	} else if d, err := a.control.DryRun(w.ctx, spec); err != nil || d.Policy.BundleDigest != open.Digest() {
		t.Errorf("the replica that was asked does not decide with it at once: %+v, %v", d.Policy, err)
	}
	decidesWith(w, b, open)
	w.startRunner(a.plane.URL(), 4)
	running := w.submit(b.control, long(t))
	w.reaches(running, domain.PhaseRunning)
	if r := w.result(b.control, w.submit(b.control, tcp(openPort(t)))); r.Status != domain.StatusSucceeded {
		t.Errorf("after: %+v", r)
	}

	activate(t, w, b, closed)
	decidesWith(w, a, closed)
	if p := w.state(running).Phase; p != domain.PhaseRunning {
		t.Errorf("what ran under the bundle before is %s", p)
	}
	cancel(t, w, a.control, running)
	w.result(a.control, running)

	// The replica that begins with a bundle that was active once takes over what the
	// operator ordered; one that nobody knows is news and becomes the active one.
	activate(t, w, b, open)
	decidesWith(w, a, open)
	a.stop()
	again := w.startService()
	decidesWith(w, again, open)
	if got, err := again.operator.ActivePolicy(w.ctx); err != nil || got.BundleDigest != open.Digest() || !got.Ordered {
		t.Errorf("after the restart: %+v, %v", got, err)
	}
	news := labPolicy(t, "lab, test")
	w.policy = news
	decidesWith(w, w.startService(), news)
	decidesWith(w, b, news)
}

// What cannot be a bundle changes nothing, and the answer says why.
func TestPolicyThatCannotBeActivated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	before := policy.BuiltinDev()
	decidesWith(w, s, before)
	cut := before.Bytes()[:len(before.Bytes())/2]
	empty, err := policy.Load(fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	other := labPolicy(t, "lab")
	for name, c := range map[string]struct {
		call func() error
		code string
	}{
		"no archive": {func() error {
			_, err := s.operator.PutPolicyBundle(w.ctx, newKey(), before.Digest(), []byte("pools: []"))
			return err
		}, "policy_bundle_invalid"},
		"cut off": {func() error {
			_, err := s.operator.PutPolicyBundle(w.ctx, newKey(), before.Digest(), cut)
			return err
		}, "policy_bundle_invalid"},
		"without a rule": {func() error {
			_, err := s.operator.PutPolicyBundle(w.ctx, newKey(), empty.Digest(), empty.Bytes())
			return err
		}, "policy_bundle_invalid"},
		"another's digest": {func() error {
			_, err := s.operator.PutPolicyBundle(w.ctx, newKey(), before.Digest(), other.Bytes())
			return err
		}, "policy_digest_mismatch"},
		"never put": {func() error {
			_, err := s.operator.ActivatePolicy(w.ctx, newKey(), wire.ActivatePolicyRequest{BundleDigest: other.Digest(), Reason: "why not"})
			return err
		}, "policy_bundle_unknown"},
		"no reason": {func() error {
			_, err := s.operator.ActivatePolicy(w.ctx, newKey(), wire.ActivatePolicyRequest{BundleDigest: before.Digest()})
			return err
		}, "reason_required"},
		"not an operator": {func() error {
			_, err := s.control.ActivatePolicy(w.ctx, newKey(), wire.ActivatePolicyRequest{BundleDigest: before.Digest(), Reason: "why not"})
			return err
		}, "role_refused"},
	} {
		if err := c.call(); client.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	decidesWith(w, s, before)
	// A service that has just begun records its bundle as soon as its bucket answers.
	w.eventually("the bundle that the service was started with is the active one", func() bool {
		got, err := s.operator.ActivePolicy(w.ctx)
		if err != nil || got.Ordered || got.BundleDigest != "" && got.BundleDigest != before.Digest() {
			t.Fatalf("the active bundle is %+v, %v", got, err)
		}
		return got.BundleDigest != ""
	})
}

// One fact of each kind is planted among others: all of them are listed, and
// nothing else.
func TestAuditListsWhatIsPrivileged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{policy: labPolicy(t, "test")})
	s := w.startService()
	w.startRunner(s.plane.URL(), 4)
	w.result(s.control, w.submit(s.control, tcp(openPort(t)))) // an ordinary one
	elevated := w.submit(s.control, tcp(openPort(t), func(j *domain.JobSpec) { j.Controls.OperationPolicyRef = "change/elevated" }))
	destructive := w.submit(s.control, tcp(openPort(t), func(j *domain.JobSpec) { j.Controls.Destructive = true }))
	w.result(s.control, elevated)
	w.result(s.control, destructive)
	aborted := w.submit(s.control, long(t))
	w.reaches(aborted, domain.PhaseRunning)
	if _, err := s.operator.Abort(w.ctx, newKey(), aborted, "it hangs"); err != nil {
		t.Fatal(err)
	}
	w.result(s.control, aborted)
	cancelled := w.submit(s.control, long(t)) // the control plane's own stop is none
	cancel(t, w, s.control, cancelled)
	w.result(s.control, cancelled)

	want := map[string]string{
		"elevated " + string(commands.AttemptStream(elevated)):       "execution.attempt.privileges_granted",
		"destructive " + string(commands.AttemptStream(destructive)): "execution.attempt.privileges_granted",
		"operator " + string(commands.AttemptStream(aborted)):        "execution.attempt.stop_requested",
	}
	page, err := s.operator.Audit(w.ctx, client.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range page.Items {
		key := strings.Join(f.Kinds, "+") + " " + f.Event.Stream
		switch kind, ok := want[key]; {
		case ok && kind == f.Event.Type:
			delete(want, key)
		case strings.HasPrefix(f.Event.Stream, "token/"), strings.HasPrefix(f.Event.Stream, "enrolment/"):
			// made by this test's operator on the database
		default:
			t.Errorf("listed: %s %s", key, f.Event.Type)
		}
		if f.Event.Type == "execution.attempt.stop_requested" && f.Reason != "it hangs" {
			t.Errorf("the reason is %q", f.Reason)
		}
	}
	for key, kind := range want {
		t.Errorf("not listed: %s %s", key, kind)
	}
	var paged []wire.AuditFact
	for q := (client.AuditQuery{Limit: 2}); ; {
		p, err := s.operator.Audit(w.ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		paged = append(paged, p.Items...)
		if q.After = p.Next; q.After == "" {
			break
		}
	}
	if len(paged) != len(page.Items) {
		t.Errorf("%d facts by pages, %d at once", len(paged), len(page.Items))
	}
	if _, err := s.control.Audit(w.ctx, client.AuditQuery{}); client.KindOf(err) != domain.KindForbidden {
		t.Errorf("the control plane reads it: %v", err)
	}
}
