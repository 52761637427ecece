package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/migrations"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/projections/catchup"
	"github.com/platform-core/execution-plane-service/runners"
)

// The modules of a replica. The sequencer runs in every one, under its row lease,
// and so does the projection of results.
const (
	ModuleAPI            = "api"
	ModuleDispatcher     = "dispatcher"
	ModuleArtifactWorker = "artifact-worker"
	ModuleForwarder      = "forwarder"
	ModuleCallbacks      = "callbacks"
)

// Modules lists them all. The last two do nothing where nothing is configured for
// them.
func Modules() []string {
	return []string{ModuleAPI, ModuleDispatcher, ModuleArtifactWorker, ModuleForwarder, ModuleCallbacks}
}

// Config is what a replica is made of.
type Config struct {
	DatabaseURL string
	MaxConns    int32 // 0: four for each core
	Objects     objects.Config
	Policy      *policy.Bundle // that this replica starts with
	// PolicyIsDefault says that nobody chose Policy: what an operator once made the
	// active bundle comes before it.
	PolicyIsDefault bool
	Profile         domain.Profile
	Limits          domain.ControlLimits
	Modules         []string // empty: all
	Listen          string   // address of the API, such as 127.0.0.1:8080; port 0 takes a free one
	MaxQueue        int
	// ScrubRound is how often every stored object is looked at, 0 for a week,
	// negative for never; ScrubBytes bounds what is read for it, a second, 0 for
	// 16 MiB.
	ScrubRound time.Duration
	ScrubBytes int64
	// Keys are those that secrets are fingerprinted with, the same for all replicas;
	// nil: keys of this replica's own. ScanLimit is how long one bundle may be scanned
	// for them, 0 for ten minutes.
	Keys      *commands.FingerprintKeys
	ScanLimit time.Duration
	Delivery  Delivery
	// InputPlaces are where jobs may name objects by s3://, such as s3://bucket/folder/;
	// empty: the folder inputs/ of the service's bucket.
	InputPlaces []string
	Migrate     bool // apply pending migrations at start; otherwise refuse to start with them
	Log         *slog.Logger
	// Sink, if not nil, is told every append of this replica after it committed.
	Sink func([]eventstore.Event)
	// WrapStore, if not nil, stands between commands and the store: for tests that
	// break things.
	WrapStore func(eventstore.Store) eventstore.Store
}

// ErrConfig marks an error of what a replica was told.
var ErrConfig = errors.New("the settings are wrong")

// Plane is one replica.
type Plane struct {
	Config
	Pool     *pgxpool.Pool
	Store    *postgres.Store
	Reads    *projections.Reader
	Commands *commands.Service
	Dispatch *dispatch.Dispatcher
	Bucket   *objects.Bucket
	Logs     *artifacts.Logs
	Follow   *artifacts.Followers
	Policies *artifacts.Policies

	holder   string
	feed     *postgres.Listener
	sealer   *artifacts.Sealer
	scrubber *artifacts.Scrubber
	keys     *keyWatch
	places   *artifacts.InputPlaces
	policy   activePolicy
	results  *catchup.Runner
	// forwarder and callbacks are nil where nothing is configured for them.
	forwarder *forwarder.Forwarder
	callbacks *callbacks.Worker
	api       *api.API
	listener  net.Listener
}

// New connects and assembles. The caller runs Run, and Close afterwards.
func New(ctx context.Context, c Config) (*Plane, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.Modules) == 0 {
		c.Modules = Modules()
	}
	for _, m := range c.Modules {
		if !slices.Contains(Modules(), m) {
			return nil, fmt.Errorf("there is no module %q; the modules are %v", m, Modules())
		}
	}
	if c.Policy == nil {
		c.Policy = policy.Builtin()
	}
	if c.Limits == (domain.ControlLimits{}) {
		c.Limits = domain.DefaultControlLimits()
	}
	p := &Plane{Config: c, holder: uuid.NewString()}
	if err := p.connect(ctx); err != nil {
		p.Close()
		return nil, err
	}
	if err := p.assemble(); err != nil {
		p.Close()
		return nil, err
	}
	if err := p.beginCallbacks(ctx); err != nil {
		p.Close()
		return nil, err
	}
	if slices.Contains(c.Modules, ModuleAPI) {
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("listen on %s: %w", c.Listen, err)
		}
		p.listener = l
	}
	return p, nil
}

func (p *Plane) connect(ctx context.Context) error {
	pc, err := pgxpool.ParseConfig(p.DatabaseURL)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	if p.MaxConns > 0 {
		pc.MaxConns = p.MaxConns
	} else {
		pc.MaxConns = max(16, pc.MaxConns)
	}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	if p.Migrate {
		if err := migrations.Up(ctx, p.Pool); err != nil {
			return fmt.Errorf("migrate the database: %w", err)
		}
	} else if pending, err := migrations.Check(ctx, p.Pool); err != nil {
		return fmt.Errorf("look at the database's migrations: %w", err)
	} else if pending > 0 {
		return fmt.Errorf("the database lacks %d migrations; run: execution-plane migrate", pending)
	}
	if p.Bucket, err = objects.Open(p.Objects); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

func (p *Plane) assemble() error {
	p.Reads = projections.NewReader(p.Pool)
	var d *dispatch.Dispatcher
	p.Store = postgres.Open(p.Pool, projections.WrittenTables(), postgres.Options{OnAppend: func(events []eventstore.Event) {
		d.Appended(events)
		if p.Sink != nil {
			p.Sink(events)
		}
	}})
	p.feed = postgres.NewListener(p.Store, listenPoll)
	var store eventstore.Store = p.Store
	if p.WrapStore != nil {
		store = p.WrapStore(store)
	}
	p.policy.bundle.Store(p.Policy)
	active := p.policy.get
	if err := p.openInputs(); err != nil {
		return err
	}
	p.Commands = commands.New(commands.Config{
		Inputs: p.Reads, Objects: p.places,
		Bundle: func(ctx context.Context, digest string) (*policy.Bundle, error) {
			return p.Policies.Bundle(ctx, digest)
		},
		Store: store, Index: commands.NewIndex(p.Reads), Policy: active, Actions: runners.Catalogue(), Profile: p.Profile,
		Limits: p.Limits, StorageBase: p.Bucket.URI(""), Replica: p.holder, MaxQueue: p.MaxQueue, Log: p.Log,
		Prints: p.Reads, Keys: p.Keys, Endpoint: p.Delivery.Endpoints.Has,
	})
	p.keys = &keyWatch{p: p}
	d = dispatch.New(dispatch.Config{Commands: p.Commands, Reads: p.Reads, Feed: feed{p.Store, p.feed}, Policy: active, Profile: p.Profile, Leases: p.Store, Holder: p.holder, Log: p.Log})
	p.Dispatch = d
	p.Logs = &artifacts.Logs{Store: store, Reads: p.Reads, Objects: p.Bucket}
	p.Follow = &artifacts.Followers{Rows: p.Reads, Log: p.Log}
	p.Policies = artifacts.NewPolicies(p.Bucket, p.Policy)
	p.sealer = &artifacts.Sealer{Store: store, Feed: p.Store, Commands: p.Commands, Reads: p.Reads, Objects: p.Bucket,
		Leases: p.Store, Holder: p.holder, Woken: d.Finalizing, Log: p.Log, Keys: p.Commands.Keys, ScanLimit: p.ScanLimit}
	p.scrubber = &artifacts.Scrubber{Store: store, Commands: p.Commands, Reads: p.Reads, Objects: p.Bucket,
		Leases: p.Store, Holder: p.holder, Log: p.Log, Round: p.ScrubRound, BytesPerSecond: p.ScrubBytes}
	if err := p.assembleDelivery(); err != nil {
		return err
	}
	c := api.Config{
		Commands: p.Commands, Dispatch: d, Intake: &artifacts.Intake{Commands: p.Commands, Objects: p.Bucket, Policies: p.Policies}, Logs: p.Logs,
		Followers: p.Follow, Reads: p.Reads, Streams: store, Feed: p.Store, Policies: p.Policies, Health: health{p},
		Actions: runners.Catalogue(), Metrics: p.metrics(), Profile: p.Profile, Log: p.Log, FlushEvery: p.flushEvery(),
	}
	p.inputsAPI(&c)
	c.PolicyReplaced = p.takeOverPolicy
	p.deliveryAPI(&c)
	p.api = api.New(c)
	return nil
}

// flushEvery is how often agents send log: seldom in production, where a chunk is
// an object, at once where somebody looks on.
func (p *Plane) flushEvery() time.Duration {
	if p.Profile.Name == "fast" {
		return time.Second
	}
	return 10 * time.Second
}

// URL is where the API listens; "" without the module.
func (p *Plane) URL() string {
	if p.listener == nil {
		return ""
	}
	return "http://" + p.listener.Addr().String()
}

// Close releases what New took. Run must have returned.
func (p *Plane) Close() {
	if p.listener != nil {
		p.listener.Close()
	}
	if p.Store != nil {
		p.Store.Close()
	}
	if p.Bucket != nil {
		p.Bucket.Close()
	}
	if p.places != nil {
		p.places.Close()
	}
	if p.Pool != nil {
		p.Pool.Close()
	}
}

// shutdownGrace is how long requests in flight may go on after ctx ended.
const shutdownGrace = 10 * time.Second

// listenPoll is how often the feed's end is looked at when no notification comes.
const listenPoll = time.Second

// Run works until ctx ends, then lets requests in flight finish.
func (p *Plane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var failed struct {
		sync.Mutex
		errs []error
	}
	start := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				err = fmt.Errorf("%s: %w", name, err)
				failed.Lock()
				failed.errs = append(failed.errs, err)
				failed.Unlock()
				cancel(err)
			}
		})
	}
	start("sequencer", postgres.NewSequencer(p.Store, p.holder, postgres.SequencerOptions{OnFeed: p.feed.Moved, OnError: func(err error) {
		p.Log.WarnContext(ctx, "the sequencer had trouble; it goes on by itself", "error", err)
	}}).Run)
	start("listener", p.feed.Run)
	start("dispatch", p.Dispatch.Run)
	start("fingerprint keys", p.keys.run)
	start("policy", p.runPolicy)
	if slices.Contains(p.Modules, ModuleDispatcher) {
		start("sweeper", p.Dispatch.Sweep)
	}
	if slices.Contains(p.Modules, ModuleArtifactWorker) {
		start("sealer", p.sealer.Run)
		if p.ScrubRound >= 0 {
			start("scrubber", p.scrubber.Run)
		}
	}
	p.startDelivery(start)
	if p.listener != nil {
		start("followers", p.Follow.Run)
		start("api", p.serve)
	}
	wg.Wait()
	return errors.Join(failed.errs...)
}

func (p *Plane) serve(ctx context.Context) error {
	srv := p.api.Server()
	done := make(chan error, 1)
	go func() { done <- srv.Serve(p.listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	err := srv.Shutdown(grace)
	if err != nil {
		err = errors.Join(err, srv.Close()) // whoever is still there would outlive the pool
	}
	if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}
