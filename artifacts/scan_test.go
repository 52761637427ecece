package artifacts_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/masker"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

const planted = "hJ7$kq-Zt92/wB=xo5"

// newSecretBench is a bench whose jobs may read one secret.
func newSecretBench(t *testing.T) *bench {
	b := newBench(t, domain.FastProfile())
	b.secrets = []domain.SecretInput{{Name: "db", SecretRef: "vault://kv/db#password"}}
	p, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"secrets.yaml": &fstest.MapFile{Data: []byte(`secret_mappings:
  - name: db
    reference: vault://kv/db
    environments: [test]
    job_types: [verification]
    actions: ["*"]
    policies: [read]
    token_role: attempt
    engine: kv2
`)}})
	b.must(err)
	c := b.s.Config
	c.Policy = func() *policy.Bundle { return p }
	b.use(commands.New(c))
	return b
}

// use makes another replica of the commands the one that serves runners and seals.
func (b *bench) use(s *commands.Service) {
	b.s, b.intake.Commands, b.sealer.Commands = s, s, s
}

// fingerprinted has the runner resolve a secret and send its prints.
func (b *bench) fingerprinted(call commands.LeaseCall, secrets ...string) {
	b.t.Helper()
	key, err := b.s.FingerprintKey(b.t.Context(), call)
	b.must(err)
	prints := printsOf(b.t, key, secrets...)
	for range 2 { // the answer may be lost
		n, err := b.s.AddFingerprints(b.t.Context(), call, prints, 8)
		if err != nil || n != len(prints) {
			b.t.Fatalf("%d prints kept of %d: %v", n, len(prints), err)
		}
	}
	b.resolved(call)
}

func (b *bench) resolved(call commands.LeaseCall) {
	b.t.Helper()
	b.must(b.s.RecordFact(b.t.Context(), meta("token"), call, domain.SecretTokenIssued{Accessor: "a1", Role: "attempt", Policies: []string{"read"}, ExpiresAt: time.Now().Add(time.Hour).UTC(), Purpose: "read"}))
	b.must(b.s.RecordFact(b.t.Context(), meta("fact"), call, domain.SecretResolved{Name: "db", Reference: "vault://kv/db#password", Engine: "kv2", Mapping: "secret_mappings/db", Accessor: "a1"}))
}

func printsOf(t *testing.T, key [32]byte, secrets ...string) []uint64 {
	t.Helper()
	set := masker.New()
	defer set.Close()
	for _, s := range secrets {
		if _, err := set.Add("db", []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	prints := set.Fingerprints(key)
	if len(prints) == 0 {
		t.Fatal("the secret has no prints")
	}
	return prints
}

func (b *bench) artifact(call commands.LeaseCall, name, content string) {
	b.t.Helper()
	up, err := b.intake.Announce(b.t.Context(), meta("announce"+name), call, announcement(name, content))
	b.must(err)
	b.upload(up.Upload, content, true)
	_, err = b.intake.Announce(b.t.Context(), meta("register"+name), call, announcement(name, content))
	b.must(err)
}

// verdict is the scan's event of an attempt that has ended.
func (b *bench) verdict(id domain.AttemptID) domain.Event {
	b.t.Helper()
	events, err := b.store.ReadStream(b.t.Context(), commands.AttemptStream(id), 0, 1000)
	b.must(err)
	var types []string
	var out domain.Event
	for _, e := range events {
		types = append(types, strings.TrimPrefix(e.Type, "execution.attempt."))
		d, err := domain.DecodeEvent(e.Type, e.Schema, e.Payload)
		b.must(err)
		switch d.(type) {
		case domain.ScanPassed, domain.ScanFailed:
			out = d
		}
	}
	if n := len(types); n < 3 || types[n-3] != "sealed" || !strings.HasPrefix(types[n-2], "scan_") {
		b.t.Errorf("the stream ends with %v", types[max(0, n-4):])
	}
	if n := b.kept(id); n != 0 {
		b.t.Errorf("%d rows of fingerprints are left", n)
	}
	r, err := projections.Check(b.t.Context(), b.pool, nil)
	if err != nil || len(r.Differences) > 0 {
		b.t.Errorf("read models: %v, %v", r.Differences, err)
	}
	return out
}

func (b *bench) kept(id domain.AttemptID) (n int) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM secret_fingerprints WHERE attempt_id = $1", id.UUID()).Scan(&n))
	return n
}

func failed(t *testing.T, e domain.Event) domain.ScanFailed {
	t.Helper()
	f, ok := e.(domain.ScanFailed)
	if !ok {
		t.Fatalf("the verdict is %T", e)
	}
	return f
}

func TestACleanBundlePasses(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	_, err := b.log(call, "stdout", 0, "password=[secret db]\n")
	b.must(err)
	b.artifact(call, "report.txt", "nothing of it: hJ7$kq and wB=xo5")
	b.artifact(call, "empty", "")
	b.complete(call, 2, map[string]string{"stdout": "password=[secret db]\n"})
	r := b.sealed(id)
	passed, ok := b.verdict(id).(domain.ScanPassed)
	if !ok || r.RawOutputBundle.State != "complete" || r.Status != domain.StatusSucceeded {
		t.Fatalf("%+v, %+v", b.verdict(id), r.RawOutputBundle)
	}
	// A chunk, two artifacts, job spec, environment, events and manifest.
	if s := passed.Scan; s.Scanner != "fingerprint/1" || s.Prints == 0 || s.Certain != 8 || s.Objects != 7 || s.Texts < 2 || s.Events != b.events(id)-3 || s.Bytes < 2000 || len(s.Skipped) != 0 {
		t.Errorf("%+v", s)
	}
	b.manifest(id) // can be had
	verdicts, bytes := b.sealer.Scans()
	if verdicts[""] != 1 || bytes != passed.Scan.Bytes {
		t.Errorf("counted %v, %d bytes", verdicts, bytes)
	}
}

func TestAnAttemptWithoutSecretsIsNotScanned(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	b.secrets = nil
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, planted)
	b.must(err)
	b.complete(call, 0, map[string]string{"stdout": planted})
	if r := b.sealed(id); r.RawOutputBundle.State != "complete" {
		t.Errorf("%+v", r.RawOutputBundle)
	}
	var verdicts int
	b.must(b.pool.QueryRow(t.Context(), "SELECT count(*) FROM events WHERE type LIKE '%scan%'").Scan(&verdicts))
	if verdicts != 0 {
		t.Errorf("%d verdicts", verdicts)
	}
}

// A secret is found wherever a runner may have put it, and the verdict says where
// without saying it again.
func TestASecretIsFound(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	noise := make([]byte, 300_000)
	rand.Read(noise)
	binary := string(noise[:131_067]) + planted + string(noise[131_067:]) // over a border of pieces
	for name, c := range map[string]struct {
		plant func(call commands.LeaseCall) map[string]string
		found []string
	}{
		"a log, over the border of two chunks": {func(call commands.LeaseCall) map[string]string {
			first, second := "some text and "+planted[:9], planted[9:]+" and more"
			_, err := b.log(call, "stderr", 0, first)
			b.must(err)
			_, err = b.log(call, "stderr", int64(len(first)), second)
			b.must(err)
			return map[string]string{"stderr": first + second}
		}, []string{"stderr"}},
		"the events stream of the log": {func(call commands.LeaseCall) map[string]string {
			_, err := b.log(call, "events", 0, planted)
			b.must(err)
			return map[string]string{"events": planted}
		}, []string{"events log"}},
		"an artifact that is not text": {func(call commands.LeaseCall) map[string]string {
			b.artifact(call, "core", binary)
			return nil
		}, []string{"core"}},
		"an artifact with the name of another part": {func(call commands.LeaseCall) map[string]string {
			b.artifact(call, "stdout", "x"+planted)
			return nil
		}, []string{"artifact stdout"}},
		"a text": {func(call commands.LeaseCall) map[string]string {
			_, err := b.s.RecordEvidence(t.Context(), meta("evidence"+planted), call, domain.EvidenceRecorded{Name: "up", Type: "api_check", Result: "passed", Source: "stdout", ObservedAt: time.Now().UTC()}, "it is "+planted)
			b.must(err)
			return nil
		}, []string{"texts"}},
		"an event": {func(call commands.LeaseCall) map[string]string {
			_, err := b.intake.Announce(t.Context(), meta("inline"), call, artifacts.Announcement{Name: "facts", Type: "facts", Sensitivity: "internal", Inline: []byte(`{"a":"` + planted + `"}`)})
			b.must(err)
			return nil
		}, []string{"events", "events.jsonl"}},
		"a name": {func(call commands.LeaseCall) map[string]string {
			b.artifact(call, planted, "harmless")
			return nil
		}, []string{"events", "manifest.json", "events.jsonl"}},
	} {
		id, call := b.started()
		b.fingerprinted(call, planted)
		logs := c.plant(call)
		b.complete(call, b.state(id).Artifacts, logs)
		r := b.sealed(id)
		f := failed(t, b.verdict(id))
		if f.Reason != domain.ScanSecretFound || f.Hits == 0 || r.RawOutputBundle.State != domain.BundleQuarantined || r.Status != domain.StatusSucceeded {
			t.Errorf("%s: %+v, %+v", name, f, r.RawOutputBundle)
		}
		if d := cmp.Diff(c.found, f.Found); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		b.refused(id)
		var state string
		b.must(b.pool.QueryRow(t.Context(), "SELECT bundle_state FROM attempt_status WHERE attempt_id = $1", id.UUID()).Scan(&state))
		if a := b.state(id); state != domain.BundleQuarantined || a.Bundle != state {
			t.Errorf("%s: the read model says %s, the state %s", name, state, a.Bundle)
		}
		var last string
		b.must(b.pool.QueryRow(t.Context(), "SELECT string_agg(convert_from(payload, 'UTF8'), ' ') FROM events WHERE stream = $1 AND type LIKE '%scan_failed'", "attempt/"+id.String()).Scan(&last))
		if strings.Contains(last, planted) {
			t.Errorf("%s: the verdict tells the secret: %s", name, last)
		}
	}
}

// refused: nobody reads the log or the manifest.
func (b *bench) refused(id domain.AttemptID) {
	b.t.Helper()
	if _, err := b.logs.Manifest(b.t.Context(), id); !errors.Is(err, artifacts.ErrQuarantined) {
		b.t.Errorf("the manifest: %v", err)
	}
	for _, stream := range bundle.Streams() {
		if _, _, err := b.logs.Read(b.t.Context(), id, string(stream), 0, 100); !errors.Is(err, artifacts.ErrQuarantined) || domain.KindOf(err) != domain.KindForbidden {
			b.t.Errorf("the log %s: %v", stream, err)
		}
	}
}

// What cannot be looked for is never called clean.
func TestFingerprintsThatAreLost(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	otherReplica := func() *commands.Service {
		c := b.s.Config
		c.Keys = commands.NewFingerprintKeys()
		return commands.New(c)
	}
	for name, lose := range map[string]func(call commands.LeaseCall){
		"none were sent": func(call commands.LeaseCall) { b.resolved(call) },
		"a key was asked for, and no prints came": func(call commands.LeaseCall) {
			_, err := b.s.FingerprintKey(t.Context(), call)
			b.must(err)
			b.resolved(call)
		},
		"the prints of a secret that has some are none": func(call commands.LeaseCall) {
			_, err := b.s.FingerprintKey(t.Context(), call)
			b.must(err)
			_, err = b.s.AddFingerprints(t.Context(), call, nil, 8)
			b.must(err)
			b.resolved(call)
		},
		"no fact tells of a secret that the job names": func(commands.LeaseCall) {},
		"the table was lost in a crash": func(call commands.LeaseCall) {
			b.fingerprinted(call, planted)
			b.exec("TRUNCATE secret_fingerprints")
		},
		"the table was lost, and the key asked for again": func(call commands.LeaseCall) {
			b.fingerprinted(call, planted)
			b.exec("TRUNCATE secret_fingerprints")
			key, err := b.s.FingerprintKey(t.Context(), call)
			b.must(err)
			_, err = b.s.AddFingerprints(t.Context(), call, printsOf(t, key, "another-4711-Text"), 8)
			b.must(err)
		},
		"the table was lost between key and prints": func(call commands.LeaseCall) {
			key, err := b.s.FingerprintKey(t.Context(), call)
			b.must(err)
			b.exec("TRUNCATE secret_fingerprints")
			_, err = b.s.AddFingerprints(t.Context(), call, printsOf(t, key, planted), 8)
			b.must(err)
			b.resolved(call)
		},
		"another replica handed the key out": func(call commands.LeaseCall) {
			key, err := otherReplica().FingerprintKey(t.Context(), call)
			b.must(err)
			_, err = b.s.AddFingerprints(t.Context(), call, printsOf(t, key, planted), 8)
			b.must(err)
			b.resolved(call)
		},
		"two replicas handed keys out": func(call commands.LeaseCall) {
			b.fingerprinted(call, planted)
			_, err := otherReplica().FingerprintKey(t.Context(), call)
			b.must(err)
		},
	} {
		id, call := b.started()
		lose(call)
		b.complete(call, 0, nil)
		r := b.sealed(id)
		if f := failed(t, b.verdict(id)); f.Reason != domain.ScanFingerprintsLost || f.Scanner != "" || r.RawOutputBundle.State != domain.BundleQuarantined {
			t.Errorf("%s: %+v, %+v", name, f, r.RawOutputBundle)
		}
		b.refused(id)
	}
}

// Prints say that there was something to hide, although no event does: a secret
// artifact that Vault did not take, for example.
func TestPrintsAloneAreReasonEnough(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	b.secrets = nil
	id, call := b.started()
	key, err := b.s.FingerprintKey(t.Context(), call)
	b.must(err)
	_, err = b.s.AddFingerprints(t.Context(), call, printsOf(t, key, planted), 8)
	b.must(err)
	_, err = b.log(call, "stdout", 0, planted)
	b.must(err)
	b.complete(call, 0, map[string]string{"stdout": planted})
	b.sealed(id)
	if f := failed(t, b.verdict(id)); f.Reason != domain.ScanSecretFound {
		t.Errorf("%+v", f)
	}
}

// Replicas with the same secret scan what any of them handed a key out for.
func TestTwoReplicasWithOneKeyFile(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	secret := []byte(strings.Repeat("5f", 32))
	for name, text := range map[string]string{"clean": "nothing", "planted": planted} {
		id, call := b.started()
		var err error
		c := b.s.Config
		c.Keys, err = commands.SharedFingerprintKeys(append(secret, '\n'))
		b.must(err)
		b.use(commands.New(c)) // hands the key out and takes the prints
		b.sealer.Keys, err = commands.SharedFingerprintKeys(secret)
		b.must(err)
		b.fingerprinted(call, planted)
		_, err = b.log(call, "stdout", 0, text)
		b.must(err)
		b.complete(call, 0, map[string]string{"stdout": text})
		r := b.sealed(id)
		if want := map[string]string{"clean": "complete", "planted": "quarantined"}[name]; r.RawOutputBundle.State != want {
			t.Errorf("%s: %s", name, r.RawOutputBundle.State)
		}
	}
}

func TestAScanThatTakesTooLong(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	b.complete(call, 0, nil)
	b.sealer.ScanLimit = time.Nanosecond
	b.sealed(id)
	f := failed(t, b.verdict(id))
	if f.Reason != domain.ScanTimeExceeded || !slices.Contains(f.Skipped, "texts") || f.TextsAreClean() {
		t.Errorf("%+v", f)
	}
	b.refused(id)
}

// Object storage that is away gives no verdict: the seal waits, as it always does.
// An object that is gone, or another one, does.
func TestObjectsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	b.artifact(call, "report.txt", "harmless")
	b.complete(call, 1, nil)
	b.storage.setGet(errAway)
	if err := b.sealer.Seal(t.Context(), id); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("without object storage: %v", err)
	}
	if a := b.state(id); a.Phase != domain.PhaseFinalizing || b.kept(id) != 1 {
		t.Errorf("%s, %d rows of fingerprints", a.Phase, b.kept(id))
	}
	b.storage.setGet(nil)
	b.sealed(id)
	if _, ok := b.verdict(id).(domain.ScanPassed); !ok {
		t.Errorf("when it is back: %+v", b.verdict(id))
	}

	id, call = b.started()
	b.fingerprinted(call, planted)
	b.artifact(call, "gone.txt", "harmless")
	b.artifact(call, "leak.txt", planted)
	b.complete(call, 2, nil)
	var key string
	b.must(b.pool.QueryRow(t.Context(), "SELECT object_key FROM artifacts WHERE attempt_id = $1 AND name = 'gone.txt'", id.UUID()).Scan(&key))
	b.must(b.storage.Delete(t.Context(), key))
	b.sealed(id)
	f := failed(t, b.verdict(id))
	if f.Reason != domain.ScanSecretFound || !slices.Equal(f.Found, []string{"leak.txt"}) || !slices.Equal(f.Skipped, []string{"gone.txt: not as the ledger names it"}) {
		t.Errorf("a hit counts more than a missing object: %+v", f)
	}
	id, call = b.started()
	b.fingerprinted(call, planted)
	b.artifact(call, "gone.txt", "harmless")
	b.complete(call, 1, nil)
	b.must(b.pool.QueryRow(t.Context(), "SELECT object_key FROM artifacts WHERE attempt_id = $1", id.UUID()).Scan(&key))
	b.must(b.storage.Delete(t.Context(), key))
	b.sealed(id)
	if f := failed(t, b.verdict(id)); f.Reason != domain.ScanUnreadable {
		t.Errorf("%+v", f)
	}
}

// An operator's seal reads nothing: with secrets it is quarantined, and the scrubber
// goes on with what there is.
func TestAnOperatorsSealOfAnAttemptWithSecrets(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	_, err := b.log(call, "stdout", 0, "some")
	b.must(err)
	b.complete(call, 1, map[string]string{"stdout": "some and more"})
	a, err := b.s.SealIncomplete(t.Context(), byOperator("seal"), id, "the bucket is gone")
	if err != nil || a.Bundle != domain.BundleQuarantined {
		t.Fatalf("bundle %s, %v", a.Bundle, err)
	}
	if f := failed(t, b.verdict(id)); f.Reason != domain.ScanNotDone || f.TextsAreClean() {
		t.Errorf("%+v", f)
	}
	b.refused(id)
	b.feed()
	s := b.scrubber(&shelf{storage: b.storage})
	if r, err := s.Pass(t.Context(), &id, func() commands.Meta { return meta("scrub") }, nil); err != nil || r.Objects == 0 {
		t.Errorf("the scrubber: %+v, %v", r, err)
	}
}

// breaking is a store whose next append of a verdict fails, before or after it took
// effect, as if the process had ended there.
type breaking struct {
	*postgres.Store
	before, after bool
}

func (s *breaking) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	verdict := slices.ContainsFunc(a.Events, func(e eventstore.NewEvent) bool { return strings.Contains(e.Type, ".scan_") })
	if verdict && s.before {
		s.before = false
		return nil, eventstore.ErrUnavailable
	}
	out, err := s.Store.Append(ctx, a)
	if verdict && s.after {
		s.after = false
		return nil, eventstore.ErrUnavailable
	}
	return out, err
}

// The verdict, the seal and the end are one append: what ends before it scans again,
// what ends after it has nothing to do.
func TestAnEndBetweenScanAndAppend(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	for name, store := range map[string]*breaking{"before the append": {Store: b.store, before: true}, "after the append": {Store: b.store, after: true}} {
		id, call := b.started()
		b.fingerprinted(call, planted)
		_, err := b.log(call, "stdout", 0, planted)
		b.must(err)
		b.complete(call, 0, map[string]string{"stdout": planted})
		c := b.s.Config
		c.Store = store
		b.sealer.Commands = commands.New(c)
		if err := b.sealer.Seal(t.Context(), id); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[bool]int{true: 0, false: 1}[name == "after the append"]; b.kept(id) != want {
			t.Errorf("%s: %d rows of fingerprints, want %d", name, b.kept(id), want)
		}
		r := b.sealed(id)
		if f := failed(t, b.verdict(id)); f.Reason != domain.ScanSecretFound || r.RawOutputBundle.State != domain.BundleQuarantined {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Whoever builds a bundle and forgets to scan it ends nothing.
func TestASealWithoutAVerdictIsRefused(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	b.complete(call, 0, nil)
	_, err := b.s.Seal(t.Context(), id, func(domain.Attempt, time.Time) (domain.Seal, error) {
		return domain.Seal{Sealed: domain.Sealed{State: "complete", URI: "s3://bucket/m", ManifestSHA256: sha("m")}}, nil
	})
	if a := b.state(id); codeOf(err) != "illegal_transition" || a.Phase != domain.PhaseFinalizing || b.kept(id) != 1 {
		t.Errorf("%v; it is %s with %d rows of fingerprints", err, a.Phase, b.kept(id))
	}
}
