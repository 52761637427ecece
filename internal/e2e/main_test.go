package e2e_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/runners"
	"github.com/platform-core/execution-plane-service/runners/ansible"
	"github.com/platform-core/execution-plane-service/runners/ssh"
	"github.com/platform-core/execution-plane-service/runners/verification"
)

// longRun asks for all crash points of delivery and for longer faults.
var longRun = flag.Bool("e2e.long", false, "faults of delivery as long and as many as they are meant")

// atOnce is how many tests run at a time. They wait for timers and other
// processes far more than they compute.
func atOnce() string {
	if raceDetector {
		return "3" // there it is the machine that they wait for
	}
	return "8"
}

// The test binary serves as shim and as executor, as the product's binary does,
// and as service and runner for tests that kill them.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "executor":
			os.Exit(serveExecutor(os.Args[3]))
		case verbChatter:
			os.Exit(executor.Serve(chatter))
		case verbLeaker:
			os.Exit(executor.Serve(leaker))
		case verbService, verbRunner:
			os.Exit(childMain(os.Args[1]))
		}
	}
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	pgtest.Main(m)
}

// serveExecutor is the executor of a job type: executor serve <type>.
func serveExecutor(jobType string) int {
	switch jobType {
	case runners.TypeAnsible:
		return ansible.Serve()
	case runners.TypeSSH:
		return ssh.Serve()
	}
	return verification.Serve()
}

func childMain(verb string) int {
	run := map[string]func(childConfig) error{verbService: serveChild, verbRunner: runChild}[verb]
	var c childConfig
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c)
	if err == nil {
		go endWithParent()
		err = run(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
