package receiver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Result is what this control plane reads of an ExecutionResult. It ignores fields
// that it does not know, so that later ones do no harm.
type Result struct {
	OperationID string  `json:"operation_id"`
	PlanNodeID  string  `json:"plan_node_id"`
	AttemptID   string  `json:"attempt_id"`
	Status      string  `json:"status"` // succeeded, failed, cancelled, timed_out
	FailureCode string  `json:"failure_code"`
	Contract    []Item  `json:"contract"`
	Artifacts   []Named `json:"artifacts"`
	Evidence    []Named `json:"evidence"`
	Bundle      struct {
		URI   string `json:"uri"`
		State string `json:"state"`
	} `json:"raw_output_bundle"`
}

// Item is one promise of the output contract and what became of it.
type Item struct {
	Kind    string `json:"kind"` // capability, artifact, evidence
	Name    string `json:"name"`
	Verdict string `json:"verdict"` // confirmed, missing, failed
	Ref     string `json:"ref"`
}

// Named is an artifact or a piece of evidence.
type Named struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Capability string `json:"capability"`
	Result     string `json:"result"` // of evidence: passed, failed, inconclusive
}

// The verdicts.
const (
	Confirmed = "confirmed"
	Missing   = "missing"
	Failed    = "failed"
)

// ParseResult reads a callback's body.
func ParseResult(body []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(body, &r); err != nil {
		return r, fmt.Errorf("no JSON: %w", err)
	}
	if r.AttemptID == "" || r.Status == "" {
		return r, errors.New("attempt_id or status is missing")
	}
	return r, nil
}

// ContractVerdict is failed if one item failed, else missing if one is missing,
// else confirmed.
func (r Result) ContractVerdict() string {
	verdict := Confirmed
	for _, c := range r.Contract {
		switch c.Verdict {
		case Confirmed:
		case Failed:
			return Failed
		default:
			verdict = Missing
		}
	}
	return verdict
}

// Judge is an item's verdict as its artifacts and evidence give it, and their ids:
// confirmed is an artifact that is there, or evidence that passed and none that
// failed; failed is any that failed; missing is none, or only inconclusive ones.
func (r Result) Judge(c Item) (verdict string, refs []string) {
	if c.Kind == "artifact" {
		for _, a := range r.Artifacts {
			if a.Name == c.Name {
				return Confirmed, []string{a.ID}
			}
		}
		return Missing, nil
	}
	verdict = Missing
	for _, e := range r.Evidence {
		if c.Kind == "capability" && e.Capability != c.Name || c.Kind == "evidence" && e.Name != c.Name {
			continue
		}
		refs = append(refs, e.ID)
		switch {
		case e.Result == Failed:
			verdict = Failed
		case e.Result == "passed" && verdict == Missing:
			verdict = Confirmed
		}
	}
	return verdict, refs
}

// Summary is one line for people.
func (r Result) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "attempt %s %s", r.AttemptID, r.Status)
	if r.FailureCode != "" {
		fmt.Fprintf(&b, " (%s)", r.FailureCode)
	}
	fmt.Fprintf(&b, ", contract %s", r.ContractVerdict())
	for _, c := range r.Contract {
		verdict, refs := r.Judge(c)
		fmt.Fprintf(&b, "; %s %s %s", c.Kind, c.Name, c.Verdict)
		if len(refs) > 0 {
			fmt.Fprintf(&b, " by %s", strings.Join(refs, " "))
		}
		if verdict != c.Verdict {
			fmt.Fprintf(&b, " BUT its evidence says %s", verdict)
		}
	}
	fmt.Fprintf(&b, "; bundle %s %s", r.Bundle.State, r.Bundle.URI)
	return b.String()
}
