package commands_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
)

func reader(role, name string) eventstore.Actor {
	return eventstore.Actor{Kind: role, ID: name, Role: role, Auth: "token"}
}

// accesses are the events of all streams of guarded reads, by stream.
func (b *bench) accesses() map[string][]domain.Event {
	b.t.Helper()
	out := map[string][]domain.Event{}
	for _, replica := range []string{"one", "two"} {
		for _, day := range []string{"2030-01-02", "2030-01-03"} {
			stream := "access/" + day + "/" + replica
			if events := b.events(eventstore.StreamID(stream)); len(events) > 0 {
				out[stream] = events
			}
		}
	}
	return out
}

const stores = `secret_mappings:
  - name: artifacts
    store: vault://secret/artifacts/{attempt_id}/{artifact_name}
    environments: ["*"]
    job_types: [verification]
    actions: ["*"]
    policies: [write]
    token_role: role
    readers: [operator]
`

// storing is a replica of this name whose policy lets operators see where secret
// artifacts are.
func storing(t *testing.T, replica string) func(*commands.Config) {
	t.Helper()
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"stores.yaml": {Data: []byte(stores)}})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *commands.Config) {
		c.Replica = replica
		c.Policy = func() *policy.Bundle { return b }
	}
}

// Each answer is an event before it is given: one for each actor, object, answer
// and minute, at whatever replica.
func TestReadSecret(t *testing.T) {
	b := newBench(t, storing(t, "one"))
	id := b.submitted()
	ask := func(s *commands.Service, actor eventstore.Actor) error {
		return s.ReadSecret(t.Context(), actor, commands.SecretRead{AttemptID: id, Artifact: "kubeconfig", Role: actor.Role})
	}
	minute := b.clock().Truncate(time.Minute)
	access := domain.Access{AttemptID: id, Object: "secret_artifact", Name: "kubeconfig", Minute: minute, BundleDigest: b.s.Policy().Digest()}
	granted, denied := access, access
	granted.Rules = []string{"secret_mappings/artifacts"}
	denied.Reasons = []string{policy.CodeSecretReaderNotAllowed}

	two := b.config
	two.Replica = "two"
	other := commands.New(two)
	for _, s := range []*commands.Service{b.s, b.s, other} {
		if err := ask(s, reader(domain.RoleOperator, "ops")); err != nil {
			t.Errorf("an operator: %v", err)
		}
		if err := ask(s, reader(domain.RoleViewer, "eve")); domain.KindOf(err) != domain.KindForbidden || codeOf(err) != policy.CodeSecretReaderNotAllowed {
			t.Errorf("a viewer: %v", err)
		}
	}
	want := map[string][]domain.Event{"access/2030-01-02/one": {domain.AccessGranted{Access: granted}, domain.AccessDenied{Access: denied}}}
	if d := cmp.Diff(want, b.accesses(), byID); d != "" {
		t.Fatalf("within a minute (-want +got):\n%s", d)
	}

	if err := ask(b.s, reader(domain.RoleOperator, "another")); err != nil {
		t.Error(err)
	}
	b.pass(time.Minute)
	if err := ask(b.s, reader(domain.RoleOperator, "ops")); err != nil {
		t.Error(err)
	}
	b.pass(24 * time.Hour)
	if err := ask(other, reader(domain.RoleOperator, "ops")); err != nil {
		t.Error(err)
	}
	got := b.accesses()
	if len(got["access/2030-01-02/one"]) != 4 || len(got["access/2030-01-03/two"]) != 1 || len(got) != 2 {
		t.Errorf("another actor, minute, day: %v", got)
	}
	first, err := b.store.ReadStream(t.Context(), "access/2030-01-02/one", 0, 1)
	if err != nil || first[0].Actor != reader(domain.RoleOperator, "ops") {
		t.Errorf("%+v, %v", first, err)
	}
}

// What cannot be recorded is not answered, with yes or no.
func TestAReadThatIsNotRecordedIsNotAnswered(t *testing.T) {
	for _, role := range []string{domain.RoleOperator, domain.RoleViewer} {
		for _, persisted := range []bool{false, true} {
			b := newBench(t, storing(t, "one"))
			id := b.submitted()
			ask := func() error {
				return b.s.ReadSecret(t.Context(), reader(role, "somebody"), commands.SecretRead{AttemptID: id, Artifact: "kubeconfig", Role: role})
			}
			b.breakNext(persisted)
			if err := ask(); domain.KindOf(err) != domain.KindUnavailable || codeOf(err) != "access_not_recorded" || !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("%s, persisted %v: %v", role, persisted, err)
			}
			if n := len(b.accesses()["access/2030-01-02/one"]); (n == 1) != persisted {
				t.Errorf("%s, persisted %v: %d events", role, persisted, n)
			}
			if err := ask(); (err == nil) != (role == domain.RoleOperator) || domain.KindOf(err) == domain.KindUnavailable {
				t.Errorf("%s, persisted %v, again: %v", role, persisted, err)
			}
			if n := len(b.accesses()["access/2030-01-02/one"]); n != 1 {
				t.Errorf("%s, persisted %v, again: %d events", role, persisted, n)
			}
		}
	}
}

// Of replicas that are asked the same at once one records it, and all answer.
func TestReplicasThatAreAskedAtOnce(t *testing.T) {
	b := newBench(t, storing(t, ""))
	id := b.submitted()
	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for i := range 20 {
		c := b.config
		c.Replica = []string{"one", "two"}[i%2]
		s := commands.New(c)
		wg.Go(func() {
			errs <- s.ReadSecret(t.Context(), reader(domain.RoleOperator, "ops"), commands.SecretRead{AttemptID: id, Artifact: "kubeconfig", Role: domain.RoleOperator})
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	n := 0
	for _, events := range b.accesses() {
		n += len(events)
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

// A name that no stream may have is made one.
func TestReplicaNames(t *testing.T) {
	for given, want := range map[string]string{
		"host-1_a": "host-1_a", "a/b c.d:é": "a-b-c-d--", strings.Repeat("x", 100): strings.Repeat("x", 64),
	} {
		if got := commands.New(commands.Config{Replica: given}).Replica; got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
	for _, empty := range []string{"", "///"} {
		if a, b := commands.New(commands.Config{Replica: empty}).Replica, commands.New(commands.Config{Replica: empty}).Replica; a == b || len(a) != 36 {
			t.Errorf("%q becomes %q and %q", empty, a, b)
		}
	}
}
