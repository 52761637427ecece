package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3test"
	"github.com/platform-core/execution-plane-service/policy"
)

// patience bounds every wait for what must happen once all is whole again.
const patience = 90 * time.Second

// world is one cluster and one run of a plan on it.
type world struct {
	t    *testing.T
	ctx  context.Context
	plan plan
	self string
	root string // folder of everything; its name marks every process
	logs string
	pad  *launchpad

	pg       *pgtest.Server // nil where it does not break
	database string
	s3       *s3test.Process
	s3way    *proxy    // how everybody reaches object storage
	delivery *delivery // nil: nothing is delivered
	front    *proxy    // how callers reach the replicas
	desk     *plane.Plane
	replicas []*replica
	runners  []*runner
	cables   int
	s3fault  bool   // object storage suffers now
	token    string // of a control plane
	operator string
	began    time.Time

	wrong failures
	mu    sync.Mutex
	hits  []hit
	// serviceHits are faults of replicas and the database: they excuse little.
	serviceHits []hit
	tally       map[string]*tally
}

// replica is one replica of the service over all its lives.
type replica struct {
	n       int
	address string
	proc    *proc
	fault   string // what it suffers now
}

// runner is one runner over all its lives.
type runner struct {
	n         int
	id        string
	dir       string
	enrolment string
	proxy     *proxy
	cable     cable
	proc      *proc
	fault     string // what its agent suffers now
	link      string // what its link suffers now
}

func newWorld(t *testing.T, p plan, delivers bool) *world {
	t.Helper()
	w := newPlace(t, p.Length+8*time.Minute)
	w.plan = p
	w.startStores()
	if delivers {
		w.delivery = w.startDelivery()
	}
	w.startReplicas()
	w.startRunners()
	return w
}

// newPlace is a world with nothing in it yet.
func newPlace(t *testing.T, limit time.Duration) *world {
	t.Helper()
	w := &world{t: t, pad: newLaunchpad(), tally: map[string]*tally{}}
	t.Cleanup(w.pad.close)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	w.ctx = ctx
	var err error
	if w.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if w.root, err = os.MkdirTemp("", "execution-plane-cluster-"); err != nil {
		t.Fatal(err)
	}
	w.logs = filepath.Join(w.root, "logs")
	if err := os.Mkdir(w.logs, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs of all processes are kept in %s", w.logs)
			return
		}
		if err := os.RemoveAll(w.root); err != nil {
			t.Errorf("remove %s: %v", w.root, err)
		}
	})
	return w
}

func (w *world) startStores() {
	w.t.Helper()
	w.pg = pgtest.StartServer(w.t)
	w.database = w.pg.URL
	w.openStores()
}

// openStores starts object storage and makes the tokens.
func (w *world) openStores() {
	t := w.t
	t.Helper()
	w.s3 = s3test.Server(t)
	w.s3.Bucket("execution-plane")
	w.s3way = w.proxyFor(w.s3.Endpoint)
	desk, err := plane.New(w.ctx, plane.Config{
		DatabaseURL: w.database, MaxConns: 6, Objects: w.objects(), Policy: policy.BuiltinDev(), Profile: profile(), Modules: []string{plane.ModuleDispatcher},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(desk.Close)
	w.desk = desk
	if w.token, err = plane.IssueToken(w.ctx, desk.Commands, "cluster", domain.RoleControlPlane); err != nil {
		t.Fatal(err)
	}
	if w.operator, err = plane.IssueToken(w.ctx, desk.Commands, "cluster operator", domain.RoleOperator); err != nil {
		t.Fatal(err)
	}
}

// objects is object storage as all processes see it.
func (w *world) objects() objects.Config {
	c := w.s3.Config("execution-plane")
	c.Endpoint = w.s3way.address()
	return c
}

// proxyFor opens a proxy where runners reach it, closed after the test.
func (w *world) proxyFor(backends ...string) *proxy {
	w.t.Helper()
	host := "127.0.0.1"
	if *inside {
		host = crossroads
	}
	p, err := newProxy(net.JoinHostPort(host, "0"), backends...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.close)
	return p
}

func (w *world) startReplicas() {
	w.t.Helper()
	w.t.Cleanup(func() {
		for _, r := range w.replicas {
			if r.proc != nil {
				r.proc.kill()
			}
		}
	})
	var addresses []string
	for n := range replicaCount {
		r := &replica{n: n, address: freeAddress(w.t)}
		addresses = append(addresses, r.address)
		w.replicas = append(w.replicas, r)
		if err := w.startReplica(r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.front = w.proxyFor(addresses...)
	for _, r := range w.replicas {
		c := w.client("http://" + r.address)
		w.eventually("replica "+r.address+" is ready", func() bool {
			a, err := c.Ready(w.ctx)
			return err == nil && a.Status == "ready"
		})
	}
}

func (w *world) startReplica(r *replica) (err error) {
	c := childConfig{DatabaseURL: w.database + fmt.Sprintf("&application_name=replica-%d", r.n), S3: w.objects(), Listen: r.address}
	if w.delivery != nil {
		c.Kafka, c.Topics, c.Callbacks = w.delivery.kafka, w.delivery.topics, w.delivery.file
	}
	r.proc, err = w.spawn(fmt.Sprintf("replica-%d", r.n), verbService, c, nil)
	return err
}

func (w *world) startRunners() {
	w.t.Helper()
	w.t.Cleanup(func() {
		for _, r := range w.runners {
			if r.proc != nil {
				r.proc.kill()
			}
		}
		w.endLeftovers()
	})
	for n := range runnerCount {
		r := &runner{n: n, dir: filepath.Join(w.root, fmt.Sprintf("runner-%d", n))}
		var addresses []string
		for i := range w.replicas {
			addresses = append(addresses, w.replicas[(n+i)%replicaCount].address)
		}
		r.proxy = w.proxyFor(addresses...)
		var err error
		if r.enrolment, err = plane.IssueEnrolment(w.ctx, w.desk.Commands, "default", time.Hour); err != nil {
			w.t.Fatal(err)
		}
		w.runners = append(w.runners, r)
		if err := w.startRunner(r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually("the runners are registered", func() bool {
		var active int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM runner_status WHERE status = 'active'").Scan(&active)
		return err == nil && active == runnerCount
	})
	for _, r := range w.runners {
		r.id = w.runnerID(r)
	}
}

func (w *world) startRunner(r *runner) error {
	c := childConfig{
		URL: "http://" + r.proxy.address(), Enrolment: r.enrolment, StateDir: r.dir, Slots: slotCount,
		Effects: w.effectsPath(), Acks: w.acksPath(),
	}
	var own func(*exec.Cmd)
	if *inside {
		w.cables++
		k := cableOf(w.cables)
		c.Address, c.Gateway = k.address, k.gateway
		own = func(cmd *exec.Cmd) { cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET }
	}
	p, err := w.spawn(fmt.Sprintf("runner-%d", r.n), verbRunner, c, own)
	if err != nil {
		return err
	}
	r.proc = p
	if *inside {
		if r.cable, err = newCable(w.cables, p.cmd.Process.Pid); err != nil {
			return err
		}
		if _, err := p.stdin.Write([]byte("the network is there\n")); err != nil {
			return fmt.Errorf("tell %s of its network: %w", p.name, err)
		}
	}
	return nil
}

func (w *world) effectsPath() string { return filepath.Join(w.logs, "effects.jsonl") }
func (w *world) acksPath() string    { return filepath.Join(w.logs, "acks.jsonl") }

// runnerID reads who a runner is from its credential.
func (w *world) runnerID(r *runner) string {
	w.t.Helper()
	all, err := lines[struct {
		RunnerID string `json:"runner_id"`
	}](filepath.Join(r.dir, "credential.json"))
	if err != nil || len(all) != 1 || all[0].RunnerID == "" {
		w.t.Fatalf("the credential of runner %d: %v, %v", r.n, all, err)
	}
	return all[0].RunnerID
}

func (w *world) client(url string) *client.Client {
	w.t.Helper()
	c, err := client.New(client.Config{BaseURL: url, Token: w.token})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.CloseIdle)
	return c
}

// eventually polls: what is waited for happens in other processes.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || w.ctx.Err() != nil {
			w.t.Fatalf("did not come to pass: %s", what)
		}
	}
}

// freeAddress is an address that a child may listen on again and again. It is not
// on 127.0.0.1, from where connections go out, so none of them can take its port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// stopAll ends the runners and then the replicas in order.
func (w *world) stopAll() {
	var errs []error
	for _, r := range w.runners {
		errs = append(errs, r.proc.term())
	}
	for _, r := range w.runners {
		errs = append(errs, r.proc.ended(40*time.Second))
		if left, err := os.ReadDir(filepath.Join(r.dir, "attempts")); err != nil || len(left) > 0 {
			w.wrong.add("runner %d ended and left %v, %v", r.n, left, err)
		}
	}
	for _, r := range w.replicas {
		errs = append(errs, r.proc.term())
	}
	for _, r := range w.replicas {
		errs = append(errs, r.proc.ended(20*time.Second))
	}
	if err := errors.Join(errs...); err != nil {
		w.wrong.add("the end in order: %v", err)
	}
}

// inhabitant is a shim, an executor or an orphan of a runner.
type inhabitant struct {
	pid, parent int
	verb        string // shim, executor, or the orphan's
	runner      string // base of its runner's folder
	attempt     string // of an executor
	epoch       int64
	state       string
}

// inhabitants lists what runs for the runners of this world, agents left out.
func (w *world) inhabitants() []inhabitant {
	var out []inhabitant
	dirs, _ := filepath.Glob("/proc/[0-9]*") // constant pattern
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		args := strings.Split(string(b), "\x00")
		if err != nil || len(args) < 3 || !strings.HasPrefix(args[2], w.root+"/") {
			continue
		}
		x := inhabitant{verb: args[1], runner: filepath.Base(args[2])}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		end := strings.LastIndexByte(string(stat), ')')
		if err != nil || end < 0 {
			continue // it ended in between
		}
		if _, err := fmt.Sscan(string(stat[end+1:]), &x.state, &x.parent); err != nil || x.state == "Z" || x.state == "X" {
			continue
		}
		if _, err := fmt.Sscan(filepath.Base(dir), &x.pid); err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ")) // of a shim it may be forbidden
		for v := range strings.SplitSeq(string(env), "\x00") {
			if home, ok := strings.CutPrefix(v, "HOME="); ok && strings.HasPrefix(home, w.root) {
				x.attempt, x.epoch, _ = attemptOf(home)
			}
		}
		out = append(out, x)
	}
	return out
}

// endLeftovers ends what a failed run or a killed shim left behind.
func (w *world) endLeftovers() {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left := w.inhabitants()
		if len(left) == 0 {
			return
		}
		for _, x := range left {
			_ = syscall.Kill(x.pid, syscall.SIGKILL) // it may have ended
		}
	}
}
