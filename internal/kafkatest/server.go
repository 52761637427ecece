package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/internal/peers"
)

const (
	startDeadline = 4 * time.Minute
	stopDeadline  = 15 * time.Second
	// startTries are for a port that another process took in between.
	startTries = 3
)

var peer = peers.Peer{
	Name: "Kafka", Folder: "kafka", Binary: "libs",
	Sources: []string{"build.sh", "jars.sha256", "pom.xml", "server.properties"},
}

// Process is a Kafka broker, running or stopped. Its methods are for the test's own
// goroutine, and end the test where something fails.
type Process struct {
	CA        string            // of Secured: path of the PEM certificate that signs for Addresses
	Passwords map[string]string // of Secured: by user

	t        testing.TB
	java     string
	cache    string // what build.sh made
	dir      string // this broker's own
	settings []string
	ports    ports
	run      *peers.Run // nil while stopped
}

// Server starts a broker with an empty storage in the test's temporary folder and
// returns when it serves. It ends with the test. A topic must be made before it is
// used. Settings are lines for its server.properties ("message.max.bytes=1000") and
// win over those of test/peers/kafka; the listener CLIENT is the one that Addresses
// gives.
func Server(t testing.TB, settings ...string) *Process {
	t.Helper()
	p := prepare(t)
	p.settings = settings
	p.begin()
	return p
}

// prepare finds the parts of a broker that will end with the test.
func prepare(t testing.TB) *Process {
	t.Helper()
	libs, err := peer.Find()
	if err != nil {
		t.Fatal(err)
	}
	java, err := findJava()
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, java: java, cache: filepath.Dir(libs), dir: t.TempDir()}
	t.Cleanup(func() {
		if p.run != nil {
			p.Stop()
		}
	})
	return p
}

func (p *Process) begin() {
	p.t.Helper()
	if err := p.create(); err != nil {
		p.t.Fatalf("starting the Kafka peer: %v", err)
	}
}

// Addresses are the broker's, host:port, the same after Restart.
func (p *Process) Addresses() []string { return []string{address(p.ports.client)} }

// Stop ends the broker in its own order by SIGTERM, and by SIGKILL if that takes
// too long. A paused broker goes on for it.
func (p *Process) Stop() {
	p.t.Helper()
	run := p.take()
	if run.State() != nil {
		p.t.Errorf("the Kafka peer ended by itself (%v): %s", run.State(), run.Words())
		return
	}
	// An error means that it has just ended, which the wait shows.
	_ = run.Signal(syscall.SIGTERM)
	_ = run.Signal(syscall.SIGCONT)
	late := time.NewTimer(stopDeadline)
	defer late.Stop()
	select {
	case <-run.Ended():
		return
	case <-late.C:
	}
	p.t.Logf("the Kafka peer did not end within %s of SIGTERM and is killed: %s", stopDeadline, run.Words())
	if err := run.Kill(); err != nil {
		p.t.Errorf("stopping the Kafka peer: %v", err)
	}
}

// Kill ends the broker as a crash would. What it acknowledged is in the system's
// file cache and stays.
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.take().Kill(); err != nil {
		p.t.Errorf("killing the Kafka peer: %v", err)
	}
}

// Restart starts a stopped or killed broker again, with its data and on its ports,
// and returns when it serves all its topics.
func (p *Process) Restart() {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatal("the Kafka peer is still running")
	}
	if err := p.start(); err != nil {
		p.t.Fatalf("restarting the Kafka peer: %v", err)
	}
}

// Pause freezes the broker: connections stand and nothing answers. Resume undoes it.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused broker go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatal("the Kafka peer is not running")
	}
	if err := p.run.Signal(s); err != nil {
		p.t.Fatalf("the Kafka peer: %v", err)
	}
}

// take gives the running process and forgets it.
func (p *Process) take() *peers.Run {
	p.t.Helper()
	run := p.run
	if run == nil {
		p.t.Fatal("the Kafka peer is not running")
	}
	p.run = nil
	return run
}

// create makes the storage and starts the broker on ports of its choice.
func (p *Process) create() error {
	var err error
	for range startTries {
		if p.ports, err = freePorts(); err != nil {
			return err
		}
		if err = os.RemoveAll(p.storage()); err != nil {
			return err
		}
		// Formatting takes a Java of its own; what it makes is the same every time.
		if err = os.CopyFS(p.storage(), os.DirFS(filepath.Join(p.cache, "storage"))); err != nil {
			return fmt.Errorf("copying the empty storage: %w; build it anew with `make peers-kafka`", err)
		}
		if err = p.start(); !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
	}
	return err
}

func (p *Process) start() error {
	config, err := p.configure()
	if err != nil {
		return err
	}
	cmd := exec.Command(p.java, append(p.flags(), "kafka.Kafka", config)...)
	cmd.Env, cmd.Dir = p.env(), p.dir
	run, err := peers.Start(cmd)
	if err != nil {
		return err
	}
	if err := p.ready(run); err != nil {
		return errors.Join(err, run.Kill())
	}
	p.run = run
	return nil
}

// configure writes server.properties. Of two lines with one name the later counts.
func (p *Process) configure() (string, error) {
	base, err := os.ReadFile(filepath.Join(p.cache, "server.properties"))
	if err != nil {
		return "", fmt.Errorf("reading the broker's settings: %w; build it anew with `make peers-kafka`", err)
	}
	lines := append([]string{
		string(base),
		fmt.Sprintf("listeners=CLIENT://%s,INTERNAL://%s,CONTROLLER://%s",
			address(p.ports.client), address(p.ports.internal), address(p.ports.controller)),
		"controller.quorum.voters=1@" + address(p.ports.controller),
		"log.dirs=" + p.storage(),
	}, p.settings...)
	path := filepath.Join(p.dir, "server.properties")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the broker's settings: %w", err)
	}
	return path, nil
}

func (p *Process) storage() string { return filepath.Join(p.dir, "storage") }
