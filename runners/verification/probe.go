package verification

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/runners"
)

// prober makes one try. The context ends with the try's own time; the
// observation has one judgement for each of expectations().
type prober interface {
	expectations() []named
	try(ctx context.Context) observation
}

// observation is what one try saw.
type observation struct {
	seen    bool   // the peer answered in some way
	class   string // of the error, empty if none
	latency time.Duration
	attrs   map[string]any
	judged  []judgement
	denied  bool // policy refused something; nothing was dialled there
	// told is for assertions only and never kept: it holds what the peer sent. cut is
	// the class of the error that ended it early.
	told map[string]any
	cut  string
}

// unit is one probe of an attempt with all that its loop needs.
type unit struct {
	name     string // of the probe inside a capability, else empty
	plan     plan
	prober   prober
	evidence string // type of its evidence
	expect   []named
}

// Types of evidence.
const (
	apiCheck     = "api_check"
	commandCheck = "command_check"
)

// refusal: policy does not give what the job wants, or what it gives is of no use.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refused(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// Probe tries until every expectation has passed, the deadline has come, the
// retry policy's attempts are used up, or the context ends. Whatever happens,
// the samples made are an artifact, and each expectation is one evidence.
func Probe(ctx context.Context, req Request, rec Recorder) Outcome {
	g := newGuard(req)
	units, err := newUnits(req, g)
	report(g, rec)
	var no *refusal
	switch {
	case errors.As(err, &no):
		rec.Logf("policy: %s", no)
		return Outcome{Status: StatusFailed, FailureCode: FailurePolicyDenied, RecommendedCategory: CategoryPolicy}
	case errors.Is(err, errNoExecutor):
		rec.Logf("%s", err)
		return Outcome{Status: StatusFailed, FailureCode: FailureExecutorCrashed, RecommendedCategory: CategoryInfrastructure}
	case err != nil:
		rec.Logf("inputs rejected: %s", err)
		return Outcome{Status: StatusFailed, FailureCode: FailureInputsRejected, RecommendedCategory: CategoryValidation}
	}
	samples, err := createSamples(req.OutputDir)
	if err != nil {
		rec.Logf("cannot keep samples: %s", err)
		return Outcome{Status: StatusFailed, FailureCode: FailureExecutorCrashed, RecommendedCategory: CategoryInfrastructure}
	}
	for _, u := range units {
		label := req.Action
		if u.name != "" {
			label += " " + u.name
		}
		rec.Logf("probing %s port %d (resource %s) with %s for at most %s, %d stable successes needed",
			u.plan.target.Host, u.plan.target.Port, u.plan.target.ResourceID, label, u.plan.deadline, u.plan.retry.StableSuccesses)
	}
	p := newProbing(units, g, rec, samples)
	p.run(ctx)
	return p.finish()
}

// newUnits makes the probes of the action. Its error is a *refusal, errNoExecutor, or
// says what is wrong with the inputs.
func newUnits(req Request, g *guard) ([]unit, error) {
	switch req.Action {
	case runners.VerifyCustomProbe:
		if err := checkParameters(req.Action, req.Parameters); err != nil {
			return nil, err
		}
		u, err := newCustomUnit(req, req.Parameters, g)
		if err != nil {
			return nil, err
		}
		return []unit{u}, nil
	case runners.VerifyResourceCapability:
		return newCapabilityUnits(req, g)
	}
	u, err := newPlainUnit(req, g)
	if err != nil {
		return nil, err
	}
	return []unit{u}, nil
}

// newPlainUnit is a probe whose expectations stand in the parameters.
func newPlainUnit(req Request, g *guard) (unit, error) {
	p, err := newPlan(req)
	if err != nil {
		return unit{}, err
	}
	pr, err := newProber(req, p, g)
	if err != nil {
		return unit{}, err
	}
	return unit{plan: p, prober: pr, evidence: apiCheck, expect: pr.expectations()}, nil
}

func newProber(req Request, p plan, g *guard) (prober, error) {
	switch req.Action {
	case runners.VerifyHTTPEndpoint:
		return newHTTPProber(req, p, g)
	case runners.VerifyTCPConnect:
		return newTCPProber(req, p, g)
	case runners.VerifyPostgresReady:
		return newPostgresProber(req, p, g)
	}
	return nil, fmt.Errorf("this executor has no probe for the action %q", req.Action)
}

// report passes on the decisions that were made since it was last called.
func report(g *guard, rec Recorder) {
	for _, d := range g.takeDecisions() {
		rec.PolicyDecided(d.subject, d.verdict)
		for _, reason := range d.verdict.Reasons {
			rec.Logf("policy refuses %s: %s (%s)", d.subject, reason.Code, reason.Detail)
		}
	}
}
