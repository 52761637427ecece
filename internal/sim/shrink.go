package sim

import (
	"fmt"
	"time"
)

// Shrink makes a failing run smaller: it leaves out faults, attempts, runners,
// replicas and time, one after the other, as long as the same invariant is broken.
// run carries out one run; at most tries of them are made.
func Shrink(failed *Report, tries int, run func(Config) *Report) *Report {
	best := failed
	attempt := func(change func(*Config)) bool {
		c := best.Config
		change(&c)
		if tries == 0 || c == best.Config {
			return false
		}
		tries--
		r := run(c)
		if !r.Failed() || r.Violations[0].Invariant != failed.Violations[0].Invariant {
			return false
		}
		best = r
		return true
	}
	for again := true; again && tries > 0; {
		again = false
		for i := range faultNames {
			again = attempt(func(c *Config) { c.Faults &^= 1 << i }) || again
		}
		again = attempt(func(c *Config) { c.Attempts = max(1, c.Attempts/2) }) || again
		again = attempt(func(c *Config) { c.Attempts = max(1, c.Attempts-1) }) || again
		again = attempt(func(c *Config) { c.Runners = max(1, c.Runners-1) }) || again
		again = attempt(func(c *Config) { c.Replicas = max(1, c.Replicas-1) }) || again
		again = attempt(func(c *Config) { c.Skew = 0 }) || again
	}
	return best
}

// Again is how a run is repeated from a shell.
func (c Config) Again() string {
	return fmt.Sprintf("go test ./internal/sim -run '^TestOne$' -v -sim.one '%s'", c.Line())
}

// Line writes a run down; ParseLine reads it.
func (c Config) Line() string {
	faults := c.Faults.String()
	if faults == "" {
		faults = "none"
	}
	return fmt.Sprintf("%d %s replicas=%d runners=%d attempts=%d busy=%s skew=%s faults=%s",
		c.Seed, c.Profile, c.Replicas, c.Runners, c.Attempts, c.Busy, c.Skew, faults)
}

// ParseLine reads a run: a line as Line writes it, or a seed alone.
func ParseLine(line string) (Config, error) {
	var seed uint64
	if n, err := fmt.Sscanf(line, "%d", &seed); n != 1 {
		return Config{}, fmt.Errorf("a run begins with its seed: %q: %w", line, err)
	}
	c := ConfigOf(seed)
	if fmt.Sprint(seed) == line {
		return c, nil
	}
	var busy, skew, faults string
	if _, err := fmt.Sscanf(line, "%d %s replicas=%d runners=%d attempts=%d busy=%s skew=%s faults=%s",
		&c.Seed, &c.Profile, &c.Replicas, &c.Runners, &c.Attempts, &busy, &skew, &faults); err != nil {
		return Config{}, fmt.Errorf("read a run from %q: %w", line, err)
	}
	var err error
	if c.Busy, err = time.ParseDuration(busy); err != nil {
		return Config{}, err
	}
	if c.Skew, err = time.ParseDuration(skew); err != nil {
		return Config{}, err
	}
	c.Faults = 0
	if faults != "none" {
		c.Faults, err = ParseFaults(faults)
	}
	return c, err
}
