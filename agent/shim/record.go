package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// record is what a shim leaves in the attempt's folder for the clean-up after
// a crash of the agent.
type record struct {
	BootID   string             `json:"boot_id"`
	Shim     isolation.Identity `json:"shim"`
	Executor isolation.Identity `json:"executor,omitzero"`
	Cgroup   string             `json:"cgroup,omitempty"`
	// Engine (name=path) and Container name what an isolation engine may have left.
	Engine    string `json:"engine,omitempty"`
	Container string `json:"container,omitempty"`
	// StopBudget is how long the shim may take to end the tree by itself.
	StopBudget time.Duration `json:"stop_budget"`
}

// halfWritten ends the name of a record that is not yet in place; a shim that
// was killed just then leaves it.
const halfWritten = ".new"

func (r record) write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the attempt's record: %w", err)
	}
	// Renamed into place: a half-written record would hide a live tree.
	tmp := path + halfWritten
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the attempt's record: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write the attempt's record: %w", err)
	}
	return nil
}

func readRecord(path string) (record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return record{}, fmt.Errorf("read the attempt's record: %w", err)
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("read the attempt's record %s: %w", path, err)
	}
	return r, nil
}
