package cluster_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// A seed is the same plan, and jobs do not depend on what networks can be had.
func TestSeedFixesThePlan(t *testing.T) {
	for seed := range uint64(20) {
		a, b := planOf(seed, time.Minute, true, true), planOf(seed, time.Minute, true, true)
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("seed %d gives two plans: %s", seed, d)
		}
		if d := cmp.Diff(a.Jobs, planOf(seed, time.Minute, false, true).Jobs); d != "" {
			t.Errorf("seed %d: the jobs depend on the network: %s", seed, d)
		}
		short := map[string]bool{}
		for _, f := range planOf(seed, shortRound, true, true).Faults {
			short[f.Kind] = true
		}
		if len(short) < len(faultKinds)*3/4 {
			t.Errorf("seed %d: a short round has only %d of %d kinds of faults", seed, len(short), len(faultKinds))
		}
		for _, j := range a.Jobs {
			if got, err := parseWork(j.Work.String()); err != nil || got != j.Work {
				t.Errorf("work %q is read as %+v, %v", j.Work, got, err)
			}
		}
	}
}

// echo answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, pairs: map[*pair]bool{}, changed: make(chan struct{})}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c) // until either side ends
			})
		}
	})
	t.Cleanup(p.close)
	return l.Addr().String()
}

// Each fault of a link does what it is called, and is counted only if it met something.
func TestLinkFaults(t *testing.T) {
	for name, tc := range map[string]struct {
		fault     linkFault
		meanwhile bool // an answer comes while it is on
		after     bool // it comes when it is over
	}{
		"none":          {linkFault{}, true, true},
		"blackhole":     {linkFault{HoldUp: true, HoldDown: true}, false, true},
		"requests-held": {linkFault{HoldUp: true}, false, true},
		"answers-lost":  {linkFault{HoldDown: true, Reset: true}, false, false},
		"resets":        {linkFault{Cut: true}, false, false},
		"slow":          {linkFault{Slow: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newProxy("127.0.0.1:0", echo(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.close)
			if name != "none" {
				p.begin(tc.fault)
			}
			if n := p.end(); n != 0 {
				t.Errorf("a fault that met nothing counts %d", n)
			}
			p.begin(tc.fault)
			c, err := net.Dial("tcp", p.address())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "ping\n"); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			answered := func(within time.Duration) bool {
				if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
					t.Fatal(err)
				}
				line, err := r.ReadString('\n')
				if err == nil && line != "ping\n" {
					t.Errorf("answered %q", line)
				}
				if err != nil && tc.after && !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection broke: %v", err)
				}
				return err == nil
			}
			patience := 300 * time.Millisecond
			if tc.meanwhile {
				patience = 10 * time.Second
			}
			if got := answered(patience); got != tc.meanwhile {
				t.Errorf("an answer while it is on: %t", got)
			}
			n := p.end()
			if name != "none" && n == 0 {
				t.Error("it counts as if it had met nothing")
			}
			if !tc.meanwhile && answered(2*time.Second) != tc.after {
				t.Errorf("an answer afterwards: %t", !tc.after)
			}
		})
	}
}

// The checks are worth what they refuse.
func TestChecksRefuseLies(t *testing.T) {
	j := job{ID: uuid.MustParse("6e1f4cd2-3d4c-4e0f-9a55-6a2f3f1a8b01"), Timeout: 60, Work: work{Lines: 3, End: endOK}}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	id := j.attempt()
	runner := domain.NewID[domain.RunnerID](uuid.MustParse("6e1f4cd2-3d4c-4e0f-9a55-6a2f3f1a8b01"))
	leased := domain.Fact{Event: domain.Leased{Epoch: 1, RunnerID: runner}, At: at}
	twice := domain.Fact{Event: domain.Leased{Epoch: 2, RunnerID: runner}, At: at}
	begun := domain.Fact{Event: domain.Started{Epoch: 1}, At: at.Add(time.Second)}
	newEvidence := func(facts ...domain.Fact) *evidence {
		return &evidence{
			w: &world{}, load: &load{}, streams: map[string][]domain.Fact{id.String(): facts}, effects: map[string][]effect{},
			runners: map[string]int{runner.String(): 2}, outcomes: map[string]int{},
			wall: func(b isolation.BootTime) time.Time { return at.Add(time.Duration(b)) },
		}
	}
	x := life{id: id.String(), holder: 2, leasedAt: at, started: &domain.Started{Epoch: 1}, startedAt: at.Add(time.Second), decidedAt: at.Add(20 * time.Second),
		expired: &domain.LeaseExpired{Epoch: 1, Started: true}, expiredAt: at.Add(20 * time.Second),
		result: domain.ExecutionResult{FailureCode: domain.CodeLeaseLost, SideEffects: "possible", Status: domain.StatusFailed}}
	ran := effect{Attempt: id.String(), Epoch: 1, Runner: "runner-2", What: "start", At: isolation.BootTime(2 * time.Second)}
	for name, tc := range map[string]struct {
		found string // "" where nothing is wrong
		check func(e *evidence)
	}{
		"lost without a fault": {"its runner suffered", func(e *evidence) { e.checkLegal(&story{job: j}, &x) }},
		"lost by a fault of another runner": {"its runner suffered", func(e *evidence) {
			e.hits = []hit{{Kind: "agent.stop", Runner: 1, From: at, To: at.Add(15 * time.Second)}}
			e.checkLegal(&story{job: j}, &x)
		}},
		"lost by a fault": {"", func(e *evidence) {
			e.hits = []hit{{Kind: "agent.stop", Runner: 2, From: at, To: at.Add(15 * time.Second)}}
			e.checkLegal(&story{job: j}, &x)
		}},
		"worked as told": {"", func(e *evidence) { e.works(&story{job: j}, x, ran) }},
		"worked twice":   {"executors were launched", func(e *evidence) { e.works(&story{job: j}, x, ran, ran) }},
		"worked in another epoch": {"an executor of epoch 2", func(e *evidence) {
			v := ran
			v.Epoch = 2
			e.works(&story{job: j}, x, v)
		}},
		"worked elsewhere": {"worked on by runner-3", func(e *evidence) {
			v := ran
			v.Runner = "runner-3"
			e.works(&story{job: j}, x, v)
		}},
		"worked before start": {"before start", func(e *evidence) {
			v := ran
			v.At = 0
			e.works(&story{job: j}, x, v)
		}},
		"worked after its lease": {"after its lease was dead", func(e *evidence) {
			v := ran
			v.At = isolation.BootTime(25 * time.Second)
			e.works(&story{job: j}, x, v)
		}},
		"worked and says none": {"side effects", func(e *evidence) {
			y := x
			y.result.SideEffects = "none"
			e.works(&story{job: j}, y, ran)
		}},
		"a confirmed end without a shim": {"counts as confirmed", func(e *evidence) {
			y := x
			y.reaped = &domain.ProcessTreeReaped{Epoch: 1, Confirmed: true}
			e.hits = []hit{{Kind: "shim.kill", Runner: 2, Attempt: id.String(), From: at.Add(time.Second), To: at.Add(time.Second)}}
			e.works(&story{job: j}, y, ran)
		}},
		"a read of the past": {"one after it running", func(e *evidence) {
			e.checkReads(&story{job: j, reads: []read{reading(at, "succeeded"), reading(at.Add(time.Second), "running")}})
		}},
		"reads at the same time": {"", func(e *evidence) {
			early := reading(at, "succeeded")
			early.answered = at.Add(2 * time.Second)
			e.checkReads(&story{job: j, reads: []read{early, reading(at.Add(time.Second), "running")}})
		}},
		"a cancel that is forgotten": {"knows nothing of it", func(e *evidence) {
			e.checkReads(&story{job: j, reads: []read{reading(at.Add(time.Second), "running")}, cancels: []cancelled{{acked: at}}})
		}},
		"two holders": {"was not over", func(e *evidence) {
			e.streams[id.String()] = []domain.Fact{leased, twice}
			_, err := e.life(id.String())
			e.w.wrong.add("%v", err)
		}},
		"started twice": {"started twice", func(e *evidence) {
			e.streams[id.String()] = []domain.Fact{leased, begun, begun}
			_, err := e.life(id.String())
			e.w.wrong.add("%v", err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(leased, begun)
			tc.check(e)
			got := strings.Join(e.w.wrong.all(), "\n")
			if tc.found == "" && got != "" || !strings.Contains(got, tc.found) {
				t.Errorf("found %q; want %q", got, tc.found)
			}
		})
	}
}

func (e *evidence) works(s *story, x life, effects ...effect) {
	e.effects[x.id] = effects
	e.checkEffects(s, &x)
}

func reading(at time.Time, state string) read {
	return read{asked: at, answered: at.Add(10 * time.Millisecond), attempt: wire.Attempt{State: state, Epoch: 1}}
}

// A log that is not what was foretold is found at its byte.
func TestForetold(t *testing.T) {
	w := work{Lines: 5, Errors: 2, Extra: 100, End: endOK}
	out := foretell(w, "a", "stdout", 0)
	if len(out) == 0 || string(out) != string(foretell(w, "a", "stdout", 1<<20)) || len(strings.Split(string(out), "\n")) != 6 {
		t.Errorf("foretold %q", out)
	}
	changed := []byte(string(out))
	changed[17]++
	if at := firstDifference(out, changed); at != 17 {
		t.Errorf("the change is found at %d", at)
	}
	w.End = endHang
	if n := len(foretell(w, "a", "stdout", 100_000)); n < 100_000 {
		t.Errorf("a job without an end has a log of %d bytes", n)
	}
	if a, b := fmt.Sprint(line("a", "stdout", 1, 50)), fmt.Sprint(line("a", "stdout", 2, 50)); a == b {
		t.Error("two lines are the same")
	}
}
