package plane_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

func encode(t *testing.T, spec *domain.JobSpec) []byte {
	t.Helper()
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send does one request and returns its status and the code of its problem.
func (w *world) send(method, path, token string, body io.Reader, header ...string) (status int, code string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.p.URL()+path, body)
	w.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	w.must(err)
	defer resp.Body.Close()
	var p wire.Problem
	if resp.StatusCode >= 400 {
		w.must(json.NewDecoder(resp.Body).Decode(&p))
	}
	return resp.StatusCode, p.Code
}

// What an input stands for is found when the job is submitted, and recorded.
func TestInputsAreResolvedAtSubmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	maker, report := w.leave(op, left{name: "report", body: "the report"})
	_, failed := w.leave(op, left{name: "report", body: "of a failed attempt", fails: true})
	inliner, small := w.leave(op, left{name: "small", body: `{"a":1}`, inline: true})
	w.put(op, "vars", "old")
	vars := w.put(op, "vars", "new")
	w.store("inputs/team/book.yml", "a book")
	named := func(name, ref, sum string) domain.ArtifactInput {
		return domain.ArtifactInput{Name: name, ArtifactRef: ref, SHA256: sum}
	}
	spec := tcp(op,
		named("report", "artifact://operation/report", ""),
		named("failed", "artifact://"+failed.String(), sha("of a failed attempt")),
		named("small", "artifact://operation/small", ""),
		named("vars", "artifact://operation/vars", sha("new")),
		named("same", "artifact://"+vars.ArtifactID.String(), ""),
		named("book", "s3://artifacts/inputs/team/book.yml", sha("a book")),
		named("", "artifact://operation/vars", ""),
	)
	d, err := w.control.DryRun(t.Context(), encode(t, spec))
	if err != nil || !d.Valid {
		t.Fatalf("dry run: %+v, %v", d, err)
	}
	if _, _, err := w.control.SubmitSpec(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	c, err := w.p.Commands.Created(t.Context(), spec.AttemptID)
	w.must(err)
	failedAttempt := c.Artifacts[1].AttemptID
	want := []domain.InputArtifact{
		{Name: "report", Ref: "artifact://operation/report", SHA256: sha("the report"), Bytes: 10, ID: report, AttemptID: maker},
		{Name: "failed", Ref: "artifact://" + failed.String(), SHA256: sha("of a failed attempt"), Bytes: 19, ID: failed, AttemptID: failedAttempt},
		{Name: "small", Ref: "artifact://operation/small", SHA256: sha(`{"a":1}`), Bytes: 7, ID: small, AttemptID: inliner},
		{Name: "vars", Ref: "artifact://operation/vars", SHA256: sha("new"), Bytes: 3, ID: vars.ArtifactID},
		{Name: "same", Ref: "artifact://" + vars.ArtifactID.String(), SHA256: sha("new"), Bytes: 3, ID: vars.ArtifactID},
		{Name: "book", Ref: "s3://artifacts/inputs/team/book.yml", SHA256: sha("a book"), Bytes: 6},
		{Ref: "artifact://operation/vars", SHA256: sha("new"), Bytes: 3, ID: vars.ArtifactID},
	}
	if d := cmp.Diff(want, c.Artifacts, ids); d != "" {
		t.Error(d)
	}
	// A newer one changes nothing of it: the job submitted again is the job as it was.
	w.put(op, "vars", "newest")
	if _, first, err := w.control.SubmitSpec(t.Context(), spec); err != nil || first {
		t.Errorf("again: %v, %v", first, err)
	}
	// What an attempt left later than the put comes before it.
	w.leave(op, left{name: "vars", body: "of an attempt"})
	later := tcp(op, named("vars", "artifact://operation/vars", sha("of an attempt")))
	if d, err := w.control.DryRun(t.Context(), encode(t, later)); err != nil || !d.Valid {
		t.Errorf("the newest: %+v, %v", d, err)
	}
}

// The bytes of an artifact are given to whoever may read it, once its attempt has
// ended; of a secret and of a quarantined bundle to nobody.
func TestBytesOfArtifacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	maker, report := w.leave(op, left{name: "reports/the report", body: "the report"})
	_, failed := w.leave(op, left{name: "report", body: "of a failed attempt", fails: true})
	_, small := w.leave(op, left{name: "small", body: `{"a":1}`, inline: true})
	for id, body := range map[domain.ArtifactID]string{report: "the report", failed: "of a failed attempt", small: `{"a":1}`, w.put(op, "vars", "put").ArtifactID: "put"} {
		at, err := w.control.ArtifactLocation(t.Context(), id)
		if err != nil || at.SHA256 != sha(body) || at.Bytes != int64(len(body)) {
			t.Fatalf("%q: %+v, %v", body, at, err)
		}
		if got := w.fetch(at.URL); got != body {
			t.Errorf("%q is given as %q", body, got)
		}
	}
	_, running := w.leave(op, left{name: "running", body: "not yet", runs: true})
	found, leaky := w.leave(op, left{name: "leaky", body: "password"})
	w.exec("UPDATE attempt_status SET bundle_state = 'quarantined' WHERE attempt_id = $1", found.UUID())
	_, secret := w.leave(op, left{name: "kubeconfig", body: "secret"})
	w.exec("UPDATE artifacts SET sensitivity = 'secret', storage = 'vault' WHERE artifact_id = $1", secret.UUID())
	for id, code := range map[domain.ArtifactID]string{running: "artifact_pending", leaky: "bundle_quarantined", secret: "artifact_is_secret", domain.NewID[domain.ArtifactID](uuid.New()): "artifact_unknown"} {
		if at, err := w.control.ArtifactLocation(t.Context(), id); client.CodeOf(err) != code || at.URL != "" {
			t.Errorf("%s: %+v, %v", code, at, err)
		}
	}
	if _, err := w.runner.ArtifactLocation(t.Context(), report); client.CodeOf(err) != "role_refused" {
		t.Errorf("a runner: %v", err)
	}
	b, err := w.control.JobSpec(t.Context(), maker)
	var spec domain.JobSpec
	if err != nil || json.Unmarshal(b, &spec) != nil || spec.AttemptID != maker {
		t.Errorf("the JobSpec: %s, %v", b, err)
	}
	if b, err := w.control.JobSpec(t.Context(), found); client.CodeOf(err) != "bundle_quarantined" {
		t.Errorf("of a quarantined attempt: %s, %v", b, err)
	}
}

// Every input that cannot be had is refused by its own code, at submit and before.
func TestInputsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op, other := newOperation(), newOperation()
	_, foreign := w.leave(other, left{name: "report", body: "theirs"})
	put := w.put(other, "put", "theirs")
	_, running := w.leave(op, left{name: "running", body: "not yet", runs: true})
	_, failed := w.leave(op, left{name: "failed", body: "of a failed attempt", fails: true})
	found, quarantined := w.leave(op, left{name: "leaky", body: "password"})
	w.exec("UPDATE attempt_status SET bundle_state = 'quarantined' WHERE attempt_id = $1", found.UUID())
	_, secret := w.leave(op, left{name: "kubeconfig", body: "secret"})
	w.exec("UPDATE artifacts SET sensitivity = 'secret', storage = 'vault' WHERE artifact_id = $1", secret.UUID())
	one, first := w.leave(op, left{name: "twin", body: "one"})
	two, second := w.leave(op, left{name: "twin", body: "two"})
	w.exec("UPDATE artifacts SET created_at = (SELECT created_at FROM artifacts WHERE attempt_id = $1) WHERE attempt_id = $2", one.UUID(), two.UUID())
	_, large := w.leave(op, left{name: "large", body: "large"})
	w.exec("UPDATE artifacts SET bytes = 1073741825 WHERE artifact_id = $1", large.UUID())
	w.store("inputs/book.yml", "a book")
	w.store("policy/theirs", "not for jobs")
	nobody := "artifact://" + uuid.NewString()

	cases := []struct{ name, ref, sum, code, at string }{
		{"no such id", nobody, "", "artifact_unknown", "artifact_ref"},
		{"no such name", "artifact://operation/nothing", "", "artifact_unknown", "artifact_ref"},
		{"a name of a failed attempt only", "artifact://operation/failed", "", "artifact_unknown", "artifact_ref"},
		{"a name of a running attempt only", "artifact://operation/running", "", "artifact_unknown", "artifact_ref"},
		{"a name that only another operation has", "artifact://operation/put", "", "artifact_unknown", "artifact_ref"},
		{"another operation's artifact", "artifact://" + foreign.String(), "", "artifact_foreign", "artifact_ref"},
		{"what was put to another operation", "artifact://" + put.ArtifactID.String(), "", "artifact_foreign", "artifact_ref"},
		{"a running attempt's artifact", "artifact://" + running.String(), "", "artifact_pending", "artifact_ref"},
		{"a quarantined name", "artifact://operation/leaky", "", "artifact_quarantined", "artifact_ref"},
		{"a quarantined artifact", "artifact://" + quarantined.String(), "", "artifact_quarantined", "artifact_ref"},
		{"a secret name", "artifact://operation/kubeconfig", "", "artifact_secret", "artifact_ref"},
		{"a secret artifact", "artifact://" + secret.String(), "", "artifact_secret", "artifact_ref"},
		{"two of a name", "artifact://operation/twin", "", "artifact_ambiguous", "artifact_ref"},
		{"another digest", "artifact://" + failed.String(), sha("else"), "artifact_digest", "sha256"},
		{"a large name", "artifact://operation/large", "", "artifact_too_large", "artifact_ref"},
		{"a large artifact", "artifact://" + large.String(), "", "artifact_too_large", "artifact_ref"},
		{"no such object", "s3://artifacts/inputs/nothing", sha("a book"), "artifact_unknown", "artifact_ref"},
		{"an object with another digest", "s3://artifacts/inputs/book.yml", sha("else"), "artifact_digest", "sha256"},
		{"an object without a digest", "s3://artifacts/inputs/book.yml", "", "required", "sha256"},
		{"an object of the service's own", "s3://artifacts/policy/theirs", sha("not for jobs"), "artifact_place", "artifact_ref"},
		{"an object of another bucket", "s3://elsewhere/inputs/book.yml", sha("a book"), "artifact_place", "artifact_ref"},
		{"an object beside the folder", "s3://artifacts/inputs2/book.yml", sha("a book"), "artifact_place", "artifact_ref"},
		{"an object by a climb", "s3://artifacts/inputs/../policy/theirs", sha("not for jobs"), "scheme", "artifact_ref"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spec := tcp(op, domain.ArtifactInput{Name: "in", ArtifactRef: c.ref, SHA256: c.sum})
			want := domain.Violation{Pointer: "/inputs/artifacts/0/" + c.at, Code: c.code}
			_, _, err := w.control.SubmitSpec(t.Context(), spec)
			var p *client.ProblemError
			if !client.IsInvalid(err) || client.CodeOf(err) != "job_spec_invalid" || !errors.As(err, &p) || len(p.Problem.Violations) != 1 {
				t.Fatalf("submit: %v", err)
			}
			said := p.Problem.Violations[0].Message
			p.Problem.Violations[0].Message = ""
			if p.Problem.Violations[0] != want || len(said) < 20 {
				t.Errorf("submit: %+v %q", p.Problem.Violations[0], said)
			}
			d, err := w.control.DryRun(t.Context(), encode(t, spec))
			if err != nil || d.Valid || len(d.Violations) != 1 || d.Violations[0].Code != c.code || d.Violations[0].Message != said {
				t.Errorf("dry run: %+v, %v", d, err)
			}
			if _, err := w.control.Attempt(t.Context(), spec.AttemptID); !client.IsNotFound(err) {
				t.Errorf("there is an attempt: %v", err)
			}
		})
	}
	// The same bytes are not two things.
	w.exec("UPDATE artifacts SET sha256 = $2 WHERE artifact_id = $1", second.UUID(), sha("one"))
	if d, err := w.control.DryRun(t.Context(), encode(t, tcp(op, domain.ArtifactInput{Name: "in", ArtifactRef: "artifact://operation/twin"}))); err != nil || !d.Valid {
		t.Errorf("twins with the same bytes: %+v, %v", d, err)
	}
	if d, err := w.control.DryRun(t.Context(), encode(t, tcp(op, domain.ArtifactInput{Name: "in", ArtifactRef: "artifact://" + first.String()}))); err != nil || !d.Valid {
		t.Errorf("one of them: %+v, %v", d, err)
	}
	// Every entry has its own violation.
	d, err := w.control.DryRun(t.Context(), encode(t, tcp(op, domain.ArtifactInput{Name: "a", ArtifactRef: nobody}, domain.ArtifactInput{Name: "b", ArtifactRef: "artifact://operation/twin"}, domain.ArtifactInput{Name: "c", ArtifactRef: "artifact://" + foreign.String()})))
	if err != nil || len(d.Violations) != 2 || d.Violations[1].Pointer != "/inputs/artifacts/2/artifact_ref" {
		t.Errorf("several: %+v, %v", d, err)
	}
}

// Other places are the operator's to open.
func TestInputPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev(), "s3://artifacts/inputs/team/", "s3://shared/")
	w.store("inputs/team/x", "x")
	w.store("inputs/x", "x")
	valid := func(ref string) bool {
		t.Helper()
		d, err := w.control.DryRun(t.Context(), encode(t, tcp(newOperation(), domain.ArtifactInput{Name: "in", ArtifactRef: ref, SHA256: sha("x")})))
		w.must(err)
		return d.Valid
	}
	if !valid("s3://artifacts/inputs/team/x") || valid("s3://artifacts/inputs/x") || valid("s3://shared/x") {
		t.Error("a place that is open is refused, or one that is not is taken")
	}
	// A store that does not answer holds no submit up.
	w.stopS3()
	if !valid("s3://artifacts/inputs/team/x") || valid("s3://artifacts/inputs/x") {
		t.Error("without object storage: a place that is open is refused, or one that is not is taken")
	}
}

// The holder of the lease is led to the bytes of its inputs, and nobody to anything
// else.
func TestRunnerFetchesItsInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, policy.BuiltinDev())
	op := newOperation()
	w.leave(op, left{name: "report", body: "the report"})
	w.leave(op, left{name: "small", body: `{"a":1}`, inline: true})
	w.put(op, "unused", "unused")
	w.put(op, "vars", "new")
	w.store("inputs/book.yml", "a book")
	spec := tcp(op,
		domain.ArtifactInput{Name: "a/report", ArtifactRef: "artifact://operation/report"},
		domain.ArtifactInput{Name: "small", ArtifactRef: "artifact://operation/small"},
		domain.ArtifactInput{Name: "vars", ArtifactRef: "artifact://operation/vars"},
		domain.ArtifactInput{Name: "book", ArtifactRef: "s3://artifacts/inputs/book.yml", SHA256: sha("a book")},
		domain.ArtifactInput{ArtifactRef: "artifact://operation/report"},
	)
	lease := w.started(spec)
	w.put(op, "vars", "newer than the job")
	for name, body := range map[string]string{"a/report": "the report", "small": `{"a":1}`, "vars": "new", "book": "a book"} {
		at, err := w.runner.Input(t.Context(), lease, name)
		if err != nil || at.SHA256 != sha(body) || at.Bytes != int64(len(body)) {
			t.Errorf("%s: %+v, %v", name, at, err)
			continue
		}
		if got := w.fetch(at.URL); got != body {
			t.Errorf("%s is %q", name, got)
		}
	}
	before := w.events(commands.AttemptStream(spec.AttemptID))
	for _, name := range []string{"report", "unused", "A/report", "package:" + sha("x"), "package:", "vars "} {
		if _, err := w.runner.Input(t.Context(), lease, name); client.CodeOf(err) != "input_unknown" {
			t.Errorf("%q: %v", name, err)
		}
	}
	if after := w.events(commands.AttemptStream(spec.AttemptID)); after != before {
		t.Errorf("reading inputs made %d events", after-before)
	}
	stranger := lease
	stranger.Token = uuid.NewString()
	if _, err := w.runner.Input(t.Context(), stranger, "vars"); client.CodeOf(err) != "not_lease_holder" {
		t.Errorf("by another token: %v", err)
	}
	if _, err := w.p.Commands.Stop(t.Context(), meta("cancel"), spec.AttemptID, domain.StopCancel, "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.runner.Input(t.Context(), lease, "vars"); err != nil {
		t.Errorf("while it is stopped: %v", err)
	}
	w.end(spec.AttemptID, w.call(lease), 0, false)
	if _, err := w.runner.Input(t.Context(), lease, "vars"); client.CodeOf(err) != "attempt_closed" {
		t.Errorf("after its end: %v", err)
	}
}
