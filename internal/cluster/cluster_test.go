package cluster_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// How long faults come in a round.
const (
	shortRound = 6 * time.Second
	longRound  = time.Minute
)

// Whatever breaks, what must be true stays true.
func TestCluster(t *testing.T) {
	t.Parallel() // with the race; both wait more than they compute
	switch {
	case *inside:
		if err := openCrossroads(); err != nil {
			t.Fatal(err)
		}
	case useNetns(t):
		enclose(t)
		return
	}
	seed := *runSeed
	if seed == 0 {
		seed = rand.Uint64() >> 40
	}
	length := *runRound
	if length == 0 {
		length = shortRound
		if *runFor > 0 {
			length = longRound
		}
	}
	t.Logf("seeds from %d on; a seed fixes the plan of load and faults, not what real processes do with it", seed)
	began, all, outcomes := time.Now(), map[string]*tally{}, map[string]int{}
	for rounds := 1; ; rounds++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { round(t, planOf(seed, length, *inside, *runFor > 0), all, outcomes) })
		if !ok {
			mode := "off"
			if *inside {
				mode = "require"
			}
			t.Logf("the same plan again: go test ./internal/cluster -run '^TestCluster$' -v -cluster.seed=%d -cluster.round=%s -cluster.netns=%s", seed, length, mode)
			break
		}
		if time.Since(began)+length > *runFor {
			t.Logf("%d rounds in %s", rounds, time.Since(began).Round(time.Second))
			break
		}
		seed++
	}
	if *runFor == 0 {
		t.Log("a short run has no Kafka and no receivers: make cluster has")
	}
	t.Logf("faults:\n%s", table(all))
	t.Logf("attempts ended:\n%s", counts(outcomes))
}

func counts(m map[string]int) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "  %-24s %d\n", k, m[k])
	}
	return b.String()
}

// round is one cluster and one plan.
func round(t *testing.T, p plan, all map[string]*tally, outcomes map[string]int) {
	setup := time.Now()
	w := newWorld(t, p, *runFor > 0)
	stopWatch := w.watch()
	w.began = time.Now()
	t.Logf("%sthe cluster is up after %s; logs: %s", p, w.began.Sub(setup).Round(time.Millisecond), w.logs)
	l := w.startLoad()
	w.suffer()
	whole := time.Now()
	if !l.settle(patience) {
		w.wrong.add("attempts do not end within %s after everything was whole again: %s", patience, l.open())
	}
	settled := time.Now()
	w.nothingRuns()
	stopWatch()
	e := w.gather(l)
	e.checkAll()
	if w.delivery != nil {
		w.delivery.check(l)
	}
	w.stopAll()
	w.account(all)
	for k, n := range e.outcomes {
		outcomes[k] += n
	}
	if n := e.stalls(); n > 0 {
		t.Logf("the machine stood still or was crowded %d times, so that runners may have been lost without a fault", n)
	}
	t.Logf("%d jobs; faults ended after %s, attempts %s later, checks took %s; answers that said nothing: %v",
		len(p.Jobs), whole.Sub(w.began).Round(time.Millisecond), settled.Sub(whole).Round(time.Millisecond), time.Since(settled).Round(time.Millisecond), l.answers)
	wrong := w.wrong.all()
	for i, v := range wrong {
		if i == 20 {
			t.Errorf("and %d more", len(wrong)-i)
			break
		}
		t.Error(v)
	}
}

// open lists the attempts that have not ended.
func (l *load) open() string {
	rows, err := l.w.desk.Pool.Query(l.w.ctx, "SELECT attempt_id::text || ' is ' || phase FROM attempt_status WHERE phase <> 'closed'")
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if rows.Scan(&s) == nil {
			out = append(out, s)
		}
	}
	return strings.Join(out, "\n")
}

// nothingRuns: when all attempts have ended, no shim, executor or orphan is left.
// Where the shim was killed, what it could not end is told as unconfirmed.
func (w *world) nothingRuns() {
	var left []inhabitant
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = w.inhabitants(); len(left) == 0 {
			return
		}
	}
	for _, x := range left {
		w.wrong.add("a process is left: %+v", x)
	}
}
