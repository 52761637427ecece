package domain_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// codeOf is the name of an error; "-" for none, "?" for one without a name.
func codeOf(err error) string {
	var e *domain.Error
	switch {
	case err == nil:
		return "-"
	case errors.As(err, &e):
		return e.Code
	}
	return "?"
}

func registered(approved bool) domain.RunnerRegistered {
	return domain.RunnerRegistered{RunnerID: runnerA, Name: "verification-runner", Pool: "lab", Approved: approved, TokenID: tokenA}
}

// run issues commands one after another and gives the last state and events.
func run(t *testing.T, commands ...domain.RunnerCommand) (r domain.Runner, events []domain.Event, err error) {
	t.Helper()
	for i, c := range commands {
		events, err = domain.DecideRunner(r, c, t0)
		if err != nil && i < len(commands)-1 {
			t.Fatalf("%+v: %v", c, err)
		}
		for _, e := range events {
			var evolved error
			if r, evolved = domain.EvolveRunner(r, e, t0); evolved != nil {
				t.Fatal(evolved)
			}
		}
	}
	return r, events, err
}

func change(what string) domain.ChangeRunner {
	return domain.ChangeRunner{Change: what, ReasonText: "why", LastSeen: sec(5)}
}

func TestRunnerRegisters(t *testing.T) {
	reg := domain.RegisterRunner{Registered: registered(true)}
	r, _, err := run(t, reg)
	want := domain.Runner{ID: runnerA, Name: "verification-runner", Pool: "lab", Status: domain.RunnerActive, Approved: true, Incarnation: 1, TokenID: tokenA}
	if err != nil || r != want {
		t.Errorf("%+v %v", r, err)
	}
	if r, _, _ = run(t, reg, reg); r.Incarnation != 2 {
		t.Errorf("each start is an incarnation: %+v", r)
	}
	if r, _, _ = run(t, domain.RegisterRunner{Registered: registered(false)}); r.Status != domain.RunnerUnapproved {
		t.Errorf("%+v", r)
	}
	if r, _, _ = run(t, reg, domain.RegisterRunner{Registered: registered(false)}); r.Status != domain.RunnerUnapproved || r.Approved {
		t.Errorf("an approval does not outlive its policy: %+v", r)
	}
	if r, _, _ = run(t, reg, change("lost"), change("pause"), change("back"), reg); r.Status != domain.RunnerOnPause {
		t.Errorf("a pause of a lost runner outlives its return: %+v", r)
	}
	if r, _, _ = run(t, reg, change("pause"), reg); r.Status != domain.RunnerOnPause || r.Incarnation != 2 {
		t.Errorf("a pause outlives a restart: %+v", r)
	}
	if _, _, err = run(t, reg, change("evict"), reg); codeOf(err) != "runner_evicted" || domain.KindOf(err) != domain.KindForbidden {
		t.Errorf("an evicted runner came back: %v", err)
	}
}

func TestRunnerChanges(t *testing.T) {
	reg := domain.RegisterRunner{Registered: registered(true)}
	events := map[string]domain.Event{
		"pause": domain.RunnerPaused{ReasonText: "why"}, "resume": domain.RunnerResumed{ReasonText: "why"}, "drain": domain.RunnerDraining{ReasonText: "why"},
		"drained": domain.RunnerDrained{}, "lost": domain.RunnerLost{LastSeen: sec(5)}, "back": domain.RunnerResumed{}, "evict": domain.RunnerEvicted{ReasonText: "why"},
	}
	before := map[string][]domain.RunnerCommand{
		"active": {reg}, "unapproved": {domain.RegisterRunner{Registered: registered(false)}}, "paused": {reg, change("pause")},
		"draining": {reg, change("drain")}, "drained": {reg, change("drain"), change("drained")}, "lost": {reg, change("lost")}, "evicted": {reg, change("evict")},
	}
	after := map[string]domain.RunnerStatus{"pause": "paused", "resume": "active", "drain": "draining", "drained": "drained", "lost": "lost", "back": "active", "evict": "evicted"}
	// What has no effect in a state; everything else is an event.
	idle := map[string]string{"active": "resume drained back", "unapproved": "resume drained back", "paused": "pause drained lost back", "draining": "drain lost back", "drained": "drain drained lost back", "lost": "lost drained"}
	for state, commands := range before {
		for what, event := range events {
			t.Run(what+" while "+state, func(t *testing.T) {
				was, _, _ := run(t, commands...)
				if was.Status != domain.RunnerStatus(state) {
					t.Fatalf("the story begins %s", was.Status)
				}
				r, got, err := run(t, append(commands[:len(commands):len(commands)], change(what))...)
				switch {
				case state == "evicted" && what != "evict":
					if codeOf(err) != "runner_evicted" || domain.KindOf(err) != domain.KindGone {
						t.Errorf("%v", err)
					}
				case state == "evicted" || slices.Contains(strings.Fields(idle[state]), what):
					if err != nil || len(got) != 0 || r != was {
						t.Errorf("%v %v", got, err)
					}
				default:
					if d := diff([]domain.Event{event}, got); d != "" || err != nil || r.Status != after[what] {
						t.Errorf("%s: %v, status %s", d, err, r.Status)
					}
				}
			})
		}
	}
	if r, _, _ := run(t, domain.RegisterRunner{Registered: registered(false)}, change("pause"), change("resume")); r.Status != domain.RunnerUnapproved {
		t.Errorf("resuming approves nobody: %s", r.Status)
	}
}

func TestRunnerRefusals(t *testing.T) {
	if _, _, err := run(t, change("pause")); codeOf(err) != "runner_unknown" {
		t.Errorf("%v", err)
	}
	refused := domain.RunnerWriteRefused{AttemptID: attemptA, Epoch: 1, Command: "log", Reason: "stale_epoch"}
	if _, _, err := run(t, domain.RefuseWrite{Refused: refused}); codeOf(err) != "runner_unknown" {
		t.Errorf("%v", err)
	}
	reg := domain.RegisterRunner{Registered: registered(true)}
	before, _, _ := run(t, reg)
	r, got, err := run(t, reg, domain.RefuseWrite{Refused: refused})
	if d := diff([]domain.Event{refused}, got); d != "" || err != nil || r != before {
		t.Errorf("a refused write is a fact and changes nothing: %s %v", d, err)
	}
	if _, got, err := run(t, reg, change("promote")); err == nil || got != nil {
		t.Errorf("an unknown change gave %v", got)
	}
}

func TestToken(t *testing.T) {
	expires := sec(100)
	create := domain.CreateToken{Created: domain.TokenCreated{TokenID: tokenA, Name: "n", Role: domain.RoleRunner, SHA256: digestA, ExpiresAt: &expires}}
	events, err := domain.DecideToken(domain.Token{}, create, t0)
	if d := diff([]domain.Event{create.Created}, events); d != "" || err != nil {
		t.Fatalf("%s %v", d, err)
	}
	tok, err := domain.EvolveToken(domain.Token{}, events[0], sec(1))
	if err != nil || !tok.CreatedAt.Equal(sec(1)) || tok.RevokedAt != nil {
		t.Fatalf("%+v %v", tok, err)
	}
	if _, err := domain.DecideToken(tok, create, t0); codeOf(err) != "command_id_reused" {
		t.Errorf("%v", err)
	}
	revoke := domain.RevokeToken{ReasonText: "why"}
	if _, err := domain.DecideToken(domain.Token{}, revoke, t0); codeOf(err) != "token_unknown" || domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("%v", err)
	}
	events, err = domain.DecideToken(tok, revoke, t0)
	if d := diff([]domain.Event{domain.TokenRevoked{ReasonText: "why"}}, events); d != "" || err != nil {
		t.Fatalf("%s %v", d, err)
	}
	gone, err := domain.EvolveToken(tok, events[0], sec(2))
	if err != nil || !gone.RevokedAt.Equal(sec(2)) || tok.RevokedAt != nil {
		t.Errorf("%+v %v", gone, err)
	}
	if events, err := domain.DecideToken(gone, revoke, t0); err != nil || len(events) != 0 {
		t.Errorf("revoking again is no change: %v %v", events, err)
	}
	if len(domain.Roles()) != 5 {
		t.Errorf("roles %v", domain.Roles())
	}
}

func TestEnrolment(t *testing.T) {
	id := domain.NewID[domain.EnrolmentID](uuid.MustParse("0e000000-0000-4000-8000-000000000001"))
	create := domain.CreateEnrolment{Created: domain.EnrolmentCreated{EnrolmentID: id, Pool: "lab", SHA256: digestA, ExpiresAt: sec(100)}}
	use := domain.UseEnrolment{RunnerID: runnerA, TokenID: tokenA}
	revoke := domain.RevokeEnrolment{ReasonText: "why"}
	step := func(n domain.Enrolment, c domain.EnrolmentCommand, now time.Time) (domain.Enrolment, int, string) {
		t.Helper()
		events, err := domain.DecideEnrolment(n, c, now)
		for _, e := range events {
			var evolved error
			if n, evolved = domain.EvolveEnrolment(n, e, now); evolved != nil {
				t.Fatal(evolved)
			}
		}
		return n, len(events), codeOf(err)
	}
	fresh, n, code := step(domain.Enrolment{}, create, sec(1))
	if n != 1 || code != "-" || fresh.Pool != "lab" || !fresh.CreatedAt.Equal(sec(1)) {
		t.Fatalf("%+v %s", fresh, code)
	}
	used, n, code := step(fresh, use, sec(99))
	if n != 1 || code != "-" || used.UsedBy != runnerA {
		t.Fatalf("%+v %s", used, code)
	}
	revoked, n, code := step(fresh, revoke, sec(2))
	if n != 1 || code != "-" || !revoked.RevokedAt.Equal(sec(2)) {
		t.Fatalf("%+v %s", revoked, code)
	}
	second := use
	second.RunnerID = runnerB
	for name, c := range map[string]struct {
		state   domain.Enrolment
		command domain.EnrolmentCommand
		now     int
		code    string
	}{
		"made twice":                    {fresh, create, 2, "command_id_reused"},
		"used, never made":              {domain.Enrolment{}, use, 2, "enrolment_refused"},
		"used late":                     {fresh, use, 100, "enrolment_refused"},
		"used by a second runner":       {used, second, 3, "enrolment_refused"},
		"used after it was revoked":     {revoked, use, 3, "enrolment_refused"},
		"revoked, never made":           {domain.Enrolment{}, revoke, 2, "enrolment_refused"},
		"revoked twice":                 {revoked, revoke, 3, "enrolment_refused"},
		"revoked after use":             {used, revoke, 3, "enrolment_refused"},
		"used again by the same runner": {used, use, 500, "-"}, // its reply was lost
	} {
		if _, n, code := step(c.state, c.command, sec(c.now)); code != c.code || n != 0 {
			t.Errorf("%s: %d events, %s; want %s", name, n, code, c.code)
		}
	}
}

func TestService(t *testing.T) {
	var s domain.Service
	step := func(c domain.ServiceCommand, n int) []domain.Event {
		t.Helper()
		events, err := domain.DecideService(s, c, sec(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if s, err = domain.EvolveService(s, e, sec(n)); err != nil {
				t.Fatal(err)
			}
		}
		return events
	}
	for _, n := range []int{10, 20} {
		if d := diff([]domain.Event{domain.ServiceResumed{Reason: "no_sweep", GapSeconds: 16}}, step(domain.Resume{Reason: "no_sweep", Gap: 16900 * time.Millisecond}, n)); d != "" || !s.ResumedAt.Equal(sec(n)) {
			t.Errorf("%s %+v", d, s)
		}
	}
	// Of two that saw the same absence only the first records it.
	late := domain.Resume{Reason: "no_sweep", Gap: 27 * time.Second, SweptAt: sec(2)}
	if got := step(late, 30); len(got) != 0 {
		t.Errorf("a return that was recorded at 20 s: %v", got)
	}
	late.SweptAt = sec(25)
	if got := step(late, 40); len(got) != 0 {
		t.Errorf("another swept meanwhile: %v", got)
	}
	if got := step(late, 41); len(got) != 1 || !s.ResumedAt.Equal(sec(41)) {
		t.Errorf("nobody has swept or recorded anything for 16 s: %v", got)
	}
	if d := diff([]domain.Event{domain.PolicyActivated{BundleDigest: digestA}}, step(domain.ActivatePolicy{BundleDigest: digestA}, 30)); d != "" || s.PolicyDigest != digestA {
		t.Errorf("%s %+v", d, s)
	}
	if got := step(domain.ActivatePolicy{BundleDigest: digestA}, 31); len(got) != 0 {
		t.Errorf("the active bundle was activated: %v", got)
	}
	was := s
	if d := diff([]domain.Event{domain.ProjectionRebuilt{Projection: "attempts", Rows: 3}}, step(domain.NoteRebuild{Projection: "attempts", Rows: 3}, 40)); d != "" || s != was {
		t.Errorf("%s %+v", d, s)
	}
}
