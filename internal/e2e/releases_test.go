package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

// previous builds the release before this one. Where its history is not here, it
// says so aloud and gives the present one: a test of two releases then tests that
// two replicas of one work together.
var previous = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("../../tools/previous.sh")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		fmt.Fprintf(os.Stderr, "\n*** The release before this one is NOT tested beside it:\n%s***\n\n", said.String())
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("build the release before this one: %w\n%s", err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
})

// An update and its undoing: replicas and runners of this release and of the one
// before work on one database at the same time, whoever was there first.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	newer := present(t)
	older := newer
	path, err := previous()
	if err != nil {
		t.Fatal(err)
	}
	if path != "" {
		older.path = path
	}
	t.Run("update", func(t *testing.T) {
		t.Parallel()
		twoReleases(t, older, newer)
	})
	t.Run("going back", func(t *testing.T) {
		t.Parallel()
		twoReleases(t, newer, older)
	})
}

func twoReleases(t *testing.T, first, second binary) {
	w := newWorld(t, setup{bare: true, profile: domain.FastProfile()})
	database := []string{"EXECUTION_PLANE_DATABASE_URL=" + w.db}
	if _, err := first.run(w.ctx, t, database, "migrate"); err != nil {
		t.Fatal(err)
	}
	side := func(b binary) *release { return &release{binary: b, w: w, replica: b.serve(w)} }
	// Alone, before anybody of the other release has touched the database.
	one := side(first)
	one.open(database)
	alone := one.runner(one, "first")
	before := w.submit(one.control, tcp(openPort(t)))
	wantConfirmed(t, w.result(one.control, before), "port_open")
	across := w.submit(one.control, steady(t, 6))
	one.becomes(across, "running")

	if _, err := second.run(w.ctx, t, database, "migrate"); err != nil {
		t.Fatal(err)
	}
	w.open()
	two := side(second)
	two.open(database)
	// Each runner now talks to the replica of the other release.
	alone.stop()
	wantConfirmed(t, w.result(two.control, across), "port_open")
	crossed := []*child{one.runner(two, "first"), two.runner(one, "second")}
	for _, at := range []*release{one, two} {
		other := map[*release]*release{one: two, two: one}[at]
		for _, zone := range []string{"first", "second"} {
			at.story(other, zone)
		}
	}
	versions := w.stateVersions()
	t.Logf("state versions of the heads: %v", versions)
	for _, r := range []*release{one, two} {
		for _, args := range [][]string{{"verify"}, {"projections", "check"}} {
			if out, err := r.run(w.ctx, t, database, args...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
	// The first release leaves; the second has all of it.
	left := w.submit(one.control, in("second")(steady(t, 2)))
	two.becomes(left, "running")
	crossed[0].stop()
	crossed[1].stop()
	one.replica.stop()
	wantConfirmed(t, w.result(two.control, left), "port_open")
	last := second.runner(w, two.url, "", crossed[1].config.StateDir, "--labels", "zone=second")
	wantConfirmed(t, w.result(two.control, w.submit(two.control, in("second")(tcp(openPort(t))))), "port_open")
	last.stop()
	w.eventually("no runner is draining", func() bool { return w.countRunners(domain.RunnerInDrain) == 0 })
	w.checkEverything()
	w.checked = true
	two.replica.stop()
}

// release is a replica of one release with its clients.
type release struct {
	binary
	w        *world
	replica  *child
	url      string
	control  *client.Client
	operator string // token
}

// open waits for the replica, and makes tokens with the release's own verbs.
func (r *release) open(database []string) {
	w := r.w
	w.t.Helper()
	r.url = "http://" + r.replica.config.Listen
	token := map[string]string{}
	for _, role := range []string{domain.RoleControlPlane, domain.RoleOperator} {
		out, err := r.run(w.ctx, w.t, database, "token", "create", "test "+role, "--role", role)
		if err != nil {
			w.t.Fatal(err)
		}
		token[role] = out
	}
	r.control, r.operator = w.client(r.url, token[domain.RoleControlPlane]), token[domain.RoleOperator]
	w.serves(r.replica)
}

// runner starts a runner of this release that talks to the replica of at.
func (r *release) runner(at *release, zone string) *child {
	w := r.w
	w.t.Helper()
	enrolment, err := at.run(w.ctx, w.t, []string{"EXECUTION_PLANE_URL=" + at.url, "EXECUTION_PLANE_TOKEN=" + at.operator}, "runner", "enroll")
	if err != nil {
		w.t.Fatal(err)
	}
	return r.binary.runner(w, at.url, enrolment, filepath.Join(w.t.TempDir(), "runner"), "--labels", "zone="+zone)
}

// in asks for the runner of a zone.
func in(zone string) func(*domain.JobSpec) *domain.JobSpec {
	return func(s *domain.JobSpec) *domain.JobSpec {
		s.Runner = &domain.RunnerRequest{Requirements: &domain.RunnerRequirements{Labels: map[string]string{"zone": zone}}}
		return s
	}
}

func (r *release) becomes(id domain.AttemptID, state string) {
	r.w.t.Helper()
	r.w.eventually("attempt "+id.String()+" is "+state, func() bool {
		a, err := r.control.Attempt(r.w.ctx, id)
		return err == nil && a.State == state
	})
}

// story submits at one release what the other sees, stops and reads.
func (r *release) story(other *release, zone string) {
	w := r.w
	w.t.Helper()
	plain, stopped, refused := in(zone)(tcp(openPort(w.t))), in(zone)(long(w.t)), in(zone)(tcp(openPort(w.t)))
	refused.Target.Resources[0].Binding.Address = "192.0.2.1"
	w.submit(r.control, stopped)
	other.becomes(stopped.AttemptID, "running")
	// The id is known to the other release: no second attempt comes of it.
	first, created, err := r.control.SubmitSpec(w.ctx, plain)
	again, twice, err2 := other.control.SubmitSpec(w.ctx, plain)
	if err != nil || err2 != nil || !created || twice || first != again {
		w.t.Errorf("a submit and its repetition: %+v %t %v, %+v %t %v", first, created, err, again, twice, err2)
	}
	w.submit(r.control, refused)
	wantConfirmed(w.t, w.result(other.control, plain.AttemptID), "port_open")
	if _, err := other.control.Cancel(w.ctx, newKey(), stopped.AttemptID, "seen from the other release"); err != nil {
		w.t.Error(err)
	}
	if res := w.result(r.control, stopped.AttemptID); res.Status != domain.StatusCancelled || res.Stop.Proof != domain.ProofReaped || res.RawOutputBundle.State != "complete" {
		w.t.Errorf("result %+v, stop %+v", res, res.Stop)
	}
	if res := w.result(other.control, refused.AttemptID); res.FailureCode != domain.CodePolicyDenied {
		w.t.Errorf("result %+v", res)
	}
	// Both give the same bytes of the ledger.
	a, err := r.control.AttemptEvents(w.ctx, stopped.AttemptID, 0, 1000)
	b, err2 := other.control.AttemptEvents(w.ctx, stopped.AttemptID, 0, 1000)
	if err != nil || err2 != nil || len(a.Items) == 0 || len(a.Items) != len(b.Items) {
		w.t.Fatalf("the events of both: %d %v, %d %v", len(a.Items), err, len(b.Items), err2)
	}
	for i := range a.Items {
		if a.Items[i].Hash != b.Items[i].Hash {
			w.t.Errorf("event %d differs: %+v, %+v", i, a.Items[i], b.Items[i])
		}
	}
}

// stateVersions counts the heads of attempts by the version of their folded state.
func (w *world) stateVersions() map[int]int {
	w.t.Helper()
	rows, err := w.desk.Pool.Query(w.ctx, "SELECT state_version, count(*) FROM stream_heads WHERE stream LIKE 'attempt/%' GROUP BY 1")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	out := map[int]int{}
	for rows.Next() {
		var version, n int
		if err := rows.Scan(&version, &n); err != nil {
			w.t.Fatal(err)
		}
		out[version] = n
	}
	if err := rows.Err(); err != nil || len(out) == 0 {
		w.t.Fatal("no heads", err)
	}
	return out
}
