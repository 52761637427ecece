package proctest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long something that is ending may take to be gone.
const patience = 5 * time.Second

// Main runs a package's tests and fails the run if goroutines or processes
// are left after a pass. It does not return.
//
//	func TestMain(m *testing.M) { proctest.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := Leaks(); err != nil {
			fmt.Fprintf(os.Stderr, "proctest: after all tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Leaks returns an error that names every goroutine and every process left,
// after waiting a few seconds for those that are ending.
func Leaks() error {
	return errors.Join(goroutines(), processes(nil))
}

// Check fails the test if goroutines or processes that were not there at the
// call are there when the test ends. Call it first, so that it runs after
// every other cleanup. It cannot serve parallel tests, whose neighbours come
// and go.
func Check(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	known := map[int]bool{}
	for _, p := range Descendants(os.Getpid()) {
		known[p.PID] = true
	}
	t.Cleanup(func() {
		if err := errors.Join(goroutines(before), processes(known)); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
}

func goroutines(opts ...goleak.Option) error {
	// The Kafka client counts with a library whose one ticker lives as long as the
	// process.
	opts = append(opts, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
	// Its breaker sleeps for ten seconds after a broker failed it, whatever is closed.
	opts = append(opts, goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
	if err := goleak.Find(opts...); err != nil {
		return fmt.Errorf("goroutines are left: %w", err)
	}
	return nil
}

func processes(known map[int]bool) error {
	var left []Process
	deadline := time.Now().Add(patience)
	for {
		left = left[:0]
		for _, p := range Descendants(os.Getpid()) {
			if !known[p.PID] {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	var lines []string
	for _, p := range left {
		lines = append(lines, p.String())
	}
	return fmt.Errorf("processes are left:\n%s", strings.Join(lines, "\n"))
}
