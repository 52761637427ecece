package agent

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// conclude proves, claims, and lets the slot go. Bytes may be left to send.
func (at *attempt) conclude(e ending) {
	fields := map[string]any{"result": e.result, "launched": e.launched, "code": e.code}
	if e.text != "" {
		fields["text"] = e.text
	}
	if r := e.reaped; r != nil {
		fields["survivors"], fields["reaped"], fields["killed"] = r.Survivors, r.Confirmed, r.Killed
		at.records.add(record{key: uuid.New(), fact: &wire.FactRequest{ProcessTreeReaped: &wire.ReapedFact{
			Survivors: r.Survivors, Confirmed: r.Confirmed, Method: methodOf(r.Method),
		}}})
	}
	if revoked := at.revoke(); len(revoked) > 0 {
		at.note("secret_revoked", map[string]any{"accessors": revoked})
		if at.working.Err() == nil {
			at.records.add(record{key: uuid.New(), fact: &wire.FactRequest{SecretRevoked: &wire.RevokeFact{Accessors: revoked}}})
		} else {
			at.agent.tasks.Go(func() { at.tellLate(revoked) }) // the lease takes no fact any more
		}
	}
	at.records.close()
	at.countStop(e)
	at.note("ended", fields)
	at.claim(e)
	at.freeSlot()
}

// methodOf names the way of the proof. Where there is none, it is the way that
// was tried: the fact is then unconfirmed.
func methodOf(method string) string {
	if method == "" || method == shim.MethodNone {
		return shim.MethodSubreaper
	}
	return method
}

// claim fixes what is claimed in the journal, so that a later agent says the
// same, and completes.
func (at *attempt) claim(e ending) {
	if err := at.notices.close(); err != nil {
		at.log.Warn("the agent's own lines are not all kept", "error", err)
	}
	if err := at.spool.close(); err != nil && e.result != string(domain.CodeStorageUnavailable) {
		at.log.Error("the log is not safe on disk", "error", err)
	}
	claim := &wire.CompleteRequest{
		Result: e.result, Launched: e.launched, Code: e.code, RecommendedCategory: e.category,
		FinishedAt: e.finished.UTC(), Logs: at.spool.claimed(), Artifacts: at.artifacts.close(),
		Environment: at.environment(),
	}
	fenced := at.lossNow() == lossFenced
	err := at.update(func(j *journal) {
		j.Claim, j.CompleteKey, j.Fenced, j.Phase = claim, uuid.New(), fenced, phaseEnded
	})
	if err != nil {
		at.log.Error("the claim is not safe on disk; a crash now would lose it", "error", err)
	}
	at.complete()
}

// complete sends the claim until it is answered. After a definite loss it is
// sent once more all the same: the service keeps it as a late outcome. After the
// agent's own fence that must wait until the service says that the lease is over:
// one that is still alive there would take it for the outcome of a job that
// nobody stopped.
func (at *attempt) complete() {
	err := context.Cause(at.working)
	if err == nil {
		err = at.sendClaim(at.working)
	}
	if err != nil && !definite(err) && at.lossTold() == lossLapsed {
		late, cancel := context.WithTimeout(at.sending, time.Minute)
		defer cancel()
		err = at.sendClaim(late)
	}
	switch {
	case err == nil:
		at.log.Info("completed", "result", at.journal.Claim.Result)
		at.settle(phaseDone)
		return
	case at.agent.life.Err() != nil:
		return // the next agent completes
	case definite(err):
		at.log.Warn("the service refused the completion", "error", err)
		if l := lossOf(err); l != lossNone {
			at.lose(l)
		}
	}
	at.settle(phaseLost)
}

// lossTold is how the lease was lost. Where this agent alone thinks so, it waits
// for the service's word, which comes by the held request or any other answer; the
// slot is free meanwhile. Once the service is heard again it does not wait for
// longer than leftovers are taken.
func (at *attempt) lossTold() loss {
	if at.lossNow() != lossFenced {
		return at.lossNow()
	}
	at.freeSlot()
	window := time.Duration(at.journal.Clocks.LeaseSeconds+at.journal.Clocks.SalvageSeconds) * time.Second
	look := time.NewTicker(fenceLook)
	defer look.Stop()
	var heard time.Time
	for at.lossNow() == lossFenced {
		switch {
		case !heard.IsZero() && time.Since(heard) >= window:
			return lossFenced
		case heard.IsZero() && at.heardSinceFence():
			heard = time.Now()
		}
		select {
		case <-look.C:
		case <-at.sending.Done():
			return at.lossNow()
		}
	}
	return at.lossNow()
}

// heardSinceFence says that the service acknowledged a report that was sent
// after the fence.
func (at *attempt) heardSinceFence() bool {
	at.agent.mu.Lock()
	reported := at.agent.reported
	at.agent.mu.Unlock()
	at.mu.Lock()
	defer at.mu.Unlock()
	return reported != 0 && reported >= at.fenceAt
}

func (at *attempt) sendClaim(ctx context.Context) error {
	return insist(ctx, callTimeout, func(ctx context.Context) error {
		return at.agent.plane().Complete(ctx, at.lease, at.journal.CompleteKey, *at.journal.Claim)
	})
}

func (at *attempt) settle(p phase) {
	if err := at.update(func(j *journal) { j.Phase = p }); err != nil {
		at.log.Warn("the journal is behind", "error", err)
	}
}

// sendRest waits until the bytes are stored or nothing more is taken. Reports go
// on meanwhile: they renew the upload lease.
func (at *attempt) sendRest() {
	err := <-at.uploaded
	at.artifacts.wait()
	at.mu.Lock()
	at.held = false
	at.mu.Unlock()
	if err != nil && at.agent.life.Err() == nil {
		at.log.Info("part of the log was not taken", "error", err)
	}
}

// readSecret is a secret that the attempt had, without its value.
type readSecret struct {
	Name      string `json:"name"`
	Reference string `json:"reference"`
	Version   int    `json:"version,omitempty"`
}

// environment describes where and with what the attempt ran, at most 16 KiB.
func (at *attempt) environment() json.RawMessage {
	c := &at.agent.config
	type agentPart struct {
		Name         string `json:"name"`
		Version      string `json:"version"`
		BinarySHA256 string `json:"binary_sha256,omitempty"`
		Host         string `json:"host,omitempty"`
	}
	env := struct {
		Agent        agentPart         `json:"agent"`
		Executor     string            `json:"executor_sha256,omitempty"`
		Tools        map[string]string `json:"tools,omitempty"`
		Isolation    string            `json:"isolation"`
		Applied      isolation.Applied `json:"isolation_applied"`
		PolicyDigest string            `json:"policy_digest"`
		Clocks       domain.Clocks     `json:"clocks"`
		Secrets      []readSecret      `json:"secrets,omitempty"`
		Inputs       []givenFile       `json:"inputs,omitempty"`
		Packages     []givenFile       `json:"packages,omitempty"`
	}{
		Agent:    agentPart{c.Name, c.Version, c.BinarySHA256, c.Host},
		Executor: c.Executors[at.journal.JobType].SHA256, Tools: c.Tools, Isolation: at.journal.Isolation,
		PolicyDigest: at.journal.PolicyDigest, Clocks: at.journal.Clocks,
		Inputs: at.given.digests, Packages: at.given.pinned,
	}
	at.mu.Lock()
	env.Applied = at.applied
	at.mu.Unlock()
	for _, f := range at.secrets.resolved {
		env.Secrets = append(env.Secrets, readSecret{f.Name, f.Reference, f.Version})
	}
	b, err := json.Marshal(env)
	const limit = 16 << 10
	if err == nil && len(b) > limit {
		// The ledger has the references.
		env.Tools, env.Secrets, env.Inputs = map[string]string{"omitted": "the list of tools is too long"}, nil, nil
		b, err = json.Marshal(env)
	}
	if err != nil || len(b) > limit {
		at.log.Warn("the environment is not described", "bytes", len(b), "error", err)
		return nil
	}
	return maskJSON(at.mask, b)
}
