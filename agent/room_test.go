package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// brokenDisk is a disk whose writes fail half-way while err is set.
type brokenDisk struct {
	err func(path string) error
}

func (d brokenDisk) write(f *os.File, b []byte, off int64) (int, error) {
	err := d.err(f.Name())
	if err == nil {
		return f.WriteAt(b, off)
	}
	n, werr := f.WriteAt(b[:len(b)/2], off)
	return n, errors.Join(err, werr)
}

// One attempt fills the disk. It is ended for it; the log of the other waits, and
// is whole, torn writes and all.
func TestTheOneThatFillsTheDiskIsEnded(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		var filled atomic.Pointer[string]
		w.launcher.act = func(p *fakeProcess) executor.Exit {
			if p.config.Task.PlanNodeID != "filler" {
				return drip(p)
			}
			path := filepath.Join(shim.Layout(p.config.Dir).Output, "big")
			p.output("big", strings.Repeat("x", 1<<20))
			filled.Store(&path)
			return untilStopped(p)
		}
		w.config.statfs = func(string) (int64, int64, error) { return 1 << 30, 4 << 20, nil }
		w.config.writeSpool = brokenDisk{func(string) error {
			if p := filled.Load(); p != nil {
				if _, err := os.Stat(*p); err == nil {
					return unix.ENOSPC // until its folder is cleared
				}
			}
			return nil
		}}.write
		w.begin()
		quiet := w.plane.submit(nil)
		w.after(3 * time.Second)
		filler := w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) { s.PlanNodeID = "filler" })
		if v := w.completed(filler); v.claim.Result != "storage_unavailable" {
			t.Errorf("the one that filled it: %+v", v.claim)
		}
		w.after(5 * time.Second)
		w.plane.stopJob(quiet, domain.StopCancel)
		v := w.completed(quiet)
		checkLogs(t, v)
		if v.claim.Result != domain.ClaimStopped || !strings.HasPrefix(string(v.logs["stdout"]), "0\n1\n2\n") {
			t.Errorf("the quiet one: %+v with %q", v.claim, v.logs["stdout"])
		}
		for i, line := range strings.Fields(string(v.logs["stdout"])) {
			if line != fmt.Sprint(i) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
	})
}

// The object store is away and jobs go on ending: what is left to send is bounded,
// and work goes on when it is back.
func TestNoNewWorkWhileTooMuchIsLeftToSend(t *testing.T) {
	inWorld(t, everything, func(t *testing.T, w *world) {
		w.config.maxSending = 5
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "put" || op == "artifact" {
				return errWire, nil
			}
			return nil, nil
		})
		w.begin()
		var jobs []*job
		for range 12 {
			jobs = append(jobs, w.plane.submit(nil))
		}
		w.after(2 * time.Minute)
		started := 0
		for _, j := range jobs {
			if w.plane.view(j).started {
				started++
			}
		}
		if want := w.config.Slots + 5; started != want {
			t.Errorf("%d attempts were taken, want %d", started, want)
		}
		w.plane.breakBy(nil)
		for _, j := range jobs {
			if v := w.completed(j); len(v.artifacts) != 2 {
				t.Errorf("artifacts %v", v.artifacts)
			}
		}
	})
}

// The disk is full of something else: nobody is blamed, and each log waits a
// minute. Then it is named, and the agent takes new work when there is room.
func TestNoRoomForAMinuteIsTheOutcome(t *testing.T) {
	inWorld(t, drip, func(t *testing.T, w *world) {
		var full, low atomic.Bool
		w.config.statfs = func(string) (int64, int64, error) {
			if low.Load() {
				return 1 << 20, 1 << 40, nil
			}
			return 1 << 30, 1 << 40, nil
		}
		w.config.writeSpool = brokenDisk{func(string) error {
			if full.Load() {
				return unix.EDQUOT
			}
			return nil
		}}.write
		w.begin()
		j := w.plane.submit(nil)
		w.after(5 * time.Second)
		full.Store(true)
		w.after(50 * time.Second)
		if v := w.plane.view(j); v.claim != nil {
			t.Fatalf("ended after 50 s: %+v", v.claim)
		}
		low.Store(true)
		w.after(5 * time.Second)
		full.Store(false) // its own lines find room again
		w.after(3 * time.Second)
		full.Store(true)
		v := w.completed(j)
		checkLogs(t, v)
		if v.claim.Result != "storage_unavailable" || len(v.logs["stdout"]) == 0 {
			t.Errorf("claim %+v", v.claim)
		}
		full.Store(false)
		next := w.plane.submit(nil)
		w.after(60 * time.Second)
		if w.plane.view(next).started {
			t.Error("a new attempt is taken although the disk is nearly full")
		}
		low.Store(false)
		w.until("the next runs", func() bool { return w.plane.view(next).started })
	})
}

// A disk error in the midst of a log ends that job alone: what came before is
// kept, and the claim is of just that.
func TestDiskErrorInTheMidstOfALog(t *testing.T) {
	inWorld(t, drip, func(t *testing.T, w *world) {
		var broken atomic.Pointer[string]
		w.config.writeSpool = brokenDisk{func(path string) error {
			if p := broken.Load(); p != nil && strings.HasPrefix(path, *p) && strings.HasSuffix(path, "stdout.frames") {
				return unix.EIO
			}
			return nil
		}}.write
		w.begin()
		j, other := w.plane.submit(nil), w.plane.submit(nil)
		w.after(5 * time.Second)
		dir := attemptDir(w.config.StateDir, j.offer.AttemptID, 1)
		broken.Store(&dir)
		v := w.completed(j)
		checkLogs(t, v)
		if v.claim.Result != "storage_unavailable" || len(v.logs["stdout"]) == 0 || !strings.Contains(string(v.logs["events"]), "storage_failed") {
			t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
		}
		w.plane.stopJob(other, domain.StopCancel)
		if v := w.completed(other); v.claim.Result != domain.ClaimStopped {
			t.Errorf("the other: %+v", v.claim)
		}
	})
}

// What finds no room among the agent's own lines is counted, and blocks nobody.
func TestLostEventsAreTold(t *testing.T) {
	inWorld(t, untilStopped, func(t *testing.T, w *world) {
		var full atomic.Bool
		w.config.statfs = func(string) (int64, int64, error) { return 1 << 30, 1 << 40, nil }
		w.config.writeSpool = brokenDisk{func(path string) error {
			if full.Load() && strings.HasSuffix(path, "events.frames") {
				return unix.ENOSPC
			}
			return nil
		}}.write
		w.begin()
		j := w.plane.submit(nil)
		w.after(3 * time.Second)
		full.Store(true)
		at, began := w.agent.find(j.offer.LeaseID), time.Now()
		for range 3 {
			at.note("lost", nil)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("a line without room took %v", d)
		}
		full.Store(false)
		w.plane.stopJob(j, domain.StopCancel)
		v := w.completed(j)
		checkLogs(t, v)
		if events := string(v.logs["events"]); !strings.Contains(events, `"count":3,"event":"events_lost"`) || !strings.Contains(events, `"ended"`) {
			t.Errorf("events %s", events)
		}
	})
}

// A write that failed in its midst leaves nothing for a later agent to read,
// although a shorter one follows.
func TestFailedWriteLeavesNothing(t *testing.T) {
	for name, errno := range map[string]error{"full": unix.ENOSPC, "broken": unix.EIO} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			total := &account{limit: 1 << 30, crossed: make(chan struct{}, 1)}
			fails := false
			s, err := openSpool(dir, total, brokenDisk{func(string) error {
				if fails {
					return errno
				}
				return nil
			}}.write)
			if err != nil {
				t.Fatal(err)
			}
			out := s.streams[bundle.Stdout]
			write := func(text string, want error) {
				t.Helper()
				if _, err := out.Write([]byte(text)); !errors.Is(err, want) {
					t.Errorf("%q: %v, want %v", text[:5], err, want)
				}
			}
			write("first\n", nil)
			fails = true
			// Many frames, of which whole ones are on disk when it fails.
			write(strings.Repeat("lost\n", 100_000), errno)
			fails = false
			want := "first\n"
			if name == "full" {
				write("then\n", nil)
				want += "then\n"
			} else {
				write("never\n", errno)
			}
			if err := s.remove(); err != nil {
				t.Fatal(err)
			}
			again, err := openSpool(dir, total, (*os.File).WriteAt)
			if err != nil {
				t.Fatal(err)
			}
			frames, n, err := again.streams[bundle.Stdout].chunk(0)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := bundle.DecodeFrames(frames, bundle.ChunkLimits())
			if got := string(bundle.Chunk{Stream: bundle.Stdout, Frames: decoded}.Content()); err != nil || got != want || n != int64(len(want)) {
				t.Errorf("%.60q (%d bytes), %v, want %q", got, n, err, want)
			}
			if err := again.remove(); err != nil || total.bytes.Load() != 0 {
				t.Errorf("%v, %d bytes are still counted", err, total.bytes.Load())
			}
		})
	}
}

// One attempt uses up its quota; the log of the other is whole.
func TestQuotaOfOneDoesNotHarmAnother(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.launcher.act = func(p *fakeProcess) executor.Exit {
			if p.config.Task.PlanNodeID == "flood" {
				return flood(5000)(p)
			}
			return drip(p)
		}
		w.config.SpoolQuota = 10_000
		w.begin()
		quiet := w.plane.submit(nil)
		loud := w.completed(w.plane.submit(func(s *domain.JobSpec, _ *wire.Offer) { s.PlanNodeID = "flood" }))
		checkLogs(t, loud)
		if !strings.Contains(string(loud.logs["stdout"]), "are left out here") {
			t.Error("nothing was left out, so nothing is shown")
		}
		w.after(5 * time.Second)
		w.plane.stopJob(quiet, domain.StopCancel)
		v := w.completed(quiet)
		checkLogs(t, v)
		if got := string(v.logs["stdout"]); strings.Contains(got, "[execution-plane]") || !strings.HasPrefix(got, "0\n1\n2\n") {
			t.Errorf("the quiet one: %.200q", got)
		}
	})
}
