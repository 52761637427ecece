package dispatch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
)

// Every reason why a runner does not fit a job, in the words that explain shows.
func TestFits(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	labelled := func(r *domain.RunnerRegistered) {
		r.Labels, r.Tools = map[string]string{"zone": "a"}, map[string]string{"psql": "16.3"}
	}
	needs := func(labels, tools map[string]string) func(*domain.JobSpec) {
		return func(s *domain.JobSpec) {
			s.Runner = &domain.RunnerRequest{Requirements: &domain.RunnerRequirements{Labels: labels, Tools: tools}}
		}
	}
	isolated := func(s *domain.JobSpec) { s.Runner = &domain.RunnerRequest{Isolation: "sandbox"} }
	elsewhere := func(s *domain.JobSpec) { s.Target.Environment = "dev" }
	only := func(env string) func(*domain.RunnerRegistered) {
		return func(r *domain.RunnerRegistered) { r.Environments = []string{env} }
	}
	for _, c := range []struct {
		name    string
		runner  func(*domain.RunnerRegistered)
		job     func(*domain.JobSpec)
		change  func(id domain.RunnerID)
		fits    bool
		reasons []string
	}{
		{name: "fits", fits: true},
		{name: "another implementation", runner: func(r *domain.RunnerRegistered) { r.Name = "ansible-runner" },
			reasons: []string{"is a ansible-runner; the job needs verification-runner", "its implementation ansible-runner 1.0.0 is not approved by policy"}},
		{name: "not approved", runner: func(r *domain.RunnerRegistered) { r.Name = "own-runner" },
			job:     func(s *domain.JobSpec) { s.Runner = &domain.RunnerRequest{Name: "own-runner"} },
			reasons: []string{"its implementation own-runner 1.0.0 is not approved by policy"}},
		{name: "another action", runner: func(r *domain.RunnerRegistered) { r.Actions = []string{"verify.http.endpoint"} },
			reasons: []string{"does not serve action verify.tcp.connect"}},
		{name: "another environment", runner: only("test"), job: elsewhere, reasons: []string{"does not serve environment dev"}},
		{name: "its environment", runner: only("test"), fits: true},
		{name: "stronger isolation", job: isolated, reasons: []string{"can isolate by process; the job needs sandbox"}},
		{name: "more isolation than asked", runner: func(r *domain.RunnerRegistered) { r.Isolation = []string{"process", "container"} }, job: isolated, fits: true},
		{name: "labels and tools", runner: labelled, job: needs(map[string]string{"zone": "a"}, map[string]string{"psql": ">=16"}), fits: true},
		{name: "another label", runner: labelled, job: needs(map[string]string{"zone": "b"}, nil), reasons: []string{`has label zone="a"; the job needs "b"`}},
		{name: "no such label", job: needs(map[string]string{"zone": "b"}, nil), reasons: []string{`has label zone=""; the job needs "b"`}},
		{name: "older tool", runner: labelled, job: needs(nil, map[string]string{"psql": ">=17"}), reasons: []string{"has psql 16.3; the job needs >=17"}},
		{name: "no such tool", job: needs(nil, map[string]string{"psql": ">=17"}), reasons: []string{"does not have psql; the job needs >=17"}},
		{name: "no slot", runner: func(r *domain.RunnerRegistered) { r.Slots = 1 }, change: func(id domain.RunnerID) {
			b.submit()
			b.take(id, 1)
		}, fits: true, reasons: []string{"all 1 slots are taken"}},
		{name: "paused", change: b.changes("pause"), fits: true, reasons: []string{"is paused"}},
		{name: "draining", change: b.changes("drain"), fits: true, reasons: []string{"is draining"}},
		{name: "evicted", change: b.changes("evict"), reasons: []string{"was evicted"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.runner == nil {
				c.runner = func(*domain.RunnerRegistered) {}
			}
			id := b.runner(c.runner)
			if c.change != nil {
				c.change(id)
			}
			spec := newSpec()
			if c.job != nil {
				c.job(spec)
			}
			f := b.fitOf(id, spec)
			if f.Fits != c.fits {
				t.Errorf("fits: %t", f.Fits)
			}
			if d := cmp.Diff(c.reasons, f.Reasons); d != "" {
				t.Error(d)
			}
			// No slot, no offer: the next cases are to find a runner of their own.
			b.changes("evict")(id)
		})
	}
}

// A pool that the bundle changes or drops takes its runners with it.
func TestFitsFollowsThePool(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id := b.runner()
	const approved = "runners:\n  - name: verification-runner\n    version: \"*\"\n    job_types: [verification]\n    environments: [\"*\"]\n"
	const pool = "pools:\n  - name: %NAME%\n    job_types: [verification]\n    actions: [\"verify.http.*\"]\n    environments: [\"*\"]\n    max_slots: 16\n"
	named := func(name string) map[string]string {
		return map[string]string{"runners.yaml": approved, "pools.yaml": strings.Replace(pool, "%NAME%", name, 1)}
	}
	b.policy.Store(bundle(t, named("default")))
	if d := cmp.Diff([]string{"its pool default does not admit verify.tcp.connect in environment test"}, b.fitOf(id, newSpec()).Reasons); d != "" {
		t.Error(d)
	}
	b.policy.Store(bundle(t, named("other")))
	if d := cmp.Diff([]string{"belongs to pool default, which the policy bundle no longer has"}, b.fitOf(id, newSpec()).Reasons); d != "" {
		t.Error(d)
	}
}

func (b *bench) changes(what string) func(domain.RunnerID) {
	return func(id domain.RunnerID) {
		b.t.Helper()
		_, err := b.s.ChangeRunner(b.t.Context(), meta(what), id, what, "the test wants it")
		b.must(err)
	}
}

func (b *bench) fitOf(id domain.RunnerID, spec *domain.JobSpec) dispatch.Fit {
	b.t.Helper()
	fits, err := b.d.Fits(b.t.Context(), spec)
	b.must(err)
	for _, f := range fits {
		if f.Runner.RunnerID == id.UUID() {
			return f
		}
	}
	b.t.Fatalf("runner %s is not judged", id)
	return dispatch.Fit{}
}
