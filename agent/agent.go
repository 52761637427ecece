package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/secretdir"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/vault"
)

// Agent is one runner. Make it with New, and call Run once.
type Agent struct {
	config Config
	lock   *os.File
	// life ends when nothing is to go on any more; tasks are all goroutines.
	life    context.Context
	endLife context.CancelCauseFunc
	tasks   sync.WaitGroup

	vault *vault.Client // nil: this runner reads no secrets
	masks *maskRegistry
	// private is where secrets lie as files; nil, and why, where there is no place.
	private    *secretdir.Root
	privateErr error
	sealing    sync.Mutex // one large secret artifact in memory at a time

	cache     *packageCache
	spooled   account
	meters    *meters
	slotFreed chan struct{} // a token when more or less can be asked for than before
	changed   chan struct{} // a token when a slot is free or an attempt has gone
	fatal     chan error    // the first refusal that ends the agent

	identify sync.Mutex // one registration at a time
	// reidentifying: the report loop has begun a registration that goes on.
	reidentifying atomic.Bool
	askedLess     atomic.Bool // fewer slots were asked for than are free: too much is left to send
	relieving     sync.Mutex  // one look at who fills the disk
	caching       sync.Mutex  // one writer of the policy cache

	mu         sync.Mutex
	cred       credential
	current    Plane
	timing     wire.Timing
	slots      int
	flush      time.Duration
	reported   isolation.BootTime // when the last acknowledged report was sent
	attempts   map[domain.LeaseID]*attempt
	tokens     []slotToken
	stopping   bool                      // Run's ctx has ended
	told       bool                      // the service knows that this runner drains
	settled    bool                      // stopping, and no offer can be on its way here
	quiet      chan struct{}             // closed with settled
	revokes    map[domain.AttemptID]bool // tokens of others that are being revoked
	planeDrain bool                      // the service wants no new work here
	killed     bool
	refused    bool // the service no longer knows this runner
}

var errEnded = errors.New("the agent has ended")

// New makes an agent on its state folder, which no other may use. From here on
// no other process of the same user can read this one: it holds tokens.
func New(c Config) (*Agent, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("set up the runner: %w", err)
	}
	if err := isolation.ForbidTracing(); err != nil {
		return nil, fmt.Errorf("set up the runner: %w", err)
	}
	c.fill()
	executors := map[string]Executor{}
	for jobType, e := range c.Executors {
		if e.SHA256 == "" {
			sum, err := fileSHA256(e.Argv[0])
			if err != nil {
				return nil, fmt.Errorf("set up the runner: the executor of %s: %w", jobType, err)
			}
			e.SHA256 = sum
		}
		executors[jobType] = e
	}
	c.Executors = executors
	masks := newMaskRegistry()
	c.Log = masks.logger(c.Log)
	var client *vault.Client
	if c.Vault != nil {
		var err error
		if client, err = vault.New(*c.Vault); err != nil {
			return nil, fmt.Errorf("set up the runner's access to Vault: %w", err)
		}
	}
	if err := os.MkdirAll(attemptsDir(c.StateDir), 0o700); err != nil {
		return nil, fmt.Errorf("make the runner's state folder: %w", err)
	}
	if err := openTo(c.StateDir, c.Credential); err != nil {
		return nil, fmt.Errorf("make the runner's state folder: %w", err)
	}
	lock, err := lockState(c.StateDir)
	if err != nil {
		return nil, err
	}
	cred, err := loadCredential(c.StateDir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := c.findIsolation(context.Background()); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the runner: %w", err), lock.Close())
	}
	a := &Agent{
		config: c, lock: lock, cred: cred, slots: c.Slots, flush: time.Second,
		attempts: map[domain.LeaseID]*attempt{}, slotFreed: make(chan struct{}, 1),
		changed: make(chan struct{}, 1), fatal: make(chan error, 1), quiet: make(chan struct{}),
		meters: newMeters(), cache: newPackageCache(&c), vault: client, masks: masks, revokes: map[domain.AttemptID]bool{},
	}
	a.private, a.privateErr = secretdir.Open(c.secretBases, cred.RunnerID.String(), ownerOf(c.Credential))
	a.spooled.limit, a.spooled.crossed = c.SpoolTotal*8/10, a.slotFreed
	a.life, a.endLife = context.WithCancelCause(context.Background())
	return a, nil
}

// openTo lets the executor's user pass through to its attempt, and list nothing.
func openTo(stateDir string, c *shim.Credential) error {
	mode := os.FileMode(0o700)
	if c != nil {
		mode = 0o711
	}
	return errors.Join(os.Chmod(stateDir, mode), os.Chmod(attemptsDir(stateDir), mode))
}

// lockState holds the folder for this process; the kernel lets go of it when
// the process ends, however that comes.
func lockState(stateDir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, "agent.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the runner's state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("the state folder %s is used by another runner; give each its own", stateDir), f.Close())
	}
	return f, nil
}

// RunnerID is who this runner is, for ever.
func (a *Agent) RunnerID() domain.RunnerID { return a.cred.RunnerID }

// Run works until ctx ends, then drains: it takes nothing new, goes on with what
// runs, reports and uploads, and returns nil when all is done or the drain's
// limit has passed. It returns an error when the service refuses this runner.
// No process and no goroutine of the agent is left when it returns.
func (a *Agent) Run(ctx context.Context) error {
	defer a.lock.Close()
	defer a.close()
	stopMetrics, err := a.serveMetrics()
	if err != nil {
		return err
	}
	defer stopMetrics()
	cleaned, err := shim.CleanUp(ctx, attemptsDir(a.config.StateDir))
	if err != nil {
		// What does not go is told; the attempts are completed all the same.
		a.config.Log.Error("not all that an earlier agent left could be ended", "error", err)
	}
	a.clearSecrets()
	if err := removeTree(a.policyDir()); err != nil {
		a.config.Log.Warn("the cache of policy bundles is not emptied", "error", err)
	}
	if err := a.cache.load(a.config.Credential != nil); err != nil {
		return err
	}
	if err := a.enter(ctx); err != nil {
		if ctx.Err() != nil || a.life.Err() != nil {
			return nil
		}
		return err
	}
	a.recover(cleaned)
	if a.vault != nil {
		a.tasks.Go(func() { a.vault.Run(a.life) })
	}
	a.tasks.Go(a.commandLoop)
	a.tasks.Go(a.reportLoop)
	a.tasks.Go(a.fenceLoop)
	select {
	case <-ctx.Done():
		return a.drain()
	case err := <-a.fatal:
		return a.abandon(err)
	case <-a.life.Done():
		return nil // killed
	}
}

// leaveAll ends all jobs and says how long that may take.
func (a *Agent) leaveAll() time.Duration {
	budget := time.Duration(0)
	for _, at := range a.list() {
		budget = max(budget, at.stopBudget()+shim.DefaultReapTimeout)
		at.leave()
	}
	return budget
}

// abandon ends all jobs because the service no longer knows this runner. Their
// folders stay: a runner that is let in again sends what it may.
func (a *Agent) abandon(err error) error {
	a.mu.Lock()
	a.refused = true
	a.mu.Unlock()
	budget := time.Duration(0)
	for _, at := range a.list() {
		budget = max(budget, at.stopBudget()+shim.DefaultReapTimeout)
		at.lose(lossFenced)
	}
	limit := time.NewTimer(budget)
	defer limit.Stop()
	for a.busy() > 0 {
		select {
		case <-a.changed:
		case <-limit.C:
			return err
		case <-a.life.Done():
			return err
		}
	}
	return err
}

// Kill ends every job at once and makes Run return. What could not be said is
// said by the next agent on the same folder. It is for the second signal.
func (a *Agent) Kill() {
	a.mu.Lock()
	a.killed = true
	a.mu.Unlock()
	for _, at := range a.list() {
		at.kill()
	}
	a.endLife(errEnded)
}

// close ends all that goes on and waits for it.
func (a *Agent) close() {
	a.mu.Lock()
	hurry := a.killed
	a.mu.Unlock()
	a.Kill()
	a.tasks.Wait()
	a.leaveVault(hurry)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != nil {
		a.current.Close()
	}
}

func (a *Agent) list() []*attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*attempt, 0, len(a.attempts))
	for _, at := range a.attempts {
		out = append(out, at)
	}
	return out
}

func (a *Agent) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.attempts)
}

// busy counts the attempts that hold a slot.
func (a *Agent) busy() int {
	n := 0
	for _, at := range a.list() {
		at.mu.Lock()
		if !at.slotFree {
			n++
		}
		at.mu.Unlock()
	}
	return n
}

// begin makes an attempt known and runs it.
func (a *Agent) begin(at *attempt, run func()) {
	a.mu.Lock()
	a.attempts[at.lease.ID] = at
	a.mu.Unlock()
	a.tasks.Go(run)
}

func (a *Agent) forget(at *attempt) {
	a.mu.Lock()
	delete(a.attempts, at.lease.ID)
	a.mu.Unlock()
	poke(a.changed)
}

func (a *Agent) plane() Plane {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

func (a *Agent) fence() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Duration(a.timing.FenceSeconds) * time.Second
}

func (a *Agent) flushEvery() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.flush
}

// leaving says that the agent ends with work undone, which the next one takes up.
func (a *Agent) leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.killed || a.refused
}

// draining says that nothing new is begun.
func (a *Agent) draining() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopping || a.planeDrain || a.killed || a.refused
}
