package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// flood writes n numbered lines in bursts.
func flood(n int) act {
	return func(p *fakeProcess) executor.Exit {
		for i := range n {
			fmt.Fprintf(p.out, "line %07d of stdout\n", i)
			if i%3 == 0 {
				fmt.Fprintf(p.err, "line %07d of stderr\n", i)
			}
			if i%500 == 0 {
				time.Sleep(700 * time.Millisecond)
			}
		}
		return succeed(p)
	}
}

func numbered(n, step int, name string) string {
	var b strings.Builder
	for i := 0; i < n; i += step {
		fmt.Fprintf(&b, "line %07d of %s\n", i, name)
	}
	return b.String()
}

// Half of all log calls lose their answer, store half of what they carry, or
// never arrive; not a byte is lost, doubled or out of order.
func TestLogIsLosslessUnderLostAndHalfUploads(t *testing.T) {
	const lines = 4000
	inWorld(t, flood(lines), func(t *testing.T, w *world) {
		r := rand.New(rand.NewPCG(1, 2))
		w.plane.breakBy(func(op string, n int) (error, error) {
			switch k := r.IntN(6); {
			case op != "log" || n > 60:
				return nil, nil
			case k == 0:
				return errWire, nil
			case k == 1:
				return nil, errWire
			case k == 2:
				return refusal(domain.KindUnavailable, "storage"), nil
			}
			return nil, nil
		})
		w.plane.logLimit = func(_ string, n int64) int64 {
			if r.IntN(4) == 0 {
				return n / 2
			}
			return n
		}
		w.begin()
		j := w.completed(w.plane.submit(nil))
		checkLogs(t, j)
		if string(j.logs["stdout"]) != numbered(lines, 1, "stdout") {
			t.Errorf("stdout is not what was written: %d bytes", len(j.logs["stdout"]))
		}
		if string(j.logs["stderr"]) != numbered(lines, 3, "stderr") {
			t.Errorf("stderr is not what was written: %d bytes", len(j.logs["stderr"]))
		}
	})
}

// The service has more than the agent knows, or less: its offset wins.
func TestServiceOffsetWins(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		for i := range 20 {
			fmt.Fprintf(p.out, "%02d\n", i)
			time.Sleep(time.Second)
		}
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.after(8 * time.Second)
		w.plane.with(func() { j.logs["stdout"] = j.logs["stdout"][:4] }) // a restored service
		got := w.completed(j)
		checkLogs(t, got)
		if want := "00\n01\n02\n"; !strings.HasPrefix(string(got.logs["stdout"]), want) {
			t.Errorf("stdout %q", got.logs["stdout"])
		}
	})
}

func TestLogWaitsForTheFlushInterval(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		for range 100 {
			fmt.Fprint(p.out, ".")
			time.Sleep(100 * time.Millisecond)
		}
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.completed(w.plane.submit(nil))
		if n := j.chunks["stdout"]; n < 8 || n > 13 {
			t.Errorf("10 s of log at a flush of 1 s came in %d chunks", n)
		}
	})
}

func TestFullChunksDoNotWait(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		block := bytes.Repeat([]byte("x"), 1<<20)
		for range 5 {
			_, _ = p.out.Write(block)
		}
		return succeed(p)
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.completed(w.plane.submit(nil))
		checkLogs(t, j)
		if len(j.logs["stdout"]) != 5<<20 || j.chunks["stdout"] > 6 {
			t.Errorf("%d bytes in %d chunks", len(j.logs["stdout"]), j.chunks["stdout"])
		}
	})
}

func TestUploadStopsWhenTheAttemptIsClosed(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "log" {
				return refusal(domain.KindGone, "attempt_closed"), nil
			}
			return nil, nil
		})
		w.begin()
		j := w.plane.submit(nil)
		w.gone(j)
		if n := len(w.plane.callsOf("log")); n > 3 {
			t.Errorf("%d log calls after the attempt was closed", n)
		}
	})
}

// The disk fails under a running job: it is ended, and says why.
func TestDiskFailureIsTheOutcome(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		fmt.Fprint(p.out, "kept\n")
		for {
			select {
			case <-p.stopped:
				return executor.Exit{Signal: 15}
			case <-time.After(time.Second):
				fmt.Fprint(p.out, "more\n")
			}
		}
	}, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.until("its log comes", func() bool { return len(w.plane.view(j).logs["stdout"]) > 0 })
		w.agent.find(j.offer.LeaseID).spool.streams[bundle.Stdout].file.Close()
		got := w.completed(j)
		if got.claim.Result != "storage_unavailable" || !strings.HasPrefix(string(got.logs["stdout"]), "kept\n") {
			t.Errorf("claim %+v, stdout %q", got.claim, got.logs["stdout"])
		}
	})
}

func TestSpoolReadsBackFromAnyOffset(t *testing.T) {
	total := &account{limit: 1 << 30, crossed: make(chan struct{}, 1)}
	s, err := openSpool(t.TempDir(), total, (*os.File).WriteAt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove()
	st := s.streams[bundle.Stdout]
	r := rand.New(rand.NewPCG(3, 4))
	var want []byte
	for range 120 {
		piece := make([]byte, r.IntN(9000))
		for i := range piece {
			piece[i] = byte(r.Uint32())
		}
		want = append(want, piece...)
		if n, err := st.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 100 {
		from := r.Int64N(int64(len(want)) + 1)
		frames, n, err := st.chunk(from)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := bundle.DecodeFrames(frames, bundle.ChunkLimits())
		if err != nil {
			t.Fatal(err)
		}
		got := bundle.Chunk{Frames: decoded}.Content()
		if int64(len(got)) != n || !bytes.Equal(got, want[from:from+n]) || n == 0 && from < int64(len(want)) {
			t.Fatalf("from %d: %d bytes that differ", from, n)
		}
	}
	if _, _, err := st.chunk(int64(len(want)) + 1); err == nil {
		t.Error("a byte that does not exist was read")
	}
}

func TestSpoolSurvivesATornWrite(t *testing.T) {
	dir := t.TempDir()
	total := &account{limit: 1 << 30, crossed: make(chan struct{}, 1)}
	s, err := openSpool(dir, total, (*os.File).WriteAt)
	if err != nil {
		t.Fatal(err)
	}
	st := s.streams[bundle.Stderr]
	fmt.Fprint(st, "whole")
	before := st.sum.Sum(nil)
	if _, err := st.file.WriteAt(bundle.AppendFrame(nil, 1, []byte("torn away"))[:15], st.encoded); err != nil {
		t.Fatal(err)
	}
	if err := s.remove(); err != nil || total.bytes.Load() != 0 {
		t.Fatal(err, total.bytes.Load())
	}
	s, err = openSpool(dir, total, (*os.File).WriteAt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.remove()
	st = s.streams[bundle.Stderr]
	if n, _ := st.length(); n != 5 || !bytes.Equal(st.sum.Sum(nil), before) {
		t.Errorf("%d bytes are left", n)
	}
	fmt.Fprint(st, " and more")
	frames, n, err := st.chunk(0)
	if err != nil || n != 14 {
		t.Fatal(n, err)
	}
	decoded, _ := bundle.DecodeFrames(frames, bundle.ChunkLimits())
	if got := string(bundle.Chunk{Frames: decoded}.Content()); got != "whole and more" {
		t.Errorf("read %q", got)
	}
}

func TestQuotaIsVisibleAndKeepsHeadAndTail(t *testing.T) {
	var out bytes.Buffer
	left := new(atomic.Int64)
	left.Store(1000)
	reached, told := 0, int64(0)
	q := &quotaWriter{dst: &out, left: left, quota: 1000, reached: func() { reached++ }, lost: func(n int64) { told += n }}
	var all strings.Builder
	for i := range 20_000 {
		line := fmt.Sprintf("%08d\n", i)
		all.WriteString(line)
		if n, err := q.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 2 {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, got := all.String(), out.String()
	lost := len(text) - 1000 - quotaTail
	if reached != 1 || !strings.HasPrefix(got, text[:1000]+"\n[execution-plane] ") || !strings.HasSuffix(got, text[len(text)-quotaTail:]) {
		t.Errorf("head, marker or tail is wrong (reached %d): %.1200q", reached, got)
	}
	if told != int64(lost) || !strings.Contains(got, fmt.Sprintf("%d bytes and ", lost)) || strings.Count(got, "[execution-plane]") != 2 {
		t.Errorf("the marker does not say %d bytes", lost)
	}
}

func TestQuotaOfAnAttempt(t *testing.T) {
	inWorld(t, flood(2000), func(t *testing.T, w *world) {
		w.config.SpoolQuota = 10_000
		w.begin()
		j := w.completed(w.plane.submit(nil))
		checkLogs(t, j)
		if j.claim.Result != "succeeded" || !strings.Contains(string(j.logs["events"]), "log_quota_reached") {
			t.Errorf("result %s, events %s", j.claim.Result, j.logs["events"])
		}
	})
}

func TestFullSpoolTakesNoNewJob(t *testing.T) {
	inWorld(t, func(p *fakeProcess) executor.Exit {
		_, _ = p.out.Write(make([]byte, 4000))
		return untilStopped(p)
	}, func(t *testing.T, w *world) {
		w.config.SpoolTotal = 5000
		w.begin()
		first := w.plane.submit(nil)
		w.after(2 * time.Second)
		w.plane.submit(nil)
		w.after(45 * time.Second)
		if n := len(w.launcher.launched()); n != 1 {
			t.Fatalf("%d jobs run although the spool is at 80 %%", n)
		}
		w.plane.stopJob(first, domain.StopCancel)
		w.until("the second runs", func() bool { return len(w.launcher.launched()) == 2 })
	})
}
