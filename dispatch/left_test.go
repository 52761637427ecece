package dispatch

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// What is left is told to one runner of its pool, at most sixteen attempts at a
// time, and again after a while if it is still left.
func TestLeftIsToldOnceInAWhile(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var rows []projections.LeftToken
	for i := range 20 {
		id := uuid.New()
		for j := range 2 {
			rows = append(rows, projections.LeftToken{AttemptID: id, Accessor: fmt.Sprint(i, "-", j), Pool: "a"})
		}
	}
	var l left
	if got := l.claim("a", nil, now); len(got) > 0 || l.waits("a", nil, now) {
		t.Fatalf("before anything was seen: %v", got)
	}
	l.update([]string{"a", "b"}, rows, now, 0)
	if got := l.claim("b", nil, now); len(got) > 0 {
		t.Errorf("another pool is told %v", got)
	}
	busy := []string{knownRevoke + rows[0].AttemptID.String()}
	first := l.claim("a", busy, now)
	if len(first) != maxRevokes || first[0].AttemptID.UUID() != rows[2].AttemptID || !slices.Equal(first[0].Accessors, []string{"1-0", "1-1"}) {
		t.Fatalf("%+v", first)
	}
	if rest := l.claim("a", nil, now); len(rest) != 4 || rest[0].AttemptID.UUID() != rows[0].AttemptID {
		t.Errorf("the rest: %+v", rest)
	}
	if l.waits("a", nil, now.Add(tellAgain-1)) || len(l.claim("a", nil, now.Add(tellAgain-1))) > 0 {
		t.Error("it is told again too soon")
	}
	// Seen again meanwhile: what is still left is not forgotten to have been told.
	l.update([]string{"a"}, rows[:4], now.Add(time.Second), 0)
	if got := l.claim("a", nil, now.Add(tellAgain-1)); len(got) > 0 {
		t.Errorf("after another look: %v", got)
	}
	if got := l.claim("a", busy, now.Add(tellAgain)); len(got) != 1 || got[0].AttemptID.UUID() != rows[2].AttemptID {
		t.Errorf("to one that acts on the first: %+v", got)
	}
	if got := l.claim("a", nil, now.Add(tellAgain)); len(got) != 1 || got[0].AttemptID.UUID() != rows[0].AttemptID {
		t.Errorf("again: %+v", got)
	}
	l.update([]string{"a"}, nil, now.Add(tellAgain), 0)
	if l.waits("a", nil, now.Add(time.Hour)) {
		t.Error("what was revoked is told")
	}
}

// No more is told of one attempt than one request may say is revoked.
func TestManyTokensOfOneAttempt(t *testing.T) {
	id, now := uuid.New(), time.Now()
	var rows []projections.LeftToken
	for i := range maxTold + 1 {
		rows = append(rows, projections.LeftToken{AttemptID: id, Accessor: fmt.Sprint(i), Pool: "a"})
	}
	rows = append(rows, projections.LeftToken{AttemptID: uuid.New(), Accessor: "another's", Pool: "a"})
	var l left
	l.update([]string{"a"}, rows, now, 0)
	if got := l.claim("a", nil, now); len(got) != 2 || len(got[0].Accessors) != maxTold || len(got[1].Accessors) != 1 {
		t.Errorf("%+v", got)
	}
}

// A look that takes long is made seldom, so that many tokens do not load the
// database.
func TestLookingForWhatIsLeftIsPaced(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	var l left
	if got := l.ripe([]string{"a", "b"}, now); len(got) != 2 {
		t.Fatalf("at first: %v", got)
	}
	l.update([]string{"a"}, nil, now, 200*time.Millisecond)
	if got := l.ripe([]string{"a", "b"}, now.Add(9*time.Second)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after a slow look: %v", got)
	}
	if got := l.ripe([]string{"a"}, now.Add(10*time.Second)); len(got) != 1 {
		t.Errorf("later: %v", got)
	}
}

func (r *rig) issue(call commands.LeaseCall, accessor string, until time.Duration) {
	r.t.Helper()
	r.must(r.s.RecordFact(r.ctx, meta(accessor), call, domain.SecretTokenIssued{Accessor: accessor, Role: "role", Policies: []string{"read"},
		ExpiresAt: time.Now().Add(until).UTC().Truncate(time.Microsecond), Purpose: "read"}))
}

const otherPool = "pools:\n  - {name: other, job_types: [verification], actions: ['verify.*'], environments: ['*'], max_slots: 4}\n"

// A runner of the same pool that holds its request is told what a lost one left, as
// soon as nobody looks after it.
func TestARunnerOfThePoolIsToldWhatAnotherLeft(t *testing.T) {
	r := newRig(t)
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"other.yaml": {Data: []byte(otherPool)}})
	r.must(err)
	r.bundle.Store(b)
	r.run(r.d.refresh, r.d.poll)
	gone, helper := r.runner(2), r.runner(1)
	r.submit()
	id, call := r.start(gone)
	r.submit()
	other, otherCall := r.start(gone)
	r.issue(call, "read", time.Hour)
	r.issue(call, "store", time.Hour)
	r.issue(call, "over", -time.Second)
	r.issue(call, "revoked", time.Hour)
	r.must(r.s.RecordFact(r.ctx, meta("revoked"), call, domain.SecretRevoked{Accessors: []string{"revoked"}}))
	r.issue(otherCall, "held", time.Hour)
	foreign := r.runnerIn("other")
	strange := r.runner(1, func(e *domain.RunnerRegistered) { e.Name = "a-strange-runner" })

	glance := func(runner domain.RunnerID) []Revoke {
		t.Helper()
		n, err := r.d.Next(r.ctx, runner, NextRequest{}, 0)
		r.must(err)
		return n.Revoke
	}
	for _, runner := range []domain.RunnerID{gone, helper, foreign, strange} {
		if got := glance(runner); len(got) > 0 {
			t.Fatalf("while it is held %s is told %+v", runner, got)
		}
	}
	type answer struct {
		n   Next
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		n, err := r.d.Next(r.ctx, helper, NextRequest{}, patience)
		answered <- answer{n, err}
	}()
	r.until("the request is held", func() bool { return slices.Contains(r.d.held.pools(), "default") })
	_, err = r.s.Tick(r.ctx, id, commands.TickOptions{EvictedRunner: gone})
	r.must(err)
	if got := glance(strange); len(got) > 0 {
		t.Errorf("a runner that policy does not approve is told %+v", got)
	}
	a := <-answered
	r.must(a.err)
	if len(a.n.Revoke) != 1 || a.n.Revoke[0].AttemptID != id || !slices.Equal(a.n.Revoke[0].Accessors, []string{"read", "store"}) {
		t.Fatalf("told %+v; of %s nothing was to be told", a.n.Revoke, other)
	}
	if got := glance(helper); len(got) > 0 {
		t.Errorf("told again at once: %+v", got)
	}
	if got := glance(foreign); len(got) > 0 {
		t.Errorf("a runner of another pool is told %+v", got)
	}
	r.must(r.s.Revoked(r.ctx, meta("revoked"), helper, id, []string{"read", "store"}))
	rows, err := r.d.Reads.LeftTokens(r.ctx, []string{"default", "other"}, 10)
	if err != nil || len(rows) > 0 {
		t.Errorf("still left: %+v, %v", rows, err)
	}
	// Another replica, that told nobody yet, has nothing to tell either.
	again := openRig(t, r.pool.Config().ConnString())
	n, err := again.d.Next(r.ctx, helper, NextRequest{}, 0)
	if err != nil || len(n.Revoke) > 0 {
		t.Errorf("elsewhere: %+v, %v", n.Revoke, err)
	}
}

// However many tokens one pool leaves, those of another are told too.
func TestEachPoolHasItsOwnShareOfWhatIsLeft(t *testing.T) {
	r := newRig(t)
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"other.yaml": {Data: []byte(otherPool)}})
	r.must(err)
	r.bundle.Store(b)
	r.run(r.d.refresh, r.d.poll)
	for _, pool := range []string{"default", "other"} {
		runner := r.runnerIn(pool)
		r.submit()
		id, call := r.start(runner)
		for i := range 3 {
			expires := time.Hour
			if pool == "default" {
				expires = time.Minute // first in any order over both
			}
			r.issue(call, fmt.Sprint(pool, i), expires)
		}
		_, err := r.s.Tick(r.ctx, id, commands.TickOptions{EvictedRunner: runner})
		r.must(err)
	}
	rows, err := r.d.Reads.LeftTokens(r.ctx, []string{"default", "other"}, 2)
	var got []string
	for _, x := range rows {
		got = append(got, x.Accessor)
	}
	if want := []string{"default0", "default1", "other0", "other1"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

// runnerIn lets a runner into a pool.
func (r *rig) runnerIn(pool string) domain.RunnerID {
	r.t.Helper()
	e := domain.NewID[domain.EnrolmentID](uuid.New())
	r.must(r.s.CreateEnrolment(r.ctx, meta("enrol"), domain.EnrolmentCreated{EnrolmentID: e, Pool: pool, SHA256: sha("secret"), ExpiresAt: time.Now().Add(time.Hour)}))
	reg := domain.RunnerRegistered{RunnerID: domain.NewID[domain.RunnerID](uuid.New()), Name: "verification-runner", Version: "1.0.0", BinaryDigest: sha("binary"),
		JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Isolation: []string{"process"}, Slots: 1}
	_, err := r.s.RegisterRunner(r.ctx, meta("register"), commands.RegisterRunner{
		Enrolment: &commands.EnrolmentProof{ID: e, Secret: "secret"}, TokenSHA256: sha("runner secret"), Registered: reg})
	r.must(err)
	return reg.RunnerID
}
