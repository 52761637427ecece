package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

type compareCmd struct {
	ID    string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Other string `arg:"" optional:"" help:"The attempt to compare it with; if not given, the one that it repeats (retry_of)."`
}

// comparison is what compare answers with -o json.
type comparison struct {
	A           domain.AttemptID `json:"a"` // the older one
	B           domain.AttemptID `json:"b"`
	Differences []difference     `json:"differences"`
	Same        []string         `json:"same"` // parts in which the two do not differ
	NotCompared []string         `json:"not_compared,omitempty"`
}

// difference is one thing in which two attempts differ; what one of them has not is
// empty.
type difference struct {
	Part string `json:"part"`
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// The parts of an attempt, in the order in which a person asks for them.
const (
	partJob       = "job"
	partPolicy    = "policy"
	partInputs    = "inputs"
	partSecrets   = "secrets"
	partRunner    = "runner"
	partOutcome   = "outcome"
	partContract  = "contract"
	partHosts     = "hosts"
	partEvidence  = "evidence"
	partArtifacts = "artifacts"
)

var parts = []string{partJob, partPolicy, partInputs, partSecrets, partRunner, partOutcome, partContract, partHosts, partEvidence, partArtifacts}

func (c *compareCmd) Run(s *session) error {
	api, b, err := s.target(c.ID)
	if err != nil {
		return err
	}
	a, err := c.other(s, api, b)
	if err != nil {
		return err
	}
	var of [2]*described
	for i, id := range []domain.AttemptID{a, b} {
		if of[i], err = describe(s, api, id); err != nil {
			return err
		}
	}
	if of[1].created.Before(of[0].created) {
		of[0], of[1] = of[1], of[0]
	}
	r := compareAttempts(of[0], of[1])
	if s.isJSON() {
		return s.json(r)
	}
	printComparison(s.out, of[0], of[1], r)
	return nil
}

func (c *compareCmd) other(s *session, api *client.Client, id domain.AttemptID) (domain.AttemptID, error) {
	if c.Other != "" {
		return s.attempt(api, c.Other)
	}
	v, err := api.Attempt(s.ctx, id)
	switch {
	case err != nil:
		return id, err
	case v.RetryOf == nil:
		return id, &exitError{exitUsage, fmt.Errorf("attempt %s repeats no other one; name the one to compare it with: execution-plane compare %s OTHER", short(id), short(id))}
	}
	return *v.RetryOf, nil
}

// described is what there is to say of an attempt, by part and name.
type described struct {
	id      domain.AttemptID
	created time.Time
	line    string // for people
	parts   map[string]map[string]string
	without []string // parts that could not be had, with why
}

func (d *described) say(part, what, value string) {
	if value == "" {
		return
	}
	if d.parts[part] == nil {
		d.parts[part] = map[string]string{}
	}
	if before, ok := d.parts[part][what]; ok && before != value {
		value = before + ", " + value
	}
	d.parts[part][what] = value
}

func (d *described) lack(part, why string) { d.without = append(d.without, part+": "+why) }

func describe(s *session, api *client.Client, id domain.AttemptID) (*described, error) {
	v, err := api.Attempt(s.ctx, id)
	if err != nil {
		return nil, err
	}
	d := &described{id: id, created: v.CreatedAt, parts: map[string]map[string]string{}}
	d.line = fmt.Sprintf("%s  created %s", stateWord(v), v.CreatedAt.Format(time.RFC3339))
	if v.StartedAt != nil && v.FinishedAt != nil {
		d.line += fmt.Sprintf(", ran %s", v.FinishedAt.Sub(*v.StartedAt).Round(time.Millisecond))
	}
	if v.RunnerID != nil {
		d.say(partRunner, "id", v.RunnerID.String())
	}
	for _, part := range []func(*session, *client.Client) error{d.job, d.facts, d.ending, d.left} {
		if err := part(s, api); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// job says what was asked for. The attempt's own name differs always, and says
// nothing.
func (d *described) job(s *session, api *client.Client) error {
	b, err := api.JobSpec(s.ctx, d.id)
	if code := client.CodeOf(err); code == "bundle_quarantined" || code == "erased" {
		d.lack(partJob, code)
		return nil
	}
	if err != nil {
		return err
	}
	var spec map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(b)))
	decoder.UseNumber()
	if err := decoder.Decode(&spec); err != nil {
		return fmt.Errorf("read the JobSpec of %s: %w", d.id, err)
	}
	delete(spec, "attempt_id")
	delete(spec, "retry_of")
	d.flatten(partJob, "", spec)
	return nil
}

// flatten says every leaf of a JSON value by its pointer.
func (d *described) flatten(part, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			d.flatten(part, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), e)
		}
	case []any:
		for i, e := range v {
			d.flatten(part, fmt.Sprintf("%s/%d", at, i), e)
		}
	default:
		if b, err := json.Marshal(v); err == nil {
			d.say(part, at, string(b))
		}
	}
}

// facts says what the stream holds of how the attempt was run.
func (d *described) facts(s *session, api *client.Client) error {
	for after := int64(0); ; {
		page, err := api.AttemptEvents(s.ctx, d.id, after, 1000)
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			after = e.Version
			// What a newer service wrote is none of the facts that are compared here.
			if event, err := domain.DecodeEvent(e.Type, e.Schema, e.PayloadBase64); err == nil {
				d.fact(event)
			}
		}
		if len(page.Items) == 0 || page.Next == "" {
			return nil
		}
	}
}

func (d *described) fact(e domain.Event) {
	switch e := e.(type) {
	case domain.Created:
		for _, in := range e.Artifacts {
			d.say(partInputs, in.Name+" "+in.Ref, in.SHA256)
		}
	case domain.PolicyDecided:
		d.say(partPolicy, "verdict at "+e.At, strings.Join(append([]string{e.Verdict}, e.Reasons...), " "))
		d.say(partPolicy, "bundle", e.BundleDigest)
		d.say(partPolicy, "rules at "+e.At, strings.Join(e.Rules, " "))
	case domain.PrivilegesGranted:
		d.say(partPolicy, "privileges at "+e.At, strings.Join(e.Privileges, " "))
	case domain.Started:
		d.say(partRunner, "isolation", e.Isolation)
	case domain.SecretResolved:
		d.say(partSecrets, e.Name, fmt.Sprintf("%s version %d", e.Reference, e.Version))
	}
}

// ending says how the attempt ended.
func (d *described) ending(s *session, api *client.Client) error {
	raw, pending, err := api.Result(s.ctx, d.id, 0)
	if err != nil {
		return err
	}
	if raw == nil {
		d.say(partOutcome, "status", pending.State)
		return nil
	}
	var r domain.ExecutionResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("read the result of %s: %w", d.id, err)
	}
	d.say(partOutcome, "status", string(r.Status))
	d.say(partOutcome, "category", string(r.ExitSummary.Category))
	d.say(partOutcome, "failure code", string(r.FailureCode))
	d.say(partOutcome, "message", r.ExitSummary.Message)
	d.say(partOutcome, "side effects", r.SideEffects)
	d.say(partOutcome, "bundle", r.RawOutputBundle.State)
	if r.ExitSummary.Code != nil {
		d.say(partOutcome, "exit code", fmt.Sprint(*r.ExitSummary.Code))
	}
	if r.Stop != nil {
		d.say(partOutcome, "stop", fmt.Sprintf("%s, %s", r.Stop.Reason, r.Stop.Proof))
	}
	for _, c := range r.Contract {
		d.say(partContract, c.Kind+" "+c.Name, c.Verdict)
	}
	for _, e := range r.Evidence {
		d.say(partEvidence, e.Name, e.Result)
	}
	return nil
}

// left says what the attempt left behind.
func (d *described) left(s *session, api *client.Client) error {
	all, err := api.Artifacts(s.ctx, d.id)
	if err != nil {
		return err
	}
	for _, a := range all {
		d.say(partArtifacts, a.Name, fmt.Sprintf("%d bytes, sha256 %s", a.Bytes, a.SHA256))
		if a.Name != runners.ArtifactAnsibleHosts {
			continue
		}
		b, err := smallArtifact(s, api, a.ID, a.Inline)
		if err == nil {
			err = d.hosts(b)
		}
		if err != nil {
			d.lack(partHosts, err.Error())
		}
	}
	return nil
}

// hosts says what became of each host of a playbook.
func (d *described) hosts(b []byte) error {
	var lists map[string][]string
	if err := json.Unmarshal(b, &lists); err != nil {
		return fmt.Errorf("the artifact %s is not what the ansible runner writes", runners.ArtifactAnsibleHosts)
	}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		for _, host := range lists[list] {
			d.say(partHosts, host, list)
		}
	}
	return nil
}

// smallArtifactBytes bounds what is read into memory for a comparison.
const smallArtifactBytes = 16 << 20

func smallArtifact(s *session, api *client.Client, id domain.ArtifactID, inline json.RawMessage) ([]byte, error) {
	if len(inline) > 0 {
		return inline, nil
	}
	at, err := api.ArtifactLocation(s.ctx, id)
	if err != nil {
		return nil, err
	}
	if at.Bytes > smallArtifactBytes {
		return nil, errors.New("the artifact is too large to be compared; fetch both: execution-plane artifact get")
	}
	o, err := openObject(s, api, at)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(io.LimitReader(o, smallArtifactBytes))
}

// compareAttempts finds in what two attempts differ. A part that one of them does not
// show is not compared.
func compareAttempts(a, b *described) comparison {
	r := comparison{A: a.id, B: b.id, Differences: []difference{}, Same: []string{}}
	unknown := map[string]bool{}
	for _, d := range []*described{a, b} {
		for _, why := range d.without {
			r.NotCompared = append(r.NotCompared, short(d.id)+" shows no "+why)
			part, _, _ := strings.Cut(why, ":")
			unknown[part] = true
		}
	}
	for _, part := range parts {
		if unknown[part] {
			continue
		}
		of := [2]map[string]string{a.parts[part], b.parts[part]}
		names := map[string]bool{}
		for _, side := range of {
			for name := range side {
				names[name] = true
			}
		}
		before := len(r.Differences)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if of[0][name] != of[1][name] {
				r.Differences = append(r.Differences, difference{part, name, of[0][name], of[1][name]})
			}
		}
		if before == len(r.Differences) && len(names) > 0 {
			r.Same = append(r.Same, part)
		}
	}
	return r
}

// shownValue is how much of a value a person is shown; -o json has all of it.
const shownValue = 48

func printComparison(w io.Writer, a, b *described, r comparison) {
	fmt.Fprintf(w, "a  %s  %s\nb  %s  %s\n", a.id, a.line, b.id, b.line)
	if len(r.Differences) > 0 {
		t := table(w)
		fmt.Fprintln(t, "PART\tWHAT\tA\tB")
		for _, d := range r.Differences {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Part, clipped(d.What), clipped(d.A), clipped(d.B))
		}
		t.Flush()
	}
	if len(r.Same) > 0 {
		fmt.Fprintf(w, "the same in both: %s\n", strings.Join(r.Same, ", "))
	}
	for _, why := range r.NotCompared {
		fmt.Fprintf(w, "! %s\n", printable(why))
	}
}

func clipped(v string) string {
	if v == "" {
		return "–"
	}
	runes := []rune(strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(v)))
	if len(runes) <= shownValue {
		return string(runes)
	}
	return string(runes[:shownValue-1]) + "…"
}
