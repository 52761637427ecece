package ssh

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/runners"
)

// parameters are those of all actions; the schemas say which belong to which.
type parameters struct {
	ResourceID     string   `json:"resource_id"`
	Jump           []string `json:"jump"`
	HostKeysRef    string   `json:"host_keys_ref"`
	KnownHosts     string   `json:"known_hosts"`
	ConnectTimeout float64  `json:"connect_timeout_seconds"`
	IdleTimeout    float64  `json:"idle_timeout_seconds"`
	Evidence       struct {
		Name       string `json:"name"`
		Capability string `json:"capability"`
	} `json:"evidence"`

	Template  string          `json:"template"`
	Arguments json.RawMessage `json:"arguments"`

	File        string               `json:"file"`
	Path        string               `json:"path"`
	Input       string               `json:"input"`
	Overwrite   bool                 `json:"overwrite"`
	Artifact    string               `json:"artifact"`
	Sensitivity executor.Sensitivity `json:"sensitivity"`

	Unit         string   `json:"unit"`
	Settle       *float64 `json:"settle_seconds"`
	StartTimeout float64  `json:"start_timeout_seconds"`

	Facts []string `json:"facts"`
}

// readParameters holds the task to the action's schema.
func readParameters(task executor.Task) (parameters, error) {
	var p parameters
	violations := runners.Catalogue().ValidateParameters(task.Action, task.Parameters)
	if len(violations) > 0 {
		var texts []string
		for _, v := range violations {
			texts = append(texts, v.Pointer+" "+v.Message)
		}
		return p, errors.New("the parameters are refused: " + strings.Join(texts, "; "))
	}
	if err := json.Unmarshal(task.Parameters, &p); err != nil {
		return p, fmt.Errorf("reading the parameters: %w", err)
	}
	return p, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func secondsOr(s float64, otherwise time.Duration) time.Duration {
	if s <= 0 {
		return otherwise
	}
	return seconds(s)
}
