package sim_test

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/platform-core/execution-plane-service/internal/sim"
)

var (
	runSeeds = flag.Uint64("sim.seeds", 0, "how many seeds to run; 0: as many as -sim.for allows")
	runFor   = flag.Duration("sim.for", 15*time.Second, "how long to run seeds")
	runFrom  = flag.Uint64("sim.from", 0, "the first seed; 0: the fixed ones, then random ones")
	runOne   = flag.String("sim.one", "", "a single run, as a failing run is printed")
)

//go:embed testdata/seeds.txt
var regressions string

// run carries out one run in a bubble of its own.
func run(t *testing.T, c sim.Config) (r *sim.Report) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { r = sim.Run(c) })
	return r
}

// fail tells of a failing run, and of the smallest that fails in the same way.
func fail(t *testing.T, r *sim.Report) {
	t.Helper()
	small := sim.Shrink(r, 60, func(c sim.Config) *sim.Report { return run(t, c) })
	t.Errorf("an invariant is broken; add this line to testdata/seeds.txt:\n%s\nagain: %s\nas found: %s\n%s", small.Config.Line(), small.Config.Again(), r.Config.Line(), small)
}

// total is what many runs came to.
type total struct {
	mu      sync.Mutex
	runs    int
	events  int
	steps   int
	virtual time.Duration
	counts  map[string]map[string]int
}

func (s *total) add(r *sim.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.events += r.Events
	s.steps += r.Steps
	s.virtual += r.Virtual
	for kind, m := range r.Counts {
		if s.counts[kind] == nil {
			s.counts[kind] = map[string]int{}
		}
		for what, n := range m {
			s.counts[kind][what] += n
		}
	}
}

func (s *total) sum(kind string) (n int) {
	for _, v := range s.counts[kind] {
		n += v
	}
	return n
}

func TestRegressions(t *testing.T) {
	lines := bufio.NewScanner(strings.NewReader(regressions))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := sim.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, c); r.Failed() {
			t.Errorf("it fails again: %s\n%s", line, r)
		}
	}
}

func TestOne(t *testing.T) {
	line := *runOne
	if line == "" {
		line = "42"
	}
	c, err := sim.ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	t.Log(r)
	if r.Failed() {
		t.Fail()
	}
}

// Whatever goes wrong, what must be true stays true.
func TestSimulate(t *testing.T) {
	all := &total{counts: map[string]map[string]int{}}
	random := rand.Uint64() >> 16
	from := *runFrom
	t.Logf("fixed seeds from %d; every fourth is random, from %d on", from, random)
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a run's garbage is gone with the run
	began, spent := time.Now(), cpuTime(t)
	var next atomic.Uint64
	t.Run("seeds", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() {
					n := next.Add(1) - 1
					if *runSeeds > 0 && n >= *runSeeds || *runSeeds == 0 && time.Since(began) > *runFor {
						return
					}
					seed := from + n
					if n%4 == 3 && from == 0 {
						seed = random + n
					}
					r := run(t, sim.ConfigOf(seed))
					all.add(r)
					if r.Failed() {
						fail(t, r)
					}
				}
			})
		}
	})
	cpu := cpuTime(t) - spent
	t.Logf("%d runs in %s (%s of CPU), %s simulated: %.0f s a CPU second; %d events, %d steps, %d faults",
		all.runs, time.Since(began).Round(time.Millisecond), cpu.Round(time.Millisecond), all.virtual.Round(time.Second), all.virtual.Seconds()/cpu.Seconds(),
		all.events, all.steps, all.sum("fault"))
	t.Log(sim.Table(all.counts))
	all.covers(t)
}

// enough is how many runs a campaign must have for everything to happen in it.
const enough = 600

// covers tells of every fault and every transition that never happened: it was not
// tested.
func (s *total) covers(t *testing.T) {
	t.Helper()
	var missing []string
	expected := sim.TransitionNames()
	expected["fault"] = sim.FaultNames()
	for _, kind := range slices.Sorted(maps.Keys(expected)) {
		for _, what := range expected[kind] {
			if s.counts[kind][what] == 0 {
				missing = append(missing, kind+" "+what)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	tell := t.Logf
	if s.runs >= enough {
		tell = t.Errorf
	}
	tell("in %d runs these never happened, and were not tested: %s", s.runs, strings.Join(missing, ", "))
}

// cpuTime is what this process has spent of the processors.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The same seed is the same run, event for event, on one processor: goroutines that
// one step wakes run in the order in which they were woken. The operating system may
// still hold a goroutine up until the scheduler puts it behind the others, so a run
// that differs is run once more. What draws from outside the seed gives three runs.
func TestSeedsDecideEverything(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := range uint64(4) {
		c := sim.ConfigOf(seed)
		same := func(a, b *sim.Report) bool { return a.Digest == b.Digest && a.Steps == b.Steps }
		a, b := run(t, c), run(t, c)
		if same(a, b) {
			continue
		}
		if third := run(t, c); !same(a, third) && !same(b, third) {
			t.Errorf("seed %d gave three runs:\n%s\n%s\n%s", seed, a, b, third)
		}
	}
}

// A line that describes a run gives that run.
func TestLines(t *testing.T) {
	for seed := range uint64(50) {
		c := sim.ConfigOf(seed)
		if got, err := sim.ParseLine(c.Line()); err != nil || got != c {
			t.Errorf("%s: %+v, %v", c.Line(), got, err)
		}
	}
	for _, bad := range []string{"", "x", "1 fast", "1 fast replicas=1 runners=1 attempts=1 busy=1m skew=0s faults=nonsense"} {
		if c, err := sim.ParseLine(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, c)
		}
	}
}
