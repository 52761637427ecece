package ssh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// ResultName is the artifact that says what was done, as JSON.
const ResultName = "ssh_result.json"

// report is the result document. Fields that an action has no use for are left out.
type report struct {
	Action     string    `json:"action"`
	ResourceID string    `json:"resource_id"`
	Host       string    `json:"host"` // with its port
	User       string    `json:"user"`
	Through    []string  `json:"through,omitempty"` // the jump hosts
	StartedAt  time.Time `json:"started_at"`
	EndedAt    time.Time `json:"ended_at"`
	ConnectMS  int64     `json:"connect_ms"`

	Command *commandReport    `json:"command,omitempty"`
	Upload  *uploadReport     `json:"upload,omitempty"`
	Got     *downloadReport   `json:"download,omitempty"`
	Service *serviceReport    `json:"service,omitempty"`
	Missing map[string]string `json:"missing_facts,omitempty"` // name to reason
}

func newReport(j *job) report {
	r := report{Action: j.task.Action, Host: j.target.String(), User: j.target.User, StartedAt: time.Now().UTC()}
	if n := len(j.input.Targets); n > 0 {
		r.ResourceID = j.input.Targets[n-1].ResourceID
	}
	for _, h := range j.target.Jumps {
		r.Through = append(r.Through, h.String())
	}
	return r
}

// streamReport says what came without repeating it.
type streamReport struct {
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// commandReport is one command that was run.
type commandReport struct {
	Template   string               `json:"template,omitempty"`
	Argv       []string             `json:"argv"`
	Sudo       string               `json:"sudo,omitempty"` // the user it became
	ExitCode   *int                 `json:"exit_code"`      // null if the host did not say it
	DurationMS int64                `json:"duration_ms"`
	Stopped    sshaccess.StopReason `json:"stopped,omitempty"`
	Confirmed  bool                 `json:"confirmed"` // it ended by itself, or was ended with all that was found of it
	Left       string               `json:"left,omitempty"`
	Stdout     streamReport         `json:"stdout"`
	Stderr     streamReport         `json:"stderr"`
}

func describe(argv []string, sudo string, r sshaccess.Result) *commandReport {
	c := &commandReport{Argv: argv, Sudo: sudo, DurationMS: r.Ended.Sub(r.Started).Milliseconds(), Stopped: r.Stopped,
		Confirmed: r.Confirmed, Left: plain(r.Left), Stdout: digestOf(r.Stdout), Stderr: digestOf(r.Stderr)}
	if r.Exit >= 0 {
		c.ExitCode = &r.Exit
	}
	return c
}

func digestOf(b []byte) streamReport {
	sum := sha256.Sum256(b)
	return streamReport{len(b), hex.EncodeToString(sum[:])}
}

// finish writes the result document and the evidence, whose detail is given.
func (j *job) finish(result string, detail any) {
	j.finished = true
	j.report.EndedAt = time.Now().UTC()
	j.report.ConnectMS = j.connect.Milliseconds()
	if err := j.writeJSON(ResultName, j.report); err != nil {
		j.rec.keep(err)
		return
	}
	j.rec.keep(j.rec.control.Artifact(executor.Artifact{Name: ResultName, ArtifactType: "ssh_result", Path: ResultName,
		Sensitivity: executor.Internal, MediaType: "application/json"}))
	data, err := json.Marshal(detail)
	if err != nil {
		j.rec.keep(fmt.Errorf("encoding the evidence: %w", err))
		return
	}
	if len(data) > maxDetail {
		data = []byte(`{"see":"` + ResultName + `"}`)
	}
	j.rec.keep(j.rec.control.Evidence(executor.Evidence{Name: j.params.Evidence.Name, EvidenceType: "command_check",
		Capability: j.params.Evidence.Capability, Result: result, ObservedAt: j.report.EndedAt, Source: ResultName, Detail: data}))
}

// maxDetail is the protocol's bound of a detail, in bytes, with room to spare.
const maxDetail = 15 << 10

const (
	passed       = "passed"
	failed       = "failed"
	inconclusive = "inconclusive"
)

// unseen is what the evidence says of a file that was not moved: the host's word is
// needed for a failure.
func unseen(ctx context.Context, o executor.Outcome) string {
	if o.Result == executor.TargetUnreachable || ctx.Err() != nil {
		return inconclusive
	}
	return failed
}

func (j *job) writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return j.write(name, append(data, '\n'))
}

func (j *job) write(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(j.task.OutputDir, name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// announce makes a file of the output folder a result for later steps.
func (j *job) announce(name, kind, mediaType string) {
	j.rec.keep(j.rec.control.Output(executor.Output{Name: name, ArtifactType: kind, Path: name,
		Sensitivity: executor.Internal, MediaType: mediaType}))
}
