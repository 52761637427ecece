package artifacts_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

func (b *bench) sealed(id domain.AttemptID) domain.ExecutionResult {
	b.t.Helper()
	b.must(b.sealer.Seal(b.t.Context(), id))
	r, err := b.logs.Result(b.t.Context(), id)
	b.must(err)
	return r
}

func TestACompleteBundle(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, "one ")
	b.must(err)
	_, err = b.log(call, "stdout", 4, "two")
	b.must(err)
	up, err := b.intake.Announce(t.Context(), meta("announce"), call, announcement("report.txt", "content"))
	b.must(err)
	b.upload(up.Upload, "content", true)
	_, err = b.intake.Announce(t.Context(), meta("register"), call, announcement("report.txt", "content"))
	b.must(err)
	if _, err := b.logs.Manifest(t.Context(), id); codeOf(err) != "bundle_not_sealed" {
		t.Errorf("before the end: %v", err)
	}
	b.complete(call, 1, map[string]string{"stdout": "one two", "stderr": ""})
	r := b.sealed(id)
	m := b.manifest(id)
	if r.Status != domain.StatusSucceeded || m.State != bundle.Complete || len(m.Gaps) != 0 {
		t.Errorf("%s, %s, gaps %v", r.Status, m.State, m.Gaps)
	}
	if len(m.Logs) != 2 || m.Logs[1].Stream != "stdout" || m.Logs[1].SHA256.String() != sha("one two") || m.Logs[1].Chunks != 2 || !m.Logs[0].Complete || m.Logs[0].Bytes != 0 {
		t.Errorf("logs %+v", m.Logs)
	}
	kinds := map[bundle.Kind]int{}
	for _, o := range m.Objects {
		kinds[o.Kind]++
	}
	if kinds[bundle.KindLog] != 2 || kinds[bundle.KindArtifact] != 1 || kinds[bundle.KindJobSpec] != 1 || kinds[bundle.KindEnvironment] != 1 || kinds[bundle.KindEvents] != 1 {
		t.Errorf("objects %v", kinds)
	}
	data, complete, err := b.logs.Read(t.Context(), id, "stdout", 0, 100)
	if string(data) != "one two" || !complete || err != nil {
		t.Errorf("after sealing: %q, %t, %v", data, complete, err)
	}
	before := b.events(id)
	b.must(b.sealer.Seal(t.Context(), id))
	if b.events(id) != before {
		t.Error("sealed twice")
	}
}

// What is missing is named, and never changes the outcome.
func TestGaps(t *testing.T) {
	b := newBench(t, brief())
	short, shortCall := b.started()
	differs, differsCall := b.started()
	lost, lostCall := b.started()
	for _, c := range []commands.LeaseCall{shortCall, differsCall, lostCall} {
		_, err := b.log(c, "stdout", 0, "some")
		b.must(err)
	}
	b.complete(shortCall, 2, map[string]string{"stdout": "some and more"})
	b.complete(differsCall, 0, map[string]string{"stdout": "same"})
	b.must(b.sealer.Once(t.Context()))
	if a := b.state(short); a.Phase != domain.PhaseFinalizing {
		t.Errorf("sealed before its bytes came: %s", a.Phase)
	}
	b.exec("SELECT pg_sleep(1.1)")
	for _, id := range []domain.AttemptID{short, lost} {
		_, err := b.s.Tick(t.Context(), id, commands.TickOptions{})
		b.must(err)
	}
	b.exec("SELECT pg_sleep(1.1)") // the salvage window
	for _, c := range []struct {
		id     domain.AttemptID
		status domain.Status
		gaps   []bundle.Gap
	}{
		{short, domain.StatusSucceeded, []bundle.Gap{
			{Kind: bundle.KindArtifact, Name: "unregistered-1", Reason: "upload_lease_expired"},
			{Kind: bundle.KindArtifact, Name: "unregistered-2", Reason: "upload_lease_expired"},
			{Kind: bundle.KindLog, Name: "stdout", From: 4, To: 13, Reason: "upload_lease_expired"}}},
		{differs, domain.StatusSucceeded, []bundle.Gap{{Kind: bundle.KindLog, Name: "stdout", From: 0, To: 4, Reason: "digest_differs"}}},
		{lost, domain.StatusFailed, nil},
	} {
		r := b.sealed(c.id)
		m := b.manifest(c.id)
		if r.Status != c.status || m.State != bundle.Incomplete {
			t.Errorf("%s, %s", r.Status, m.State)
		}
		if c.gaps == nil {
			for _, g := range m.Gaps {
				if g.Reason != "runner_lost" || g.Kind != bundle.KindLog {
					t.Errorf("gap %+v of a lost runner", g)
				}
			}
			if len(m.Gaps) != 3 {
				t.Errorf("gaps of a lost runner: %+v", m.Gaps)
			}
			continue
		}
		if len(m.Gaps) != len(c.gaps) {
			t.Errorf("gaps %+v, want %+v", m.Gaps, c.gaps)
			continue
		}
		for i, g := range c.gaps {
			if m.Gaps[i] != g {
				t.Errorf("gap %+v, want %+v", m.Gaps[i], g)
			}
		}
	}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	b.must(err)
}

func TestSealingWaitsForObjectStorage(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	b.complete(call, 0, nil)
	b.storage.set(errAway, nil)
	if err := b.sealer.Once(t.Context()); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("without object storage: %v", err)
	}
	if a := b.state(id); a.Phase != domain.PhaseFinalizing || a.Outcome == nil || a.Outcome.Status != domain.StatusSucceeded || b.sealer.Waiting() != 1 {
		t.Errorf("%s, %+v, %d wait", a.Phase, a.Outcome, b.sealer.Waiting())
	}
	b.storage.set(nil, nil)
	if r := b.sealed(id); r.RawOutputBundle.State != string(bundle.Complete) {
		t.Errorf("%+v", r.RawOutputBundle)
	}
	b.must(b.sealer.Once(t.Context()))
	if n := b.sealer.Waiting(); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// What arrives while the bundle is built is in it.
func TestALogThatArrivesWhileTheBundleIsBuilt(t *testing.T) {
	b := newBench(t, brief())
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, "some")
	b.must(err)
	b.exec("SELECT pg_sleep(1.1)")
	_, err = b.s.Tick(t.Context(), id, commands.TickOptions{}) // lost; the salvage window begins
	b.must(err)
	// The window is over for the sealer when it loads, and a late completion moves
	// the stream in between.
	b.exec("SELECT pg_sleep(1.1)")
	met := false
	b.storage.set(nil, func(string) {
		if !met {
			met = true
			_, err := b.s.Complete(t.Context(), meta("late"), call, domain.Claim{Result: "succeeded", Launched: true, FinishedAt: time.Now()}, nil)
			if !errors.Is(err, domain.ErrLeaseLost) {
				t.Errorf("a late completion: %v", err)
			}
		}
	})
	b.sealed(id)
	events := b.manifestObject(id, bundle.KindEvents)
	if want := b.events(id) - 2; !met || countLines(events) != want {
		t.Errorf("met %t; the bundle holds %d events of %d before .sealed", met, countLines(events), want)
	}
}

func (b *bench) manifestObject(id domain.AttemptID, kind bundle.Kind) []byte {
	b.t.Helper()
	for _, o := range b.manifest(id).Objects {
		if o.Kind == kind {
			got, err := b.object(o.Key)
			b.must(err)
			return got
		}
	}
	b.t.Fatalf("the bundle has no %s", kind)
	return nil
}

func countLines(b []byte) int {
	n := 0
	for _, c := range b {
		if c == '\n' {
			n++
		}
	}
	return n
}

// A bundle that cannot be sealed, because somebody removed its bytes, is told; it
// does not hide the others, and neither do rows that nothing can be made of.
func TestOneThatCannotBeSealedDoesNotHideTheOthers(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	broken, brokenCall := b.started()
	_, err := b.log(brokenCall, "stdout", 0, "some")
	b.must(err)
	var key string
	b.must(b.pool.QueryRow(t.Context(), "SELECT object_key FROM log_index WHERE attempt_id = $1", broken.UUID()).Scan(&key))
	b.complete(brokenCall, 0, map[string]string{"stdout": "some"})
	b.must(b.storage.Delete(t.Context(), key))
	b.exec(`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, finished_at, sealable)
		SELECT g, 'attempt/' || g, 'finalizing', 'finalizing', 1, clock_timestamp() - interval '1 hour', true
		FROM (SELECT gen_random_uuid() AS g FROM generate_series(1, 150)) x`)
	good, call := b.started()
	b.complete(call, 0, nil)
	if err := b.sealer.Once(t.Context()); err == nil {
		t.Error("a chunk that is gone is not told")
	}
	if a := b.state(good); a.Phase != domain.PhaseClosed {
		t.Errorf("the other one is %s", a.Phase)
	}
	if a := b.state(broken); a.Phase != domain.PhaseFinalizing {
		t.Errorf("the broken one is %s", a.Phase)
	}
}

// An attempt that never ran has the canonical empty bundle at once, and in object
// storage when it is there.
func TestEmptyBundle(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id := b.submit("192.0.2.1") // policy refuses it
	raw, err := b.logs.Manifest(t.Context(), id)
	b.must(err)
	m, err := bundle.DecodeManifest(raw)
	b.must(err)
	if m.State != bundle.Empty || m.FailureCode != string(domain.CodePolicyDenied) || len(m.Objects) != 0 {
		t.Errorf("manifest %+v", m)
	}
	key := bundle.ManifestKey(m.Prefix(), bundle.Sum(raw))
	if _, err := b.object(key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("before the worker came: %v", err)
	}
	b.feed()
	b.storage.set(errAway, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.sealer.Run(ctx) }()
	b.eventually("the worker tries", func() bool { return len(b.storage.tried()) > 0 })
	b.storage.set(nil, nil)
	b.eventually("the empty bundle is stored", func() bool {
		stored, err := b.object(key)
		return err == nil && string(stored) == string(raw)
	})
	cancel()
	b.must(<-ended)
	if tried := b.storage.tried(); len(tried) != 1 {
		t.Errorf("put %v", tried)
	}
}

// eventually polls for what another goroutine does.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("did not come to pass: %s", what)
		}
	}
}

func TestPolicies(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	p := policy.BuiltinDev()
	b.storage.set(errAway, nil)
	first := artifacts.NewPolicies(b.storage, p)
	if err := first.Keep(t.Context(), p); domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("keep without object storage: %v", err)
	}
	if got, err := first.Archive(t.Context(), p.Digest()); err != nil || string(got) != string(p.Bytes()) {
		t.Errorf("runners are served all the same: %v", err)
	}
	b.storage.set(nil, nil)
	for range 2 {
		b.must(first.Keep(t.Context(), p))
	}
	other := artifacts.NewPolicies(b.storage, policy.Builtin()) // another replica, with another bundle
	got, err := other.Bundle(t.Context(), p.Digest())
	if err != nil || got.Digest() != p.Digest() {
		t.Errorf("from object storage: %v", err)
	}
	for _, digest := range []string{sha("unknown"), "no digest", "", "../secret"} {
		if _, err := other.Archive(t.Context(), digest); domain.KindOf(err) != domain.KindNotFound {
			t.Errorf("%q: %v", digest, err)
		}
	}
}
