package cluster_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

var (
	runFor   = flag.Duration("cluster.for", 0, "how long to begin new rounds; 0: one short round")
	runSeed  = flag.Uint64("cluster.seed", 0, "seed of the first round; 0: a random one")
	runRound = flag.Duration("cluster.round", 0, "how long faults come in a round; 0: a minute, in a short run less")
	runNetns = flag.String("cluster.netns", "auto", "network namespaces: auto (if they can be had), require, off")
	inside   = flag.Bool("cluster.inside", false, "this process is in a network namespace already; set by the harness itself")
)

const (
	verbService = "cluster-service"
	verbRunner  = "cluster-runner"
	verbIdle    = "cluster-idle"
	verbProbe   = "cluster-probe"
	childEnv    = "EXECUTION_PLANE_CLUSTER_CHILD"
)

// The test binary serves as every process of the cluster.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "executor":
			os.Exit(serveExecutor(os.Args[2], os.Args[3]))
		case verbIdle:
			os.Exit(idle())
		case verbProbe:
			if err := tryNetns(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		case verbService, verbRunner:
			os.Exit(childMain(os.Args[1]))
		}
	}
	flag.Parse()
	pgtest.Main(m)
}

func childMain(verb string) int {
	run := map[string]func(childConfig) error{verbService: serveChild, verbRunner: runChild}[verb]
	var c childConfig
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c)
	if err == nil {
		err = run(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// endWithParent ends a child whose test died: its stdin then ends.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // the end is what is waited for
	os.Exit(3)
}

func childLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// profile has leases that a fault can outlast within seconds, and that a busy
// machine does not lose by itself.
func profile() domain.Profile {
	p := domain.FastProfile()
	p.ReportEvery, p.Fence, p.Offer, p.Salvage, p.Upload = time.Second, 8*time.Second, 4*time.Second, 6*time.Second, 20*time.Second
	p.StopBudget = func(string) time.Duration { return 3 * time.Second }
	return p
}

// lease is how long a silent runner holds an attempt.
func lease() time.Duration { return profile().Lease("verification") }
