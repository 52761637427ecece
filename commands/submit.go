package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gowebpki/jcs"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// Submitted says what became of a submit.
type Submitted struct {
	Receipt    eventstore.Receipt
	SpecDigest string // hex, of the RFC 8785 form
	First      bool   // false: this very spec was submitted before
}

// DryRun is what a submit would lead to.
type DryRun struct {
	Violations []domain.Violation
	Policy     policy.Verdict // the zero verdict where there are violations
}

// SpecDigest is the SHA-256 of the RFC 8785 form of a JobSpec as received:
// defaults are not filled in.
func SpecDigest(raw []byte) (string, error) {
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return "", &domain.Error{Kind: domain.KindMalformed, Code: "not_canonical", Message: "the JobSpec has no canonical JSON form", Err: err}
	}
	d := sha256.Sum256(canonical)
	return hex.EncodeToString(d[:]), nil
}

// Submit makes an attempt from a JobSpec. The attempt_id is the command's id:
// the same id with the same digest gives the first receipt, with another a
// conflict that names both digests.
func (s *Service) Submit(ctx context.Context, m Meta, spec *domain.JobSpec, raw []byte) (Submitted, error) {
	digest, err := SpecDigest(raw)
	if err != nil {
		return Submitted{}, err
	}
	if spec.AttemptID.IsZero() {
		return Submitted{}, invalidSpec([]domain.Violation{{Pointer: "/attempt_id", Code: "required", Message: "is required: a new UUID for this attempt"}})
	}
	m.CommandID = domain.NewID[domain.CommandID](spec.AttemptID.UUID())
	if _, err := hex.Decode(m.Digest[:], []byte(digest)); err != nil {
		return Submitted{}, fmt.Errorf("digest of the JobSpec: %w", err)
	}

	leave := func() {}
	defer func() { leave() }()
	admitted := false
	specRef, texts := salted(raw)
	// What was carried out before is answered before rules, limits and policy are
	// asked: they may say something else today.
	r, err := carryOut(ctx, s, attempts, AttemptStream(spec.AttemptID), m, eventstore.ClassSubmit,
		func(a domain.Attempt, now time.Time) (decision, error) {
			if v := s.check(spec); len(v) > 0 {
				return decision{}, invalidSpec(v)
			}
			if err := s.checkRetryOf(ctx, spec); err != nil {
				return decision{}, err
			}
			inputs, err := s.resolveInputs(ctx, spec)
			if err != nil {
				return decision{}, err
			}
			if !admitted {
				out, err := s.admit(ctx)
				if err != nil {
					return decision{}, err
				}
				leave, admitted = out, true
			}
			b := s.Policy() // one bundle for the whole decision, whatever becomes active meanwhile
			in := runners.PolicyInput(spec)
			verdict := b.Decide(in)
			if err := s.checkPackage(ctx, in, b, verdict); err != nil {
				return decision{}, err
			}
			retry, _ := b.Retry(spec.Controls.RetryPolicyRef)
			events, err := domain.DecideAttempt(a, domain.Submit{
				Created: s.createdEvent(spec, digest, specRef, retry, inputs), Policy: policyEvent("submit", verdict), Privileges: verdict.Privileges}, now)
			return decision{events, texts}, err
		})
	if err != nil {
		return Submitted{}, reusedSubmit(err)
	}
	crashpoint.Here("submit.reply")
	return Submitted{Receipt: r.Receipt, SpecDigest: digest, First: r.Changed}, nil
}

// reusedSubmit gives a submit of another spec under the same id its own name. The
// digest of a submit is its spec's.
func reusedSubmit(err error) error {
	var e *domain.Error
	if errors.As(err, &e) && e.Code == domain.ErrCommandReused.Code {
		return domain.ErrAttemptExists.With("stored_sha256", e.Details["stored_sha256"]).With("sent_sha256", e.Details["sent_sha256"])
	}
	return err
}

// DryRun says what a submit would lead to and writes nothing.
func (s *Service) DryRun(ctx context.Context, spec *domain.JobSpec, raw []byte) (DryRun, error) {
	if _, err := SpecDigest(raw); err != nil {
		return DryRun{}, err
	}
	if v := s.check(spec); len(v) > 0 {
		return DryRun{Violations: v}, nil
	}
	err := s.checkRetryOf(ctx, spec)
	if err == nil {
		_, err = s.resolveInputs(ctx, spec)
	}
	b, in := s.Policy(), runners.PolicyInput(spec)
	verdict := b.Decide(in)
	if err == nil {
		err = s.checkPackage(ctx, in, b, verdict)
	}
	var bad *domain.Error
	switch {
	case errors.As(err, &bad) && bad.Kind == domain.KindInvalid:
		return DryRun{Violations: bad.Violations}, nil
	case err != nil:
		return DryRun{}, err
	}
	return DryRun{Policy: verdict}, nil
}

func invalidSpec(v []domain.Violation) error {
	return &domain.Error{Kind: domain.KindInvalid, Code: "job_spec_invalid", Message: "the JobSpec breaks rules",
		Next: "repair every place named and submit again", Violations: v}
}

// check gathers every violation: of the closed shape, of the action, of its
// parameters.
func (s *Service) check(spec *domain.JobSpec) []domain.Violation {
	v := append(spec.Validate(s.Limits), malformedReferences(spec)...)
	action, known := s.Actions.Lookup(spec.Action)
	extension := runners.IsExtension(spec.Action) && s.Policy().ApprovesExtension(spec.Action)
	switch {
	case spec.Action == "":
	case !known && !extension:
		v = append(v, domain.Violation{Pointer: "/action", Code: "unknown", Message: "is not an action of this service; GET /v1/actions lists them"})
	default:
		for _, p := range s.Actions.ValidateParameters(spec.Action, spec.Inputs.Parameters) {
			v = append(v, domain.Violation{Pointer: "/inputs/parameters" + p.Pointer, Code: p.Keyword, Message: p.Message})
		}
	}
	if len(spec.Target.Resources) == 0 && (!known || action.NeedsResources) {
		v = append(v, domain.Violation{Pointer: "/target/resources", Code: "required", Message: "needs at least one resource"})
	}
	if known && action.Destructive && !spec.Controls.Destructive {
		v = append(v, domain.Violation{Pointer: "/controls/destructive", Code: "required", Message: "must be true: this action is destructive"})
	}
	if known && spec.Controls.TimeoutSeconds > 0 && time.Duration(spec.Controls.TimeoutSeconds)*time.Second < action.MinTimeout {
		v = append(v, domain.Violation{Pointer: "/controls/timeout_seconds", Code: "range", Message: fmt.Sprintf("is too short for %s: at least %d", spec.Action, int(action.MinTimeout/time.Second))})
	}
	if ref := spec.Controls.CallbackRef; ref != "" && (s.Endpoint == nil || !s.Endpoint(ref)) {
		v = append(v, domain.Violation{Pointer: "/controls/callback_ref", Code: "reference", Message: "names no configured callback endpoint; an operator adds it to the file of --callbacks, or leave it out and read GET /v1/results"})
	}
	if len(v) == 0 {
		v = append(v, s.tooLarge(spec)...)
	}
	if known && len(v) == 0 {
		_, bad := runners.Targets(spec.Action, spec.Inputs.Parameters, runners.ResourcesOf(spec))
		for _, p := range bad {
			v = append(v, domain.Violation{Pointer: p.Pointer, Code: p.Keyword, Message: p.Message})
		}
	}
	return domain.SortViolations(v)
}

// malformedReferences finds what begins like a reference and is none. The text is
// never repeated: it may be a value that was put there by mistake.
func malformedReferences(spec *domain.JobSpec) (v []domain.Violation) {
	for i, x := range spec.Inputs.Secrets {
		if !domain.LooksLikeReference(x.SecretRef) {
			continue // the rules of the shape say so
		}
		if _, err := policy.ParseSecretReference(x.SecretRef); err != nil {
			v = append(v, domain.Violation{Pointer: fmt.Sprintf("/inputs/secrets/%d/secret_ref", i), Code: "reference",
				Message: "is no reference vault://<mount>/<path>[#field][?version=n]: " + err.Error()})
		}
	}
	return v
}

// tooLarge: what the ledger records of a spec must fit into one event.
func (s *Service) tooLarge(spec *domain.JobSpec) []domain.Violation {
	var zero [32]byte
	_, _, b, err := domain.EncodeEvent(s.createdEvent(spec, hex.EncodeToString(zero[:]), domain.TextRef(hex.EncodeToString(zero[:])), policy.RetryPolicy{}, largestInputs(spec)))
	if err == nil && len(b) <= eventstore.MaxPayload {
		return nil
	}
	return []domain.Violation{{Pointer: "", Code: "too_large", Message: fmt.Sprintf(
		"its resources, labels, references and output contract take %d bytes in the ledger, at most %d; split the job", len(b), eventstore.MaxPayload)}}
}

// checkRetryOf: retry_of names an earlier attempt of the same node run.
func (s *Service) checkRetryOf(ctx context.Context, spec *domain.JobSpec) error {
	if spec.RetryOf == nil {
		return nil
	}
	op, node, err := s.Index.Node(ctx, *spec.RetryOf)
	switch {
	case isNotFound(err):
		return invalidSpec([]domain.Violation{{Pointer: "/retry_of", Code: "reference", Message: "names no attempt"}})
	case err != nil:
		return err
	case op != spec.OperationID || node != spec.PlanNodeID:
		return invalidSpec([]domain.Violation{{Pointer: "/retry_of", Code: "reference", Message: "names an attempt of another node run: operation_id and plan_node_id must be the same"}})
	}
	return nil
}

// admit refuses a submit while too many attempts wait. Reports, completions and
// stops never come here.
func (s *Service) admit(ctx context.Context) (leave func(), err error) {
	if s.MaxQueue == 0 {
		return func() {}, nil
	}
	return s.admission.enter(ctx, s.MaxQueue, s.Index.QueueDepth)
}

func policyEvent(at string, v policy.Verdict) domain.PolicyDecided {
	e := domain.PolicyDecided{At: at, Verdict: "deny", BundleDigest: v.BundleDigest, InputDigest: v.InputDigest, Rules: v.Rules}
	if v.Allow {
		e.Verdict = "allow"
	}
	for _, r := range v.Reasons {
		e.Reasons = append(e.Reasons, r.Code)
	}
	return e
}

func (s *Service) createdEvent(spec *domain.JobSpec, digest string, text domain.TextRef, retry policy.RetryPolicy, inputs []domain.InputArtifact) domain.Created {
	e := domain.Created{
		AttemptID: spec.AttemptID, OperationID: spec.OperationID, PlanNodeID: spec.PlanNodeID, RetryOf: spec.RetryOf,
		SpecDigest: digest, SpecText: text, JobType: spec.JobType, Action: spec.Action, Environment: spec.Target.Environment,
		RequestedBy: spec.RequestedBy, Labels: spec.Labels, Contract: spec.OutputContract, Secrets: spec.Inputs.Secrets,
		Artifacts: inputs, RetryPolicy: spec.Controls.RetryPolicyRef, Commands: spec.Controls.AllowedCommandsRef,
		Operation: spec.Controls.OperationPolicyRef, Callback: spec.Controls.CallbackRef, Destructive: spec.Controls.Destructive,
		Priority: spec.Controls.Priority, StorageBase: s.StorageBase,
		Runner: domain.RunnerRequest{Name: spec.RunnerName(), Isolation: spec.Isolation()},
		Clocks: domain.EffectiveClocks(spec, s.Profile, s.Limits, retry.Interval),
	}
	if spec.Runner != nil {
		e.Runner.Requirements = spec.Runner.Requirements
	}
	for _, r := range spec.Target.Resources {
		e.Resources = append(e.Resources, domain.CreatedResource{ResourceID: r.ResourceID, ResourceType: r.ResourceType})
	}
	return e
}
