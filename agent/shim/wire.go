package shim

import (
	"encoding/json"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// maxOrder bounds one line from the agent; the start order holds the task.
const maxOrder = 16 << 20

// order is a line from the agent to the shim. Exactly one field is set.
type order struct {
	Start  *startOrder  `json:"start,omitempty"`
	Extend *extendOrder `json:"extend,omitempty"`
	Stop   *stopOrder   `json:"stop,omitempty"`
}

type startOrder struct {
	Dir         string             `json:"dir"`
	Private     string             `json:"private,omitempty"`
	Argv        []string           `json:"argv"`
	Env         []string           `json:"env"`
	Task        json.RawMessage    `json:"task"`
	Limits      isolation.Limits   `json:"limits"`
	Credential  *Credential        `json:"credential,omitempty"`
	Cgroup      bool               `json:"cgroup"`
	Box         *isolation.Box     `json:"box,omitempty"` // nil at level process
	Disk        uint64             `json:"disk,omitempty"`
	Deadline    isolation.BootTime `json:"deadline"`
	Ladder      Ladder             `json:"ladder"`
	ReapTimeout time.Duration      `json:"reap_timeout"`
}

type extendOrder struct {
	Until isolation.BootTime `json:"until"`
}

type stopOrder struct {
	// Ladder nil means the start order's.
	Ladder *Ladder `json:"ladder,omitempty"`
	// Note is for the shim's diagnostics only.
	Note string `json:"note"`
}

// report is a line from the shim to the agent. Exactly one field is set. The
// last one is reaped.
type report struct {
	Started   *startedReport      `json:"started,omitempty"`
	Failed    *failedReport       `json:"failed,omitempty"`
	Message   json.RawMessage     `json:"message,omitempty"`
	Violation *executor.Violation `json:"violation,omitempty"`
	Exited    *exitedReport       `json:"exited,omitempty"`
	Reaped    *reapedReport       `json:"reaped,omitempty"`
}

type startedReport struct {
	Pid     int               `json:"pid"`
	Applied isolation.Applied `json:"isolation_applied"`
}

// failedReport says that the executor was certainly never launched.
type failedReport struct {
	Error  string `json:"error"`
	Reason Reason `json:"reason"`
}

type exitedReport struct {
	Code    int    `json:"code"`
	Signal  int    `json:"signal"`
	Reason  Reason `json:"reason"`
	Settled bool   `json:"settled"`
	// Ran is from launch to exit, by the boot-time clock.
	Ran time.Duration `json:"ran"`
}

type reapedReport struct {
	Reaped
	Violations int `json:"violations"`
}

// Reason says why an executor ended.
type Reason string

// The reasons. ShimLost means that the shim itself died, so that nothing is
// known for certain.
const (
	ReasonOwn       Reason = "own"
	ReasonStop      Reason = "stop"
	ReasonDeadline  Reason = "deadline"
	ReasonAgentLost Reason = "agent_lost"
	ReasonShimLost  Reason = "shim_lost"
	// ReasonDisk: its folders took more than they may.
	ReasonDisk Reason = "disk"
)

// Reaped is the proof that the process tree is gone.
type Reaped struct {
	// Survivors is how many processes were still seen, 0 where confirmed.
	Survivors int `json:"survivors"`
	// Confirmed means that the kernel said that none is left.
	Confirmed bool `json:"confirmed"`
	// Method: subreaper, cgroup (which includes subreaper), or none.
	Method string `json:"method"`
	// Killed is how many processes had to be ended by SIGKILL.
	Killed int `json:"killed"`
}

// Methods of the proof.
const (
	MethodSubreaper = "subreaper"
	MethodCgroup    = "cgroup"
	MethodNone      = "none"
)
