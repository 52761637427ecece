package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/secretdir"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/vault"
)

// Defaults of Config.
const (
	DefaultSpoolQuota = 256 << 20
	DefaultSpoolTotal = 4 << 30
	DefaultDrainLimit = 10 * time.Minute
	// defaultMaxSending is how many ended attempts may have bytes left to send
	// before no new one is taken. Each has open files and a part of each report.
	defaultMaxSending = 200
)

// Config is what an agent is told once.
type Config struct {
	// Connect gives the service as seen with a bearer token. It does not
	// connect; each call gives connections of its own.
	Connect func(bearer string) Plane
	// EnrolmentToken lets a new runner in; it is used only until the runner has
	// a credential of its own in StateDir.
	EnrolmentToken string
	// StateDir is this agent's folder, absolute, made if missing (0700): the
	// credential, the attempts, the policy bundles. One agent at a time.
	StateDir string

	Name    string // the runner implementation, such as verification-runner
	Version string
	// BinarySHA256 is the hex digest of the agent's own binary.
	BinarySHA256 string
	Host         string
	Slots        int // attempts at a time
	Actions      []string
	Environments []string
	Labels       map[string]string
	Tools        map[string]string
	// Executors maps a job type to the command that does its jobs.
	Executors map[string]Executor
	// Isolation lists the levels that are given; empty means all that work here,
	// which New tries. A level that does not work is an error: nothing is promised
	// that is not done.
	Isolation []string
	// Engines are the isolation engines to try, in order of preference, by name or
	// as name=path; empty: isolation.DefaultEngines.
	Engines []string
	// RootFS maps the name of a root file system, as images in policy give it, to
	// its absolute folder, which is never written.
	RootFS map[string]string
	// ReadOnly are further absolute paths that executors in a sandbox or container
	// see, such as a folder that ansible is installed in.
	ReadOnly []string
	// SandboxDisk bounds the work, output and temporary folder of an attempt in a
	// sandbox or container, together, and SandboxScratch its /tmp and /dev/shm, each.
	// In bytes; 0 is the default.
	SandboxDisk, SandboxScratch int64

	// Shim is the command that runs shim.Main.
	Shim       []string
	Limits     isolation.Limits
	Credential *shim.Credential
	Cgroup     bool

	// SpoolQuota bounds the log of one attempt, in bytes; SpoolTotal the log of
	// all of them on disk: at 80 % of it no new attempt is taken. 0 is the default.
	SpoolQuota, SpoolTotal int64
	// DrainLimit is how long running attempts may go on after Run's ctx ended;
	// then they are ended. 0 is the default.
	DrainLimit time.Duration
	// Fetch bounds the input artifacts and packages that attempts are given.
	Fetch FetchLimits
	// Vault is where secrets are read, and how this agent logs in; nil: a job that
	// names secrets is refused.
	Vault *vault.Config
	// Metrics is where Prometheus metrics are served, such as 127.0.0.1:9100;
	// empty: nowhere. They name no job.
	Metrics string
	Log     *slog.Logger // nil: slog.Default

	// For tests: the launcher of executors and the boot-time clock.
	launch     launcher
	fakeLaunch bool             // launch is a test's
	boxes      []shim.Isolation // the engines that work
	bootNow    func() isolation.BootTime
	// Writing to a spool's file, and how full the disk is.
	writeSpool func(f *os.File, b []byte, off int64) (int, error)
	statfs     func(dir string) (free, size int64, err error)
	maxSending int
	// Where folders for secrets may be made; nil: what secretdir.Bases says.
	secretBases []string
}

// Executor is how the jobs of one type are done.
type Executor struct {
	Argv []string // Argv[0] is an absolute path
	// SHA256 is the hex digest of its binary; empty: read from Argv[0].
	SHA256 string
}

func (c *Config) check() error {
	switch {
	case c.Connect == nil:
		return errors.New("no way to the service is given")
	case !filepath.IsAbs(c.StateDir):
		return fmt.Errorf("the state folder %q is not an absolute path", c.StateDir)
	case c.Name == "" || c.Version == "":
		return errors.New("the runner's name and version are missing")
	case c.Slots < 1:
		return fmt.Errorf("%d slots; a runner has at least one", c.Slots)
	case len(c.Executors) == 0:
		return errors.New("no executor is given, so no job could be done")
	case len(c.Shim) == 0 && c.launch == nil:
		return errors.New("the shim's command is missing")
	case strings.ContainsFunc(c.EnrolmentToken, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the enrolment token holds characters that no token has; check where it was read from")
	case c.SpoolQuota < 0 || c.SpoolTotal < 0 || c.DrainLimit < 0 || c.SandboxDisk < 0 || c.SandboxScratch < 0:
		return errors.New("a negative limit is given")
	}
	if err := c.Fetch.check(); err != nil {
		return err
	}
	for jobType, e := range c.Executors {
		if !slices.Contains(domain.JobTypes(), jobType) || len(e.Argv) == 0 || !filepath.IsAbs(e.Argv[0]) {
			return fmt.Errorf("the executor of %q: a job type (%s) and an absolute path are needed", jobType, strings.Join(domain.JobTypes(), ", "))
		}
	}
	return c.checkIsolation()
}

func (c *Config) fill() {
	if c.SpoolQuota == 0 {
		c.SpoolQuota = DefaultSpoolQuota
	}
	if c.SpoolTotal == 0 {
		c.SpoolTotal = DefaultSpoolTotal
	}
	c.Fetch.fill()
	if c.DrainLimit == 0 {
		c.DrainLimit = DefaultDrainLimit
	}
	if c.SandboxDisk == 0 {
		c.SandboxDisk = DefaultSandboxDisk
	}
	if c.SandboxScratch == 0 {
		c.SandboxScratch = DefaultSandboxScratch
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.fakeLaunch = c.launch != nil
	if c.launch == nil {
		c.launch = launchShim
	}
	if c.bootNow == nil {
		c.bootNow = isolation.BootNow
	}
	if broken.On("wall_clock") {
		c.bootNow = func() isolation.BootTime { return isolation.BootTime(time.Now().UnixNano()) }
	}
	if c.writeSpool == nil {
		c.writeSpool = (*os.File).WriteAt
	}
	if c.maxSending == 0 {
		c.maxSending = defaultMaxSending
	}
	if c.statfs == nil {
		c.statfs = statfs
	}
	if c.secretBases == nil {
		c.secretBases = secretdir.Bases(ownerOf(c.Credential))
	}
}
