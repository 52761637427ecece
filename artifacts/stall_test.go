package artifacts_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// silent is object storage that takes requests of some attempts and never answers.
type silent struct {
	*storage
	mu  sync.Mutex
	ids []string
}

func (s *silent) mute(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.ids {
		if strings.Contains(key, id) {
			return true
		}
	}
	return false
}

func (s *silent) Put(ctx context.Context, key string, r io.Reader, size int64, sum bundle.SHA256, o objects.PutOptions) error {
	if s.mute(key) {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.storage.Put(ctx, key, r, size, sum, o)
}

func (s *silent) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.storage.Get(ctx, key, offset, length)
	if err == nil && s.mute(key) {
		r = silentBody{r, ctx}
	}
	return r, err
}

type silentBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b silentBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// A transfer that makes no progress ends; the seal is tried again and the others
// go on.
func TestASilentStoreDoesNotHoldASeal(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	s := &silent{storage: b.storage}
	b.sealer.Objects, b.sealer.Stalls = s, 200*time.Millisecond
	var hung []domain.AttemptID
	for range 4 {
		id, call := b.started()
		_, err := b.log(call, "stdout", 0, "some")
		b.must(err)
		b.complete(call, 0, map[string]string{"stdout": "some"})
		hung = append(hung, id)
		s.ids = append(s.ids, id.String())
	}
	// Without a log the first thing is a put.
	put := b.ready()
	s.ids = append(s.ids, put.String())
	for _, id := range append(hung[:1:1], put) {
		if err := b.sealer.Seal(t.Context(), id); domain.KindOf(err) != domain.KindUnavailable || !errors.Is(err, objects.ErrUnavailable) || !strings.Contains(err.Error(), "no progress") {
			t.Errorf("a silent store: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.sealer.Run(ctx) }()
	b.eventually("the four were tried", func() bool { return b.sealer.Waiting() >= 4 })
	good := []domain.AttemptID{b.ready(), b.ready(), b.ready()}
	b.eventually("the others are sealed", func() bool {
		for _, id := range good {
			if b.state(id).Phase != domain.PhaseClosed {
				return false
			}
		}
		return true
	})
	s.mu.Lock()
	s.ids = nil
	s.mu.Unlock()
	b.eventually("they are sealed once the store speaks", func() bool {
		for _, id := range append(hung, put) {
			if b.state(id).Phase != domain.PhaseClosed {
				return false
			}
		}
		return true
	})
	cancel()
	b.must(<-ended)
	if m := b.manifest(hung[0]); m.State != bundle.Complete {
		t.Errorf("%s", m.State)
	}
}

// Two sealers at once on one attempt: one seals, and both are content.
func TestTwoSealersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	other := &artifacts.Sealer{Store: b.store, Feed: b.store, Commands: b.s, Reads: b.sealer.Reads, Objects: b.storage, Leases: b.store, Holder: "other",
		Woken: b.sealer.Woken, Log: b.sealer.Log}
	for range 4 {
		id, call := b.started()
		_, err := b.log(call, "stdout", 0, "some")
		b.must(err)
		b.complete(call, 0, map[string]string{"stdout": "some"})
		var wg sync.WaitGroup
		for _, s := range []*artifacts.Sealer{b.sealer, other, b.sealer} {
			wg.Go(func() {
				if err := s.Seal(t.Context(), id); err != nil {
					t.Errorf("a sealer: %v", err)
				}
			})
		}
		wg.Wait()
		if n := b.seals(id); n != 1 {
			t.Errorf("%d seals", n)
		}
		if m := b.manifest(id); m.State != bundle.Complete {
			t.Errorf("%s", m.State)
		}
	}
}

func (b *bench) seals(id domain.AttemptID) (n int) {
	b.t.Helper()
	b.must(b.pool.QueryRow(b.t.Context(), "SELECT count(*) FROM events WHERE stream = $1 AND type = 'execution.attempt.sealed'", "attempt/"+id.String()).Scan(&n))
	return n
}

// What a lost runner brings within the salvage window is in the one bundle that is
// sealed afterwards, though two sealers look all the time. What comes later is
// refused.
func TestSalvageIsSealedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, brief())
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, "before ")
	b.must(err)
	// Announced, and never uploaded: nothing of it is in the ledger.
	_, err = b.intake.Announce(t.Context(), meta("announce"), call, announcement("never.txt", "content"))
	b.must(err)
	b.exec("SELECT pg_sleep(1.1)")
	_, err = b.s.Tick(t.Context(), id, commands.TickOptions{})
	b.must(err)
	whole := "before "
	for stop := false; !stop; {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := b.sealer.Seal(t.Context(), id); err != nil {
					t.Errorf("seal: %v", err)
				}
			})
		}
		part := "salvaged "
		if _, err := b.log(call, "stdout", int64(len(whole)), part); err == nil {
			whole += part
		} else if k := domain.KindOf(err); k != domain.KindGone && k != domain.KindConflict {
			t.Errorf("salvage is refused with %v", err)
		}
		wg.Wait()
		stop = b.state(id).Phase == domain.PhaseClosed
	}
	if whole == "before " {
		t.Error("nothing was salvaged")
	}
	m := b.manifest(id)
	if b.seals(id) != 1 || m.State != bundle.Incomplete {
		t.Errorf("%d seals, %s", b.seals(id), m.State)
	}
	for _, l := range m.Logs {
		if l.Stream == bundle.Stdout && l.Bytes != int64(len(whole)) {
			t.Errorf("the bundle holds %d bytes, %d were acknowledged", l.Bytes, len(whole))
		}
	}
	if got := b.readAll(id, "stdout"); got != whole {
		t.Errorf("read %q, acknowledged %q", got, whole)
	}
	if _, err := b.log(call, "stdout", int64(len(whole)), "late"); domain.KindOf(err) != domain.KindGone {
		t.Errorf("after the seal: %v", err)
	}
}

// Names and bytes are two things: the same bytes under two names are two objects,
// the same name with other bytes is refused and its object harms nobody.
func TestNamesAndBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	put := func(name, content string) error {
		t.Helper()
		up, err := b.intake.Announce(t.Context(), meta("announce"), call, announcement(name, content))
		if err == nil && up.Upload != nil {
			b.upload(up.Upload, content, true)
			_, err = b.intake.Announce(t.Context(), meta("register"), call, announcement(name, content))
		}
		return err
	}
	for _, name := range []string{"a.txt", "b.txt", "a.txt"} {
		if err := put(name, "the same"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := put("a.txt", "other"); codeOf(err) != "artifact_exists" {
		t.Errorf("other bytes under the same name: %v", err)
	}
	b.complete(call, 2, nil)
	if r := b.sealed(id); r.RawOutputBundle.State != string(bundle.Complete) || len(r.Artifacts) != 2 {
		t.Errorf("%s with %d artifacts", r.RawOutputBundle.State, len(r.Artifacts))
	}
	keys := map[string]bool{}
	for _, o := range b.manifest(id).Objects {
		if o.Kind == bundle.KindArtifact {
			keys[o.Key] = o.SHA256.String() == sha("the same")
		}
	}
	if len(keys) != 2 {
		t.Errorf("objects %v", keys)
	}
	for key, same := range keys {
		if !same {
			t.Errorf("%s has other bytes", key)
		}
	}
}

// readAll reads a closed attempt's stream to its end.
func (b *bench) readAll(id domain.AttemptID, stream string) string {
	b.t.Helper()
	var out strings.Builder
	for {
		data, complete, err := b.logs.Read(b.t.Context(), id, stream, int64(out.Len()), 1<<20)
		b.must(err)
		out.Write(data)
		if complete {
			return out.String()
		}
		if len(data) == 0 {
			b.t.Fatalf("the log of %s stops at %d bytes and is not complete", id, out.Len())
		}
	}
}
