//go:build broken

package sim_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/internal/sim"
)

// focus is where a guard matters: trouble that runs must have, and how large they
// are. A campaign meets all of it in the end; this only makes it soon.
type focus struct {
	faults  sim.Faults
	profile string
	crowd   bool // many attempts on many runners
	only    bool // no other trouble
}

// simulated are the guards whose absence the simulator must notice.
var simulated = map[string]focus{
	"no_epoch_check":        {faults: sim.Duplicates | sim.Delays | sim.Operator | sim.RunnerCrashes},
	"complete_in_any_phase": {faults: sim.Duplicates},
	"stop_twice":            {faults: sim.Operator},
	"start_after_cancel":    {faults: sim.Operator},
	"start_twice":           {faults: sim.Duplicates},
	"log_at_any_offset":     {faults: sim.LostMessages},
	"downtime_counts":       {faults: sim.Downtime},
	"seal_early":            {},
	"late_outcome_wins":     {faults: sim.Partitions | sim.AgentPauses | sim.MachinePauses},
	"version_ignored":       {faults: sim.Duplicates | sim.Operator},
	"no_idempotency":        {faults: sim.LostMessages | sim.Duplicates},
	"local_clock":           {},
	"rows_forgotten":        {},
	"dead_lease":            {faults: sim.Partitions | sim.AgentPauses | sim.MachinePauses | sim.StalledSweeps, only: true},
	"salvage_unlimited":     {faults: sim.Partitions | sim.MachinePauses | sim.ObjectsAway, only: true},
	"upload_never_renewed":  {faults: sim.ObjectsAway, profile: "fast"},
	"resumed_at_ignored":    {faults: sim.Downtime | sim.StalledSweeps},
	"mass_expiry":           {faults: sim.APIAway | sim.SilentJobs, profile: "fast", crowd: true, only: true},
	"wall_clock":            {faults: sim.WallSteps | sim.Partitions},
	"publish_before_commit": {only: true},
}

// within is how many seeds may pass before a missing guard is noticed.
const within = 60

func (f focus) config(seed uint64) sim.Config {
	c := sim.ConfigOf(seed)
	c.Faults = c.Faults&^sim.ObjectsGone | f.faults
	if f.only {
		c.Faults = f.faults
	}
	if f.profile != "" {
		c.Profile = f.profile
	}
	c.Busy = min(c.Busy, 4*time.Minute)
	if f.crowd {
		c.Attempts, c.Runners, c.Busy = 60, 14, 2*time.Minute
	}
	return c
}

func TestKnownBad(t *testing.T) {
	defer broken.Use("")
	for _, guard := range slices.Sorted(maps.Keys(simulated)) {
		t.Run(guard, func(t *testing.T) {
			broken.Use(guard)
			began := time.Now()
			for seed := range uint64(within) {
				if r := run(t, simulated[guard].config(seed)); r.Failed() {
					t.Logf("noticed with seed %d after %s: %s", seed, time.Since(began).Round(time.Millisecond), r.Violations[0])
					return
				}
			}
			t.Errorf("%d seeds did not notice that the guard is missing", within)
		})
	}
}

// checked are the guards whose absence shows in histories of concurrent calls.
var checked = []string{"no_epoch_check", "complete_in_any_phase", "stop_twice", "start_after_cancel", "start_twice", "version_ignored", "no_idempotency", "rows_forgotten"}

func TestKnownBadHistories(t *testing.T) {
	defer broken.Use("")
	for _, guard := range checked {
		t.Run(guard, func(t *testing.T) {
			broken.Use(guard)
			for seed := range uint64(20) {
				history, err := inMemory(seed).Record(t.Context())
				if err != nil {
					t.Logf("noticed with seed %d: %v", seed, err)
					return
				}
				if got, _ := check(t, history); got == porcupine.Illegal {
					t.Logf("noticed with seed %d", seed)
					return
				}
			}
			t.Error("20 histories did not show that the guard is missing")
		})
	}
}

// tested are the guards that live where the simulator does not reach, each with the
// package's own test that must fail without it.
var tested = []struct{ guard, pkg, test string }{
	{"wall_clock", "agent", "TestFenceCountsByTheBootTimeClock"},
	{"no_eof_flush", "agent", "TestOneJobFromOfferToTheLastByte"},
	{"seal_without_readback", "artifacts", "TestGaps"},
	{"seal_unscanned", "artifacts", "TestASealWithoutAVerdictIsRefused"},
}

func TestKnownBadUnits(t *testing.T) {
	bin := t.TempDir()
	for _, c := range tested {
		t.Run(c.guard, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir, test := filepath.Join("..", "..", c.pkg), filepath.Join(bin, c.pkg+".test")
			if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", "broken", "-o", test, "../../"+c.pkg).CombinedOutput(); err != nil {
				t.Fatalf("build the tests of %s: %v\n%s", c.pkg, err, out)
			}
			for _, guard := range []string{"", c.guard} {
				cmd := exec.CommandContext(ctx, test, "-test.run", "^"+c.test+"$", "-test.v")
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "EXECUTION_PLANE_BROKEN="+guard)
				out, err := cmd.CombinedOutput()
				switch failed := strings.Contains(string(out), "--- FAIL: "+c.test); {
				case guard == "" && err != nil:
					t.Fatalf("%s fails with every guard in place: %v\n%s", c.test, err, out)
				case guard != "" && !failed:
					t.Errorf("%s does not notice that the guard is missing: %v\n%s", c.test, err, out)
				}
			}
		})
	}
}

var guardName = regexp.MustCompile(`\bbroken(?:\.On)?\("([a-z_]+)"\)`)

// Every guard that a build can take out is tried here, and every one that is tried
// is there to be taken out.
func TestKnownBadIsComplete(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range guardName.FindAllSubmatch(b, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for guard := range simulated {
		tried[guard] = true
	}
	for _, c := range tested {
		tried[c.guard] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(there)), slices.Sorted(maps.Keys(tried))); diff != "" {
		t.Errorf("guards in the code (-) and guards that are tried (+):\n%s", diff)
	}
}
