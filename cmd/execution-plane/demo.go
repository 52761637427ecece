package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/ledger"
	"github.com/platform-core/execution-plane-service/runners"
)

type demoCmd struct {
	Listen string `default:"127.0.0.1:0" help:"Address of the API; port 0 takes a free one."`
	Keep   bool   `help:"Keep the service up until Ctrl-C, without a terminal too."`
}

// demoJob is one act of the demo: a real JobSpec against what was just started.
type demoJob struct {
	title string
	spec  map[string]any
	exit  int // the exit code that submit would end with
}

func (c *demoCmd) Run(s *session) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	begin := time.Now()
	stack, err := embedded.Start(s.ctx, embedded.Options{
		Listen: c.Listen, Version: version, Runner: &embedded.Runner{Pool: "default", Slots: 4, JobTypes: []string{runners.TypeVerification, runners.TypeAnsible}, Executable: self},
		Progress: func(what string) { fmt.Fprintln(s.err, "• "+what) },
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "• ready at %s after %s\n", stack.URL, time.Since(begin).Round(100*time.Millisecond))
	err = c.acts(s, stack)
	if err == nil && (c.Keep || isTerminal(s.out)) && s.ctx.Err() == nil {
		err = c.stay(s, stack)
	}
	return errors.Join(err, stack.Stop())
}

func (c *demoCmd) stay(s *session, stack *embedded.Stack) error {
	fmt.Fprintf(s.err, `
The service stays up until Ctrl-C. In another terminal:
  export EXECUTION_PLANE_URL=%s
  export EXECUTION_PLANE_TOKEN=%s
  export EXECUTION_PLANE_DATABASE_URL='%s'
  execution-plane list
  execution-plane events @latest
  execution-plane verify
`, stack.URL, stack.ControlPlaneToken, stack.DatabaseURL)
	return wait(s.ctx, stack)
}

func (c *demoCmd) acts(s *session, stack *embedded.Stack) error {
	api, err := client.New(client.Config{BaseURL: stack.URL, Token: stack.ControlPlaneToken, UserAgent: "execution-plane/" + version})
	if err != nil {
		return err
	}
	jobs, err := demoJobs(stack)
	if err != nil {
		return err
	}
	if stack.Runs(runners.TypeAnsible) {
		play, err := demoPlaybook(s, stack)
		if err != nil {
			return err
		}
		jobs = append(jobs, play)
	}
	var results []json.RawMessage
	for i, j := range jobs {
		if !s.isJSON() {
			fmt.Fprintf(s.out, "\n[%d/%d] %s\n", i+1, len(jobs), j.title)
		}
		raw, err := c.act(s, api, j)
		if err != nil {
			return err
		}
		results = append(results, raw)
	}
	report, err := ledger.Verify(s.ctx, stack.Plane.Pool, nil)
	if err != nil {
		return err
	}
	if s.isJSON() {
		err = s.json(map[string]any{"results": results, "verification": report})
	} else {
		fmt.Fprintln(s.out)
		printVerification(s.out, report)
	}
	if err == nil && !report.OK() {
		err = &exitError{code: exitVerification}
	}
	return err
}

// act submits one job, waits for its end, and shows its result and its timeline.
func (c *demoCmd) act(s *session, api *client.Client, j demoJob) (json.RawMessage, error) {
	spec, err := json.Marshal(j.spec)
	if err != nil {
		return nil, err
	}
	receipt, _, err := api.Submit(s.ctx, spec)
	if err != nil {
		return nil, err
	}
	raw, err := waitResult(s, api, receipt.AttemptID)
	if err != nil {
		return nil, err
	}
	var r domain.ExecutionResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, err
	}
	if !s.isJSON() {
		printResult(s.out, r)
		page, err := api.AttemptEvents(s.ctx, receipt.AttemptID, 0, 500)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(s.out, "  timeline")
		printTimeline(s.out, page.Items)
	}
	if got := resultCode(r); got != j.exit {
		return nil, fmt.Errorf("this job was to end with exit code %d and ended with %d", j.exit, got)
	}
	return raw, nil
}

// endpoint is where something listens.
type endpoint struct {
	host string
	port int
}

func endpointOf(raw string) (endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, err
	}
	port, err := strconv.Atoi(u.Port())
	return endpoint{u.Hostname(), port}, err
}

// demoJobs probe the PostgreSQL, object storage and HTTP endpoints that the demo
// just started, and one that policy does not allow.
func demoJobs(stack *embedded.Stack) ([]demoJob, error) {
	pg, err := endpointOf(stack.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("find the demo's PostgreSQL: %w", err)
	}
	s3, err := endpointOf("http://" + stack.S3.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("find the demo's object storage: %w", err)
	}
	web, err := endpointOf(stack.URL)
	if err != nil {
		return nil, fmt.Errorf("find the demo's service: %w", err)
	}
	operation := uuid.NewString()
	job := func(node, action, resource string, at endpoint, parameters map[string]any, evidence ...string) map[string]any {
		return map[string]any{
			"operation_id": operation, "plan_node_id": node, "attempt_id": uuid.NewString(), "job_type": "verification", "action": action,
			"requested_by": map[string]any{"kind": "user", "id": "demo"},
			"target": map[string]any{"environment": "demo", "resources": []any{map[string]any{
				"resource_id": resource, "resource_type": "demo.endpoint", "binding": map[string]any{"address": at.host, "port": at.port}}}},
			"inputs":          map[string]any{"parameters": parameters},
			"output_contract": map[string]any{"evidence": evidence},
			"controls":        map[string]any{"timeout_seconds": 60, "retry_policy_ref": "retry/default"},
		}
	}
	quick := func(p map[string]any) map[string]any {
		p["interval_seconds"], p["stable_successes"], p["deadline_seconds"] = 0.2, 2, 4
		return p
	}
	return []demoJob{
		{"PostgreSQL accepts connections: succeeded, contract confirmed", job("verify-postgres", "verify.postgres.ready", "database/demo", pg,
			quick(map[string]any{"expect": []any{map[string]any{"name": "postgres_ready", "mode": "accepts_connections"}}}), "postgres_ready"), exitOK},
		{"The service answers on HTTP: succeeded, contract confirmed", job("verify-http", "verify.http.endpoint", "service/demo", web,
			quick(map[string]any{"path": "/livez", "expect": []any{map[string]any{"name": "service_live", "status": 200}}}), "service_live"), exitOK},
		{"Object storage is open to everybody: succeeded, the expectation is observed to be false", job("verify-storage", "verify.http.endpoint", "bucket/demo", s3,
			quick(map[string]any{"path": "/" + stack.S3.Bucket, "expect": []any{
				map[string]any{"name": "storage_answers", "max_latency_ms": 3000},
				map[string]any{"name": "storage_is_public", "status": 200}}}), "storage_answers", "storage_is_public"), exitUnconfirmed},
		{"A target that is not on the allowlist: failed by policy, nothing was dialled", job("verify-elsewhere", "verify.tcp.connect", "node/elsewhere", endpoint{"192.0.2.10", 22},
			quick(map[string]any{"expect": []any{map[string]any{"name": "ssh_open", "connect": true}}}), "ssh_open"), exitPolicy},
	}, nil
}
