package ansible

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// checks collects what tasks verify: a task called "verify: <name>", or tagged
// "verify:<name>", is evidence of that name. A tag "capability:<name>" says of
// which capability.
type checks struct {
	names []string
	by    map[string]*check
	tasks map[string]string // a task's uuid to its name, resolved when it began
	left  int
}

// check is one evidence: what became of its tasks on each host.
type check struct {
	name, capability string
	at               time.Time
	hosts            map[string]string // host to passed, failed or inconclusive
}

const (
	maxChecks    = 500
	verifyPrefix = "verify:"
)

func newChecks() *checks { return &checks{by: map[string]*check{}, tasks: map[string]string{}} }

// begin notes a task's name as it was resolved.
func (c *checks) begin(e event) {
	if name, _ := verifies(e.Task, e.Tags); name != "" {
		c.tasks[e.TaskUUID] = name
		c.of(e, name)
	}
}

// verifies gives the evidence that a task stands for, "" for none.
func verifies(task string, tags []string) (name, capability string) {
	for _, tag := range tags {
		if rest, ok := strings.CutPrefix(tag, verifyPrefix); ok && name == "" {
			name = strings.TrimSpace(rest)
		}
		if rest, ok := strings.CutPrefix(tag, "capability:"); ok {
			capability = strings.TrimSpace(rest)
		}
	}
	if name == "" {
		if _, after, ok := strings.Cut(task, " : "); ok {
			task = after // "role : task"
		}
		if rest, ok := strings.CutPrefix(task, verifyPrefix); ok {
			name = strings.TrimSpace(rest)
		}
	}
	return evidenceName(name), evidenceName(capability)
}

// evidenceName keeps to the protocol's form of a name.
func evidenceName(s string) string { return strings.TrimSpace(phaseName(s)) }

func (c *checks) of(e event, name string) *check {
	if k := c.by[name]; k != nil {
		return k
	}
	if len(c.names) == maxChecks {
		c.left++
		return nil
	}
	_, capability := verifies(e.Task, e.Tags)
	k := &check{name: name, capability: capability, hosts: map[string]string{}}
	c.names = append(c.names, name)
	c.by[name] = k
	return k
}

func (c *checks) end(e event, result string) {
	name := c.tasks[e.TaskUUID]
	if name == "" {
		if name, _ = verifies(e.Task, e.Tags); name == "" {
			return
		}
	}
	k := c.of(e, name)
	if k == nil {
		return
	}
	word := map[string]string{"ok": "passed", "failed": "failed"}[result]
	if word == "" {
		word = "inconclusive"
	}
	// Several tasks may stand for one name: the worst counts.
	if before := k.hosts[e.Host]; worse(word, before) {
		k.hosts[e.Host] = word
	}
	if e.Time.After(k.at) {
		k.at = e.Time
	}
}

// worse orders failed before passed before inconclusive: a skipped task says
// nothing against one that was looked at.
func worse(word, before string) bool {
	rank := []string{"", "inconclusive", "passed", "failed"}
	return slices.Index(rank, word) > slices.Index(rank, before)
}

// report sends one evidence for each name: failed if it is on any host, passed if
// it is on every one, else inconclusive.
func (c *checks) report(control *executor.Control, now time.Time) error {
	for _, name := range c.names {
		k := c.by[name]
		result := "passed"
		if len(k.hosts) == 0 {
			result = "inconclusive"
		}
		for _, word := range k.hosts {
			if word == "failed" {
				result = word
			} else if word == "inconclusive" && result == "passed" {
				result = word
			}
		}
		at := k.at
		if at.IsZero() {
			at = now
		}
		shown := map[string]string{}
		for _, h := range sortedNames(k.hosts)[:min(len(k.hosts), 100)] {
			shown[h] = k.hosts[h]
		}
		detail, err := json.Marshal(map[string]any{"hosts": shown, "count": len(k.hosts)})
		if err != nil {
			return fmt.Errorf("encoding evidence %s: %w", name, err)
		}
		if err := control.Evidence(executor.Evidence{
			Name: name, EvidenceType: "command_check", Capability: k.capability, Result: result,
			ObservedAt: at.UTC(), Source: artifactEvents, Detail: detail,
		}); err != nil {
			return err
		}
	}
	return nil
}
