package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// phase is how far an attempt came, as its journal says after a crash.
type phase string

const (
	phaseOffered  phase = "offered"  // start was not asked for
	phaseStarting phase = "starting" // start was asked for; the answer is not known
	phaseStarted  phase = "started"  // started; no executor was launched
	phaseLaunched phase = "launched" // an executor may have been launched
	phaseEnded    phase = "ended"    // the claim is fixed and in the journal
	phaseDone     phase = "done"     // complete was answered; bytes may be left to send
	phaseLost     phase = "lost"     // the lease was lost; bytes may be left to send
)

// journal is what a later agent needs to know of an attempt. It holds the lease
// token, so the file is 0600 in a folder of 0700.
type journal struct {
	AttemptID    domain.AttemptID      `json:"attempt_id"`
	LeaseID      domain.LeaseID        `json:"lease_id"`
	Epoch        int64                 `json:"epoch"`
	Token        string                `json:"token"`
	JobType      string                `json:"job_type,omitempty"`
	PolicyDigest string                `json:"policy_digest"`
	Isolation    string                `json:"isolation,omitempty"`
	Clocks       domain.Clocks         `json:"clocks"`
	Phase        phase                 `json:"phase"`
	Claim        *wire.CompleteRequest `json:"claim,omitempty"`
	CompleteKey  uuid.UUID             `json:"complete_key,omitzero"`
	// Fenced: the agent's own fence ended the job, so that the claim is to be
	// sent only when the service says that the lease is over.
	Fenced bool `json:"fenced,omitempty"`
	// Accessors name the attempt's tokens in Vault that are not revoked.
	Accessors []string `json:"accessors,omitempty"`
}

func (j *journal) lease() Lease { return Lease{ID: j.LeaseID, Epoch: j.Epoch, Token: j.Token} }

func (j *journal) save(dir string) error {
	b, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("write the attempt's journal: %w", err)
	}
	if err := writeDurable(journalPath(dir), append(b, '\n')); err != nil {
		return fmt.Errorf("write the attempt's journal: %w", err)
	}
	return nil
}

// errRemoved says that the attempt's folder is gone.
var errRemoved = errors.New("the attempt's folder is removed")

// update changes the journal and makes it durable. What is not changed by way of
// it belongs to the attempt's own sequence.
func (at *attempt) update(change func(*journal)) error {
	at.writing.Lock()
	defer at.writing.Unlock()
	change(at.journal)
	if at.removed {
		return errRemoved
	}
	return at.journal.save(at.dir)
}

// accessors are those of the journal.
func (at *attempt) accessors() []string {
	at.writing.Lock()
	defer at.writing.Unlock()
	return slices.Clone(at.journal.Accessors)
}

func loadJournal(dir string) (*journal, error) {
	b, err := os.ReadFile(journalPath(dir))
	if err != nil {
		return nil, fmt.Errorf("read the attempt's journal: %w", err)
	}
	j := new(journal)
	if err := json.Unmarshal(b, j); err != nil || j.LeaseID.IsZero() || j.Phase == "" {
		return nil, fmt.Errorf("the attempt's journal in %s cannot be read", dir)
	}
	return j, nil
}

func journalPath(dir string) string { return filepath.Join(dir, "journal.json") }

// attemptDir is the private folder of one attempt at one epoch.
func attemptDir(stateDir string, id domain.AttemptID, epoch int64) string {
	return filepath.Join(attemptsDir(stateDir), id.String()+"-"+strconv.FormatInt(epoch, 10))
}

func attemptsDir(stateDir string) string { return filepath.Join(stateDir, "attempts") }
