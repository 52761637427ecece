package verification

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// The test binary serves as shim and as executor, as the product's binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "shim":
			os.Exit(shim.Main())
		case "executor":
			os.Exit(Serve())
		}
	}
	goleak.VerifyTestMain(m)
}

// memory keeps what a probe records.
type memory struct {
	evidence  map[string]Evidence
	progress  []Progress
	artifacts []Artifact
	verdicts  []policy.Verdict
	log       strings.Builder
	onLog     func()
}

func (m *memory) Progress(p Progress) { m.progress = append(m.progress, p) }
func (m *memory) Evidence(e Evidence) {
	if m.evidence == nil {
		m.evidence = map[string]Evidence{}
	}
	m.evidence[e.Name] = e
}
func (m *memory) Artifact(a Artifact) { m.artifacts = append(m.artifacts, a) }
func (m *memory) PolicyDecided(_ string, v policy.Verdict) {
	m.verdicts = append(m.verdicts, v)
}
func (m *memory) Logf(format string, args ...any) {
	fmt.Fprintf(&m.log, format+"\n", args...)
	if m.onLog != nil {
		m.onLog()
	}
}

// result is evidence as "passed" or "failed reason".
func (m *memory) result(name string) string {
	e, ok := m.evidence[name]
	if !ok {
		return "no evidence"
	}
	return strings.TrimSpace(string(e.Result) + " " + e.Reason)
}

// tested is one probe that ran in a test.
type tested struct {
	*memory
	Outcome
	dir     string
	samples []sample
	raw     string
}

// request is a probe of a loopback port in the environment test, whose targets
// the development bundle allows.
func request(t *testing.T, action string, port int, params string) Request {
	t.Helper()
	return Request{
		Action: action, Environment: "test", Parameters: json.RawMessage(params),
		Resources: []Resource{{Resource: runners.Resource{ID: "res", Address: "127.0.0.1", Port: port}}},
		// Few tries end a probe that fails long before its deadline.
		Retry:   &policy.RetryPolicy{Interval: 50 * time.Millisecond, Factor: 1, StableSuccesses: 2, Attempts: 3},
		Timeout: time.Minute, OutputDir: t.TempDir(), Policy: policy.BuiltinDev(),
	}
}

func probe(t *testing.T, req Request) *tested {
	t.Helper()
	return probeContext(t, context.Background(), req, &memory{})
}

func probeContext(t *testing.T, ctx context.Context, req Request, m *memory) *tested {
	t.Helper()
	r := &tested{memory: m, dir: req.OutputDir}
	r.Outcome = Probe(ctx, req, m)
	if len(r.artifacts) > 0 {
		r.read(t)
	}
	return r
}

func (r *tested) read(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, r.artifacts[0].Path))
	if err != nil {
		t.Fatal(err)
	}
	r.raw = string(data)
	lines := bufio.NewScanner(strings.NewReader(r.raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatalf("sample line %q: %v", lines.Text(), err)
		}
		r.samples = append(r.samples, s)
	}
	if len(r.samples) != r.Samples || len(r.progress) != r.Samples {
		t.Errorf("%d samples on disk and %d reports of progress, outcome counts %d", len(r.samples), len(r.progress), r.Samples)
	}
	for i, s := range r.samples {
		if s.N != i+1 || s.Time.IsZero() {
			t.Errorf("sample %d is %+v", i+1, s)
		}
	}
}

// serve accepts connections on a free loopback port until the test ends.
func serve(t *testing.T, handle func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port
}

// hang reads until the peer hangs up and answers nothing.
func hang(conn net.Conn) {
	buf := make([]byte, 1024)
	for {
		if _, err := conn.Read(buf); err != nil {
			return
		}
	}
}

// closedPort is a loopback port where nobody listens.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func portOf(t *testing.T, hostport string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(hostport, "https://"), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// names is a resolver that answers the n-th look-up of a name with the n-th
// list, the last one for ever.
type names struct {
	answers map[string][][]string
	asked   map[string]int
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if n.asked == nil {
		n.asked = map[string]int{}
	}
	lists, ok := n.answers[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	list := lists[min(n.asked[host], len(lists)-1)]
	n.asked[host]++
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func overlay(t *testing.T, rules string) *policy.Bundle {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := policy.Overlay(policy.Builtin(), os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// quick are parameters for a probe that must end soon.
const quick = `"timeout_seconds":10,"interval_seconds":0.1,`

// silent is quick for a peer that lets a try run out of time.
const silent = `"timeout_seconds":0.4,"interval_seconds":0.1,`

// patient is request with tries until the deadline.
func patient(t *testing.T, action string, port int, params string) Request {
	t.Helper()
	req := request(t, action, port, params)
	req.Retry = nil
	return req
}
