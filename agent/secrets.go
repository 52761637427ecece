package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/secretdir"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
	"github.com/platform-core/execution-plane-service/vault"
)

// secrets is what an attempt holds of Vault while it lives: sessions, files on a
// memory file system, and what must not be seen. The values themselves are in its
// masker.Set only, once the files are written.
type secrets struct {
	at  *attempt
	dir *secretdir.Dir // nil where there is no place

	// Used by the attempt's own sequence, and by who takes its messages, never at
	// the same time.
	sessions []*vault.Session
	stores   map[string]*vault.Session // for writing, by token role and policies
	resolved []wire.SecretFact
	prints   prints
	// patterned is how many bytes of secret artifacts are patterns of the masker.
	patterned int
	// away is when Vault last did not take a secret artifact, and why.
	away    time.Time
	awayErr error
}

// secretFailure ends an attempt before its executor was started. Its text holds
// names and references that can be read as such, never a value.
type secretFailure struct {
	code domain.FailureCode
	err  error
}

func (f *secretFailure) Error() string { return f.err.Error() }
func (f *secretFailure) Unwrap() error { return f.err }

func secretDenied(err error) error {
	return &secretFailure{domain.CodeSecretDenied, err}
}

// noVault is the next step for who runs a job with secrets here.
const noVault = "this runner has no access to Vault: start it with --vault-address and a --vault-login"

// prepareSecrets reads what the job names and puts it where the executor finds it:
// files by name. It does all or nothing of it; the executor is started only after
// nil. A stop, a fence or a lost lease ends it promptly.
func (at *attempt) prepareSecrets() (files map[string]string, err error) {
	n := len(at.spec.Inputs.Secrets)
	switch {
	case n == 0 && at.agent.vault == nil:
		return nil, nil
	case at.agent.vault == nil:
		return nil, &secretFailure{domain.CodeVaultUnavailable, fmt.Errorf("the job names %d secrets and %s", n, noVault)}
	}
	err = at.makeSecretDir()
	if n == 0 {
		if err != nil {
			at.log.Info("secret artifacts cannot be taken", "error", err)
		}
		return nil, nil
	}
	if err != nil {
		return nil, &secretFailure{domain.CodeStorageUnavailable, err}
	}
	verdict, err := at.decideSecrets(at.launching)
	if err != nil {
		return nil, err
	}
	values, err := at.readSecrets(at.launching, verdict)
	defer func() {
		for _, v := range values {
			v.Wipe()
		}
	}()
	if err == nil {
		err = at.secrets.prints.send(at.launching)
	}
	if err == nil {
		err = at.tellResolved(at.launching)
	}
	if err != nil {
		return nil, err
	}
	return at.writeSecrets(values)
}

func (at *attempt) makeSecretDir() error {
	if at.agent.private == nil {
		return fmt.Errorf("find a place for secrets: %w", at.agent.privateErr)
	}
	dir, err := at.agent.private.Make(fmt.Sprintf("%s-%d", at.journal.AttemptID, at.journal.Epoch))
	at.secrets.dir = dir
	return err
}

// decideSecrets asks the bundle that the offer named, and records its verdict.
func (at *attempt) decideSecrets(ctx context.Context) (policy.SecretsVerdict, error) {
	bundle, err := at.bundle()
	if err != nil {
		return policy.SecretsVerdict{}, err
	}
	job := runners.PolicyInput(&at.spec)
	in := policy.SecretsInput{Action: at.spec.Action, JobType: at.spec.JobType, Environment: at.spec.Target.Environment, Secrets: job.Secrets, Job: &job}
	v := bundle.DecideSecrets(in)
	if err := at.tellVerdict(ctx, v.Verdict); err != nil {
		return v, err
	}
	if !v.Allow {
		err := errors.New("policy does not let this job read its secrets")
		if len(v.Reasons) > 0 {
			err = errors.New(v.Reasons[0].Detail)
		}
		return v, secretDenied(err)
	}
	return v, nil
}

func (at *attempt) tellVerdict(ctx context.Context, v policy.Verdict) error {
	fact := &wire.PolicyFact{Verdict: "allow", BundleDigest: v.BundleDigest, InputDigest: v.InputDigest, Rules: v.Rules}
	if !v.Allow {
		fact.Verdict = "deny"
	}
	for _, r := range v.Reasons {
		fact.Reasons = append(fact.Reasons, r.Code)
	}
	at.note("policy_decided", map[string]any{"verdict": fact.Verdict, "rules": v.Rules, "reasons": v.Reasons, "input_digest": v.InputDigest})
	return at.tell(ctx, wire.FactRequest{PolicyDecided: fact})
}

// tell records a fact and returns when the service has it.
func (at *attempt) tell(ctx context.Context, f wire.FactRequest) error {
	key := uuid.New()
	return at.heard(insist(ctx, callTimeout, func(ctx context.Context) error {
		return at.agent.plane().Fact(ctx, at.lease, key, f)
	}))
}

// heard takes what the answer to a write says of the lease.
func (at *attempt) heard(err error) error {
	if err == nil {
		return nil
	}
	if l := lossOf(err); l != lossNone {
		at.lose(l)
	}
	return fmt.Errorf("tell the service: %w", err)
}

// readSecrets makes the attempt's token and reads with it. Each value is a pattern
// of the masker before the next one is asked for. What was read comes back with an
// error too, to be wiped.
func (at *attempt) readSecrets(ctx context.Context, v policy.SecretsVerdict) (values []*vault.Secret, err error) {
	session, err := at.openSession(ctx, v.Token, purposeRead)
	if err != nil {
		return nil, at.vaultFailure("make the attempt's token", err)
	}
	// Nobody but this agent needs it, and it opens the attempt's bytes.
	if _, err := at.mask.Add("lease token", []byte(at.lease.Token)); err != nil {
		return nil, err
	}
	for i, s := range at.spec.Inputs.Secrets {
		name, grant := secretName(s, i), v.Secrets[i].Grant
		ref, err := vault.ParseReference(s.SecretRef)
		if err != nil {
			return values, at.vaultFailure("secret "+name, err)
		}
		got, err := session.Read(ctx, ref, vault.ReadOptions{
			Mount: grant.Mount, Engine: grant.Engine, Parameters: grant.Parameters, AllowUnmasked: grant.AllowUnmasked,
		})
		if err != nil {
			return values, at.vaultFailure("secret "+name, err)
		}
		values = append(values, got)
		fact, err := at.hide(got, grant)
		if err != nil {
			return values, secretDenied(fmt.Errorf("secret %s: %w", name, err))
		}
		fact.Index, fact.Name = i, s.Name
		at.secrets.resolved = append(at.secrets.resolved, fact)
	}
	return values, nil
}

// secretName is how the executor addresses a secret: by its name, or else its place.
func secretName(s domain.SecretInput, i int) string {
	if s.Name == "" {
		return strconv.Itoa(i)
	}
	return s.Name
}

// vaultFailure gives an error of package vault its code. What is not Vault's stays
// what it is: an end of ctx, or the service's refusal of a fact.
func (at *attempt) vaultFailure(doing string, err error) error {
	code := vault.FailureCode(err)
	if code == "" || at.launching.Err() != nil || isPlane(err) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return &secretFailure{domain.FailureCode(code), fmt.Errorf("%s: %w", doing, err)}
}

func isPlane(err error) bool {
	var e *domain.Error
	return errors.As(err, &e) || errors.Is(err, errUnrecorded)
}

// errUnrecorded says that a token was not on record, so that it was not used.
var errUnrecorded = errors.New("the token's accessor could not be kept")

// hide makes patterns of a secret and says what the ledger may know of it.
func (at *attempt) hide(s *vault.Secret, grant *policy.SecretGrant) (wire.SecretFact, error) {
	fact := wire.SecretFact{
		Reference: s.Reference.String(), Version: s.Version, Engine: engineOf(s), Mapping: grant.Mapping,
		Accessor: s.Accessor, LeaseID: s.LeaseID,
	}
	at.agent.masks.add(at.mask)
	for _, f := range s.Fields {
		shown := s.Reference
		shown.Version = 0
		what := ""
		if shown.Field == "" {
			what = f.Name
			shown.Field = f.Name
		}
		report, err := at.mask.Add(shown.String(), f.Value.Bytes())
		switch {
		case err == nil:
			fact.Weak = append(fact.Weak, weakOf(what, report)...)
		case grant.AllowUnmasked && unmaskable(err):
			fact.Unmasked = true
			fact.Weak = append(fact.Weak, labelled(what, "is not masked"))
		case what != "" && f.Value.Len() < vault.MinMaskable && unmaskable(err):
			// Vault let it through: it is a port or a type beside the secret.
			fact.Weak = append(fact.Weak, labelled(what, "too short to be masked"))
		default:
			return fact, fmt.Errorf("%s: %w", s.Reference, err)
		}
	}
	return fact, nil
}

func unmaskable(err error) bool {
	return errors.Is(err, masker.ErrTooShort) || errors.Is(err, masker.ErrBlank) || errors.Is(err, masker.ErrEmpty)
}

// engineOf words an engine as policy does.
func engineOf(s *vault.Secret) string {
	switch {
	case s.Version > 0:
		return vault.EngineKV2
	case s.Engine == "kv", s.Engine == "generic":
		return vault.EngineKV1
	}
	return s.Engine
}

func weakOf(what string, r masker.Report) []string {
	var out []string
	if r.Weak != "" {
		out = append(out, labelled(what, r.Weak))
	}
	for _, x := range r.Rejected {
		if what == "" {
			out = append(out, x.What+": "+x.Reason)
		} else {
			out = append(out, what+"/"+x.What+": "+x.Reason)
		}
	}
	return out
}

func labelled(what, reason string) string {
	if what == "" {
		return "the value: " + reason
	}
	return what + ": " + reason
}

// bounded is what a fact takes: 50 entries of 200 bytes. Names of parts come from
// the secret itself, so they are masked, and before they are cut: half of a secret
// would not be found.
func bounded(mask *masker.Set, weak []string) []string {
	const most, size = 50, 200
	if more := len(weak) - most; more > 0 {
		weak = append(weak[:most-1:most-1], fmt.Sprintf("and %d more", more+1))
	}
	for i, w := range weak {
		weak[i] = clip(mask.String(w), size)
	}
	return weak
}

// tellResolved records each secret, without its value, before anything that could
// show it is started.
func (at *attempt) tellResolved(ctx context.Context) error {
	for i := range at.secrets.resolved {
		f := &at.secrets.resolved[i]
		f.Weak = bounded(at.mask, f.Weak)
		at.note("secret_resolved", map[string]any{"name": f.Name, "reference": f.Reference, "version": f.Version, "weak": f.Weak, "unmasked": f.Unmasked})
		if err := at.tell(ctx, wire.FactRequest{SecretResolved: f}); err != nil {
			return err
		}
	}
	return nil
}

// writeSecrets puts each secret into a file of its own.
func (at *attempt) writeSecrets(values []*vault.Secret) (map[string]string, error) {
	files := map[string]string{}
	for i, s := range at.spec.Inputs.Secrets {
		name := secretName(s, i)
		if _, twice := files[name]; twice {
			return nil, secretDenied(fmt.Errorf("two secrets of the job are called %s; name each", name))
		}
		content, wipe := contentOf(values[i])
		path, err := at.secrets.dir.Write(name, content)
		wipe()
		if err != nil {
			return nil, &secretFailure{domain.CodeStorageUnavailable, fmt.Errorf("secret %s: %w", name, err)}
		}
		files[name] = path
	}
	return files, nil
}

// removeSecretFiles takes the files away. Nothing of the job runs any more.
func (at *attempt) removeSecretFiles() {
	if at.secrets.dir == nil {
		return
	}
	if err := at.secrets.dir.Remove(); err != nil {
		at.log.Error("secrets of the attempt are left in memory; the next agent removes them", "error", err)
		at.note("secrets_left", map[string]any{"error": err.Error()})
	}
}

// forgetSecrets wipes what the attempt knew. Nothing passes its masker any more.
func (at *attempt) forgetSecrets() {
	at.secrets.prints.forget()
	at.agent.masks.remove(at.mask)
	// It has no error: a closed set stays closed.
	_ = at.mask.Close()
}

// unresolved is the end of an attempt whose secrets could not be had.
func (at *attempt) unresolved(err error) ending {
	e := at.notLaunched(err)
	if f := (*secretFailure)(nil); errors.As(err, &f) && e.result == string(domain.CodeStartAbandoned) {
		e.result = string(f.code)
	}
	e.text = "the executor was not started: " + err.Error()
	return e
}

func ownerOf(c *shim.Credential) *secretdir.Owner {
	if c == nil {
		return nil
	}
	return &secretdir.Owner{UID: c.UID, GID: c.GID}
}

// clearSecrets removes what an earlier agent left in memory. Its processes have
// ended.
func (a *Agent) clearSecrets() {
	if a.private == nil {
		return
	}
	if err := a.private.Clear(); err != nil {
		a.config.Log.Error("secrets of earlier attempts are left", "error", err)
		a.private, a.privateErr = nil, err
	}
}

// secretsTTL is how long an attempt's token may live: until its bytes are sent.
func (at *attempt) secretsTTL() time.Duration {
	c := at.journal.Clocks
	return time.Duration(c.RunSeconds+c.StopSeconds+c.UploadSeconds) * time.Second
}
