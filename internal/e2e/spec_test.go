package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/platform-core/execution-plane-service/domain"
)

// pace makes a probe decide after one try, or after trying for a while.
const (
	pace    = `"interval_seconds":0.1,"stable_successes":1,"stable_seconds":0,`
	hasty   = pace + `"deadline_seconds":0.4,"timeout_seconds":0.2,`
	openTCP = pace + `"expect":[{"name":"port_open","connect":true}]`
)

// probe is a job on one resource of this machine, with parameters as the inside
// of a JSON object.
func probe(action string, port int, parameters string, change ...func(*domain.JobSpec)) *domain.JobSpec {
	s := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "check", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: "verification", Action: action,
		Target: domain.Target{Environment: "test", Resources: []domain.Resource{{
			ResourceID: "node/1", ResourceType: "compute.node", Binding: &domain.Binding{Address: "127.0.0.1", Port: port},
		}}},
		Inputs:         domain.Inputs{Parameters: json.RawMessage("{" + parameters + "}")},
		OutputContract: domain.OutputContract{Evidence: names(parameters)},
		Controls:       domain.Controls{TimeoutSeconds: 240},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// names are the names of the expectations in parameters: the contract asks for all.
func names(parameters string) []string {
	var p struct {
		Expect []struct{ Name string }
	}
	if err := json.Unmarshal([]byte("{"+parameters+"}"), &p); err != nil {
		panic(fmt.Sprintf("the parameters of a test: %v", err))
	}
	var out []string
	for _, e := range p.Expect {
		out = append(out, e.Name)
	}
	return out
}

func tcp(port int, change ...func(*domain.JobSpec)) *domain.JobSpec {
	return probe("verify.tcp.connect", port, openTCP, change...)
}

// long is a probe that goes on for a minute and sees nothing.
func long(t *testing.T, change ...func(*domain.JobSpec)) *domain.JobSpec {
	t.Helper()
	s := tcp(closedPort(t), change...)
	s.Inputs.Parameters = json.RawMessage("{" + strings.Replace(openTCP, pace, pace+`"deadline_seconds":60,`, 1) + "}")
	s.Controls.TimeoutSeconds = max(s.Controls.TimeoutSeconds, 70)
	for _, c := range change {
		c(s)
	}
	return s
}

// openPort is a port that accepts connections until the test ends.
func openPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().(*net.TCPAddr).Port
}

// closedPort is a port that refuses. It is bound and does not listen, so nobody
// else can open it meanwhile.
func closedPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	a, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*unix.SockaddrInet4).Port
}
