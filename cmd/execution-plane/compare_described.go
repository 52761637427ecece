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
	"github.com/platform-core/execution-plane-service/internal/strictjson"
	"github.com/platform-core/execution-plane-service/runners"
)

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
			d.flatten(part, strictjson.AppendPointer(at, k), e)
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
	all, err := eventsOf(s, api, d.id, 0, 0)
	if err != nil {
		return err
	}
	for _, e := range all {
		// What a newer service wrote is none of the facts that are compared here.
		if event, err := domain.DecodeEvent(e.Type, e.Schema, e.PayloadBase64); err == nil {
			d.fact(event)
		}
	}
	return nil
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
	return io.ReadAll(io.LimitReader(o, smallArtifactBytes+1))
}
