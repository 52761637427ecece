package verification

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

func task(t *testing.T, port int, params string) executor.Task {
	t.Helper()
	b := policy.BuiltinDev()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return executor.Task{
		Protocol: executor.Protocol, JobType: "verification", Action: "verify.tcp.connect", Environment: "test",
		Parameters:      json.RawMessage(params),
		Resources:       []executor.Resource{{ResourceID: "res", Binding: executor.Binding{Address: "127.0.0.1", Port: port}}},
		Policy:          executor.PolicyFile{Digest: b.Digest(), Path: file},
		Retry:           json.RawMessage(`{"name":"retry/test","interval":"50ms","factor":1,"stable_successes":2,"attempts":3}`),
		DeadlineSeconds: 60, OutputDir: t.TempDir(), WorkDir: t.TempDir(),
	}
}

// messages runs a task and gives what the shim would take in.
func messages(t *testing.T, ctx context.Context, task executor.Task) (executor.Outcome, map[string][]executor.Message) {
	t.Helper()
	var wire bytes.Buffer
	outcome := Run(ctx, task, executor.NewControl(&wire))
	got := map[string][]executor.Message{}
	err := executor.NewIntake().Run(&wire, func(m executor.Message) {
		got[m.Kind()] = append(got[m.Kind()], m)
	}, func(v executor.Violation) { t.Errorf("the shim refuses a message: %+v", v) })
	if err != nil {
		t.Fatal(err)
	}
	return outcome, got
}

func TestRunSpeaksTheProtocol(t *testing.T) {
	port := serve(t, hang)
	outcome, got := messages(t, t.Context(), task(t, port, "{"+silent+`"expect":[{"name":"open","capability":"tcp","connect":true},{"name":"banner","banner_matches":"x"}]}`))
	if outcome.Result != executor.Succeeded || outcome.RecommendedCategory != CategoryInfrastructure {
		t.Errorf("outcome %+v", outcome)
	}
	if len(got["evidence"]) != 2 || len(got["artifact"]) != 1 || len(got["progress"]) < 2 || len(got["fact"]) != 1 || len(got["outcome"]) != 0 {
		t.Fatalf("messages %v", got)
	}
	e := got["evidence"][0].Evidence
	if e.Name != "open" || e.Result != "passed" || e.EvidenceType != "api_check" || e.Capability != "tcp" || e.Source != SamplesName || e.ObservedAt.IsZero() {
		t.Errorf("evidence %+v", e)
	}
	if e := got["evidence"][1].Evidence; e.Result != "inconclusive" || !strings.Contains(string(e.Detail), `"reason":"timeout"`) {
		t.Errorf("evidence %+v, detail %s", e, e.Detail)
	}
	f := got["fact"][0].Fact
	if f.Kind != executor.FactPolicyDecided || f.Verdict != "allowed" || f.BundleDigest != policy.BuiltinDev().Digest() ||
		len(f.InputDigest) != 64 || len(f.Rules) != 1 || f.Subject != fmt.Sprintf("127.0.0.1 at 127.0.0.1:%d", port) {
		t.Errorf("fact %+v", f)
	}
	a := got["artifact"][0].Artifact
	if a.Name != SamplesName || a.Path != SamplesName || a.MediaType != "application/x-ndjson" {
		t.Errorf("artifact %+v", a)
	}
}

func TestRunEndsByTheProtocol(t *testing.T) {
	open := `{` + quick + `"expect":[{"name":"e","connect":true}]}`
	dark := `{` + silent + `"expect":[{"name":"e","banner_matches":"x"}]}`
	port := serve(t, hang)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		params string
		change func(*executor.Task)
		want   executor.OutcomeResult
	}{
		"unreachable":            {params: dark, want: executor.TargetUnreachable},
		"policy":                 {params: open, change: func(k *executor.Task) { k.Environment = "prod" }, want: executor.PolicyDenied},
		"inputs":                 {params: `{}`, want: executor.InputsRejected},
		"bundle of other digest": {params: open, change: func(k *executor.Task) { k.Policy.Digest = policy.Builtin().Digest() }, want: executor.InputsRejected},
		"no bundle":              {params: open, change: func(k *executor.Task) { k.Policy = executor.PolicyFile{} }, want: executor.InputsRejected},
		"broken bundle":          {params: open, change: func(k *executor.Task) { k.Policy.Path = os.Args[0] }, want: executor.InputsRejected},
		"broken retry policy":    {params: open, change: func(k *executor.Task) { k.Retry = json.RawMessage(`{"interval":5}`) }, want: executor.InputsRejected},
		"retry policy":           {params: open, change: func(k *executor.Task) { k.Retry = json.RawMessage(`{"name":"retry/x","interval":"100ms","factor":1}`) }, want: executor.Succeeded},
		"stopped":                {ctx: cancelled, params: open, want: executor.TaskFailed},
		"output folder missing":  {params: open, change: func(k *executor.Task) { k.OutputDir += "/none" }, want: executor.TaskFailed},
	} {
		t.Run(name, func(t *testing.T) {
			k := task(t, port, tc.params)
			if tc.change != nil {
				tc.change(&k)
			}
			ctx := tc.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			outcome, _ := messages(t, ctx, k)
			if outcome.Result != tc.want {
				t.Errorf("outcome %+v, want %s", outcome, tc.want)
			}
		})
	}
}

func TestBundleAsAFolder(t *testing.T) {
	port := serve(t, func(net.Conn) {})
	dir := t.TempDir()
	rules := "targets:\n- id: t\n  actions: ['*']\n  environments: ['*']\n  cidrs: [127.0.0.1]\n  ports: ['1-65535']\n"
	if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := policy.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	k := task(t, port, `{"expect":[{"name":"e","connect":true}]}`)
	k.Policy = executor.PolicyFile{Digest: b.Digest(), Path: dir}
	if outcome, _ := messages(t, t.Context(), k); outcome.Result != executor.Succeeded {
		t.Errorf("outcome %+v", outcome)
	}
}

// Nobody reads the control socket any more.
func TestLostControlSocket(t *testing.T) {
	a, b := net.Pipe()
	a.Close()
	b.Close()
	outcome := Run(t.Context(), task(t, closedPort(t), `{`+quick+`"expect":[{"name":"e","connect":true}]}`), executor.NewControl(b))
	if outcome.Result != executor.TaskFailed || outcome.RecommendedCategory != CategoryInfrastructure {
		t.Errorf("outcome %+v", outcome)
	}
}
