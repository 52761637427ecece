package ansible

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/runners"
)

// Names of what a run leaves behind.
const (
	artifactEvents    = "ansible_events"
	artifactRecap     = "ansible_recap"
	artifactHosts     = runners.ArtifactAnsibleHosts
	artifactFacts     = "ansible_facts"
	artifactChanges   = "ansible_changes"
	artifactInventory = "ansible_inventory"
)

// recap is the summary of a run.
type recap struct {
	Action      string                `json:"action"`
	Version     string                `json:"ansible_core"`
	Complete    bool                  `json:"complete"` // false: the run did not come to its own end
	Code        *int                  `json:"code"`
	CheckMode   bool                  `json:"check_mode,omitempty"`
	Plays       []playEnd             `json:"plays"`
	Totals      hostCounts            `json:"totals"`
	Hosts       map[string]hostCounts `json:"hosts"`
	FailedTasks []taskEnd             `json:"failed_tasks"`
	Interrupted []remoteEnd           `json:"interrupted,omitempty"`
	LeftOut     int                   `json:"left_out,omitempty"` // entries that found no room here
	Trouble     string                `json:"trouble,omitempty"`
}

// hostLists are the hosts by what became of them.
type hostLists struct {
	OK          []string `json:"ok"`
	Changed     []string `json:"changed"`
	Failed      []string `json:"failed"`
	Unreachable []string `json:"unreachable"`
	NotReached  []string `json:"not_run"` // hosts of the inventory that no play touched
}

// report leaves the run's files and evidence.
func (a *attempt) report(r *run) error {
	if err := a.control.Artifact(executor.Artifact{
		Name: artifactEvents, ArtifactType: "ansible_event_stream", Path: artifactEvents + ".jsonl",
		Sensitivity: executor.Internal, MediaType: "application/x-ndjson",
	}); err != nil {
		return err
	}
	if err := a.leave(artifactRecap, "ansible_recap", a.recap(r)); err != nil {
		return err
	}
	if err := a.leave(artifactHosts, "ansible_host_lists", a.hostLists(r.tally)); err != nil {
		return err
	}
	if a.checkMode() || a.p.Diff {
		if err := a.leave(artifactChanges, "ansible_change_summary", changeSummary(r.tally)); err != nil {
			return err
		}
	}
	if len(r.tally.custom) > 0 {
		if err := a.leaveFacts(r.tally.custom); err != nil {
			return err
		}
	}
	return r.tally.checks.report(a.control, time.Now())
}

func (a *attempt) recap(r *run) recap {
	out := recap{
		Action: a.task.Action, Version: clip(r.tally.version, 40), Complete: r.tally.ended && r.trouble() == nil, CheckMode: a.checkMode(),
		Plays: r.tally.plays, Hosts: r.tally.counts(), FailedTasks: r.tally.bad, Interrupted: r.interrupted,
		LeftOut: r.tally.left + r.tally.checks.left,
	}
	if r.code >= 0 {
		out.Code = &r.code
	}
	if err := r.trouble(); err != nil {
		out.Trouble = err.Error()
	}
	for _, c := range out.Hosts {
		out.Totals.OK += c.OK
		out.Totals.Changed += c.Changed
		out.Totals.Failed += c.Failed
		out.Totals.Unreachable += c.Unreachable
		out.Totals.Skipped += c.Skipped
		out.Totals.Rescued += c.Rescued
		out.Totals.Ignored += c.Ignored
	}
	return out
}

func (a *attempt) hostLists(t *tally) hostLists {
	counts := t.counts()
	out := hostLists{
		Changed: t.hostsWhere(changed), Failed: t.hostsWhere(failed), Unreachable: t.hostsWhere(unreachable),
		OK:         t.hostsWhere(func(c hostCounts) bool { return !failed(c) && !unreachable(c) }),
		NotReached: []string{},
	}
	for _, h := range a.inventory.hosts {
		if _, ok := counts[h.name]; !ok {
			out.NotReached = append(out.NotReached, h.name)
		}
	}
	slices.Sort(out.NotReached)
	return out
}

// changeSummary is what changed, or in check mode would change.
func changeSummary(t *tally) any {
	files, added, removed := 0, 0, 0
	for _, c := range t.changes {
		files += len(c.Files)
		for _, f := range c.Files {
			added += f.Added
			removed += f.Removed
		}
	}
	changes := t.changes
	if changes == nil {
		changes = []changeEnd{}
	}
	return map[string]any{
		"tasks": len(changes), "files": files, "lines_added": added, "lines_removed": removed,
		"hosts": t.hostsWhere(changed), "changes": changes,
	}
}

// leave writes a JSON file into the output folder and announces it.
func (a *attempt) leave(name, kind string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	file := name + ".json"
	if err := os.WriteFile(filepath.Join(a.task.OutputDir, file), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return a.control.Artifact(executor.Artifact{
		Name: name, ArtifactType: kind, Path: file, Sensitivity: executor.Internal, MediaType: "application/json",
	})
}

// maxInlineFacts is the protocol's bound of an inline output, in bytes.
const maxInlineFacts = 4 << 10

// leaveFacts hands on what set_stats generated: of the whole run, and per host.
func (a *attempt) leaveFacts(custom map[string]json.RawMessage) error {
	facts := map[string]any{}
	hosts := map[string]json.RawMessage{}
	for name, data := range custom {
		if name == "_run" {
			facts["run"] = data
		} else {
			hosts[name] = data
		}
	}
	facts["hosts"] = hosts
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(facts); err != nil {
		return fmt.Errorf("encoding the generated facts: %w", err)
	}
	out := executor.Output{Name: artifactFacts, ArtifactType: "ansible_facts", Sensitivity: executor.Internal, MediaType: "application/json"}
	if line := bytes.TrimSpace(b.Bytes()); len(line) <= maxInlineFacts {
		out.Inline = line
		return a.control.Output(out)
	}
	out.Path = artifactFacts + ".json"
	if err := os.WriteFile(filepath.Join(a.task.OutputDir, out.Path), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the generated facts: %w", err)
	}
	return a.control.Output(out)
}
