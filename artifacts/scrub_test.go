package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// shelf is object storage whose reads the test harms. What is written stays right.
type shelf struct {
	*storage
	mu    sync.Mutex
	wrong map[string]func([]byte) []byte // nil bytes: an error of the server
	away  func(key string) bool
	reads []string
}

func (s *shelf) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	s.mu.Lock()
	change, away := s.wrong[key], s.away
	s.reads = append(s.reads, key)
	s.mu.Unlock()
	if away != nil && away(key) {
		return nil, fmt.Errorf("%w: no route", objects.ErrUnavailable)
	}
	r, err := s.storage.Get(ctx, key, offset, length)
	if err != nil || change == nil {
		return r, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if b = change(b); b == nil {
		return nil, fmt.Errorf("%w: status 500", objects.ErrUnavailable)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (s *shelf) Probe(ctx context.Context) error {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away != nil && away("probe") {
		return fmt.Errorf("%w: no route", objects.ErrUnavailable)
	}
	return s.storage.Probe(ctx)
}

func (s *shelf) harm(key string, change func([]byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrong == nil {
		s.wrong = map[string]func([]byte) []byte{}
	}
	s.wrong[key] = change
}

func (s *shelf) leave(away func(string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.reads = away, nil
}

func (b *bench) scrubber(s *shelf) *artifacts.Scrubber {
	return &artifacts.Scrubber{Store: b.store, Commands: b.s, Reads: projections.NewReader(b.pool), Objects: s, Leases: b.store, Holder: "bench",
		Log: slog.New(slog.DiscardHandler), BytesPerSecond: 1 << 30}
}

// shelved is a sealed attempt with a log and an artifact, and its manifest.
func (b *bench) shelved() (domain.AttemptID, bundle.Manifest, string) {
	b.t.Helper()
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, "one ")
	b.must(err)
	_, err = b.log(call, "stdout", 4, "two")
	b.must(err)
	up, err := b.intake.Announce(b.t.Context(), meta("announce"), call, announcement("report.txt", "content"))
	b.must(err)
	b.upload(up.Upload, "content", true)
	_, err = b.intake.Announce(b.t.Context(), meta("register"), call, announcement("report.txt", "content"))
	b.must(err)
	b.complete(call, 1, map[string]string{"stdout": "one two"})
	b.sealed(id)
	m := b.manifest(id)
	digest, err := m.Digest()
	b.must(err)
	return id, m, bundle.ManifestKey(m.Prefix(), digest)
}

// bundleEvents are what the stream of an attempt's bundle says, as "type problem".
func (b *bench) bundleEvents(id domain.AttemptID) []string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `SELECT replace(type, 'artifact.scrub_', '') || ' ' || (convert_from(payload, 'UTF8')::jsonb->>'problem')
		FROM events WHERE stream = $1 ORDER BY version`, "bundle/"+id.String())
	b.must(err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		b.must(rows.Scan(&s))
		out = append(out, s)
	}
	return out
}

// Every object that the ledger names is looked at; each thing that is wrong with
// one is said once, and so is that it is right again.
func TestScrubNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	s := &shelf{storage: b.storage}
	id, m, manifest := b.shelved()
	denied := b.submit("192.0.2.1") // an empty bundle, which nobody has written yet
	scrub := b.scrubber(s)
	pass := func() artifacts.ScrubReport {
		t.Helper()
		r, err := scrub.Pass(t.Context(), nil, commands.Scrubber, nil)
		b.must(err)
		return r
	}
	// Two chunks, an artifact, three files and the manifest.
	if r := pass(); !r.OK() || r.Objects != 7 || r.Attempts != 2 || len(b.bundleEvents(id)) != 0 {
		t.Errorf("all is well: %+v, %v", r, b.bundleEvents(id))
	}
	key := map[bundle.Kind]string{}
	for _, o := range m.Objects {
		key[o.Kind] = o.Key
	}
	gone, err := b.object(key[bundle.KindLog])
	b.must(err)
	b.must(b.storage.Delete(t.Context(), key[bundle.KindLog]))
	s.harm(key[bundle.KindArtifact], func(b []byte) []byte { return b[:len(b)-1] })
	s.harm(key[bundle.KindEvents], func(b []byte) []byte { b[0] ^= 1; return b })
	s.harm(key[bundle.KindJobSpec], func([]byte) []byte { return nil })
	for range 2 {
		r := pass()
		got := map[string]string{}
		for _, f := range r.Findings {
			got[f.Key] = f.Problem
			if f.AttemptID != id || f.Bytes == nil || (f.FoundBytes == nil) != (f.Problem == "missing" || f.Problem == "unreadable") {
				t.Errorf("finding %+v", f)
			}
		}
		want := map[string]string{key[bundle.KindLog]: "missing", key[bundle.KindArtifact]: "wrong_size", key[bundle.KindEvents]: "wrong_digest", key[bundle.KindJobSpec]: "unreadable"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("findings (-want +got):\n%s", d)
		}
	}
	want := []string{"failed wrong_size", "failed missing", "failed wrong_digest", "failed unreadable"}
	if d := cmp.Diff(want, b.bundleEvents(id), cmpSorted); d != "" {
		t.Errorf("events after two passes (-want +got):\n%s", d)
	}
	if n, err := scrub.Reads.OpenScrubFindings(t.Context()); n != 4 || err != nil {
		t.Errorf("%d findings stand, %v", n, err)
	}

	// One is restored, one is lost for good, the manifest is changed.
	b.must(b.storage.Bucket.Put(t.Context(), key[bundle.KindLog], bytes.NewReader(gone), int64(len(gone)), bundle.Sum(gone), objects.PutOptions{}))
	s.harm(key[bundle.KindArtifact], func(b []byte) []byte { b[0] ^= 1; return b })
	s.harm(key[bundle.KindEvents], nil)
	s.harm(key[bundle.KindJobSpec], nil)
	s.harm(manifest, func(b []byte) []byte { return append(b, ' ') })
	r := pass()
	if len(r.Findings) != 2 || r.Healed[0].Problem != "wrong_size" && len(r.Healed) != 1 {
		t.Errorf("later: %+v", r)
	}
	s.harm(key[bundle.KindArtifact], nil)
	s.harm(manifest, nil)
	if r := pass(); !r.OK() || r.Objects != 7 {
		t.Errorf("restored: %+v", r)
	}
	want = append(want, "healed missing", "healed wrong_size", "failed wrong_digest", "failed wrong_digest", "healed wrong_digest", "healed wrong_digest", "healed wrong_digest", "healed unreadable")
	if d := cmp.Diff(want, b.bundleEvents(id), cmpSorted); d != "" {
		t.Errorf("events in the end (-want +got):\n%s", d)
	}
	if n, err := scrub.Reads.OpenScrubFindings(t.Context()); n != 0 || err != nil {
		t.Errorf("%d findings stand, %v", n, err)
	}

	// Once the worker has written the empty bundle, it is looked at like the others.
	b.feed()
	b.must(scrub.Reads.SetCheckpoint(t.Context(), "empty-bundles", b.feedEnd()))
	if r := pass(); len(r.Findings) != 1 || r.Findings[0].AttemptID != denied || r.Findings[0].Problem != "missing" {
		t.Errorf("an empty bundle that is gone: %+v", r.Findings)
	}
	if r, err := scrub.Pass(t.Context(), &id, commands.Scrubber, nil); err != nil || !r.OK() || r.Objects != 7 || r.Attempts != 1 {
		t.Errorf("one attempt alone: %+v, %v", r, err)
	}
}

var cmpSorted = cmp.Transformer("sorted", func(in []string) map[string]int {
	out := map[string]int{}
	for _, s := range in {
		out[s]++
	}
	return out
})

// Object storage that goes away in the middle is no finding. The standing scrubber
// goes on where it stopped, also as another process, and looks at each object once
// in a round.
func TestScrubGoesOnAfterObjectStorageWasAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	s := &shelf{storage: b.storage}
	for range 3 {
		b.shelved()
	}
	n := 0
	s.leave(func(string) bool { n++; return n > 9 })
	scrub := b.scrubber(s)
	if r, err := scrub.Pass(t.Context(), nil, commands.Scrubber, nil); domain.KindOf(err) != domain.KindUnavailable || !r.OK() || r.Objects == 0 {
		t.Errorf("by hand: %+v, %v", r, err)
	}
	n = 0
	s.leave(func(string) bool { n++; return n > 12 })
	run := func(until func() bool) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.scrubber(s).Run(ctx) }()
		b.eventually("the scrubber comes so far", until)
		cancel()
		b.must(<-ended)
	}
	at := func() projections.ScrubProgress {
		p, err := scrub.Reads.ScrubProgress(t.Context())
		b.must(err)
		return p
	}
	run(func() bool { return at().Objects > 0 })
	stopped := at()
	if stopped.EndedAt != nil || stopped.Round != 1 {
		t.Errorf("stopped at %+v", stopped)
	}
	s.leave(nil)
	run(func() bool { return at().EndedAt != nil })
	seen := map[string]int{}
	for _, key := range s.reads {
		seen[key]++
	}
	if done := at(); done.Round != 1 || done.Objects < 21 || len(b.allFindings()) != 0 {
		t.Errorf("the round ended with %+v, findings %v", done, b.allFindings())
	}
	// What was looked at before is not looked at again, but for the attempt at hand.
	if len(seen) > 21-int(stopped.Objects)+7 {
		t.Errorf("%d objects read after a stop at %d", len(seen), stopped.Objects)
	}
	// The next round is not due for a week.
	if rest := at().BeganAt.Add(7 * 24 * time.Hour); time.Until(rest) < 6*24*time.Hour {
		t.Errorf("the next round at %s", rest)
	}
}

func (b *bench) allFindings() []string {
	b.t.Helper()
	var out []string
	rows, err := b.pool.Query(b.t.Context(), "SELECT problem || ' ' || object_key FROM scrub_findings ORDER BY 1")
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		var x string
		b.must(rows.Scan(&x))
		out = append(out, x)
	}
	return out
}

// A proxy that answers with pages of its own while the store is away is no finding,
// whatever status it gives.
func TestScrubBelievesNoProxy(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	s := &shelf{storage: b.storage}
	id, m, _ := b.shelved()
	s.leave(func(key string) bool { return key == "probe" })
	scrub := b.scrubber(s)
	pass := func(what string) {
		if r, err := scrub.Pass(t.Context(), &id, commands.Scrubber, nil); domain.KindOf(err) != domain.KindUnavailable || !r.OK() {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	s.harm(m.Objects[0].Key, func([]byte) []byte { return []byte("<html>back soon</html>") })
	pass("a page with status 200")
	b.must(b.storage.Delete(t.Context(), m.Objects[0].Key))
	pass("a page with status 404")
	if got := b.bundleEvents(id); len(got) != 0 {
		t.Errorf("events: %v", got)
	}
}

// A store that begins an answer and is silent then ends the look at the object, not
// the scrubber.
func TestASilentStoreDoesNotHoldTheScrubber(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	id, m, _ := b.shelved()
	s := &silent{storage: b.storage, ids: []string{m.Objects[0].Key}}
	scrub := b.scrubber(nil)
	scrub.Objects, scrub.Stalls = s, 50*time.Millisecond
	r, err := scrub.Pass(t.Context(), &id, commands.Scrubber, nil)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Problem != domain.ScrubUnreadable {
		t.Errorf("%+v, %v", r, err)
	}
}

// A round that one scrubber ended is not gone back to by another that is slower.
func TestAScrubRoundEndsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	reads := projections.NewReader(b.pool)
	now := time.Now().UTC().Truncate(time.Microsecond)
	ended := projections.ScrubProgress{Round: 2, BeganAt: now, EndedAt: &now, Objects: 7}
	next := projections.ScrubProgress{Round: 3, BeganAt: now, ObjectKey: "b", Objects: 1}
	for _, step := range []struct{ set, want projections.ScrubProgress }{
		{ended, ended},
		{projections.ScrubProgress{Round: 2, BeganAt: now, ObjectKey: "a", Objects: 6}, ended},
		{next, next},
		{ended, next},
	} {
		b.must(reads.SetScrubProgress(t.Context(), step.set))
		got, err := reads.ScrubProgress(t.Context())
		b.must(err)
		if d := cmp.Diff(step.want, got); d != "" {
			t.Errorf("after round %d (-want +got):\n%s", step.set.Round, d)
		}
	}
}

// Two scrubbers at once say each thing once.
func TestTwoScrubbersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	s := &shelf{storage: b.storage}
	id, m, _ := b.shelved()
	for _, o := range m.Objects {
		b.must(b.storage.Delete(t.Context(), o.Key))
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if r, err := b.scrubber(s).Pass(t.Context(), nil, commands.Scrubber, nil); err != nil || len(r.Findings) != len(m.Objects) {
				t.Errorf("%d findings of %d, %v", len(r.Findings), len(m.Objects), err)
			}
		})
	}
	wg.Wait()
	if got := b.bundleEvents(id); len(got) != len(m.Objects) || strings.Contains(strings.Join(got, " "), "healed") {
		t.Errorf("%d objects are gone, events: %v", len(m.Objects), got)
	}
}

// What is read is spread over time.
func TestScrubKeepsItsPace(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	id, _, _ := b.shelved()
	scrub := b.scrubber(&shelf{storage: b.storage})
	scrub.BytesPerSecond = 64 << 10 // seven objects count for 112 KiB, of which the first 64 are free
	began := time.Now()
	if _, err := scrub.Pass(t.Context(), &id, commands.Scrubber, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it took %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scrub.Pass(ctx, &id, commands.Scrubber, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a pass that was ended: %v", err)
	}
}

// feedEnd is the cursor of the feed's last entry.
func (b *bench) feedEnd() eventstore.Cursor {
	b.t.Helper()
	c, err := b.store.FeedEnd(b.t.Context())
	b.must(err)
	return c
}
