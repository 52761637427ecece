package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	examplepackages "github.com/platform-core/execution-plane-service/examples/packages"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/packages"
)

// demoPlaybook builds the example's package, pushes it as an operator would, and
// gives the job that runs its playbook.
func demoPlaybook(s *session, stack *embedded.Stack) (j demoJob, err error) {
	dir, err := os.MkdirTemp("", "execution-plane-demo-")
	if err != nil {
		return j, fmt.Errorf("make a folder for the demo's package: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, examplepackages.Hello); err != nil {
		return j, fmt.Errorf("lay out the demo's package: %w", err)
	}
	file := filepath.Join(dir, "hello.tar.zst")
	b, err := packages.BuildFile(filepath.Join(dir, "hello"), file, packages.DefaultLimits())
	if err != nil {
		return j, err
	}
	f, err := os.Open(file)
	if err != nil {
		return j, fmt.Errorf("read the demo's package: %w", err)
	}
	defer f.Close()
	operator, err := client.New(client.Config{BaseURL: stack.URL, Token: stack.OperatorToken, UserAgent: "execution-plane/" + version})
	if err != nil {
		return j, err
	}
	if _, _, err := operator.PushPackage(s.ctx, domain.NewID[domain.CommandID](uuid.New()), client.File{Body: f, Bytes: b.Compressed, SHA256: b.SHA256}); err != nil {
		return j, fmt.Errorf("push the demo's package: %w", err)
	}
	return demoJob{"A playbook of an approved package: succeeded, contract confirmed", map[string]any{
		"operation_id": uuid.NewString(), "plan_node_id": "greet", "attempt_id": uuid.NewString(), "job_type": "ansible", "action": "ansible.playbook.run",
		"requested_by": map[string]any{"kind": "user", "id": "demo"},
		"target":       map[string]any{"environment": "demo", "resources": []any{map[string]any{"resource_id": "node/this", "resource_type": "node"}}},
		"inputs": map[string]any{"parameters": map[string]any{
			"package": b.Reference.String(), "playbook": "site.yml", "connection": "local", "variables": map[string]any{"greeting": "good morning"}}},
		"output_contract": map[string]any{"artifacts": []string{"ansible_events", "ansible_recap"}, "evidence": []string{"greeting-written"}},
		"controls":        map[string]any{"timeout_seconds": 120},
	}, exitOK}, nil
}
