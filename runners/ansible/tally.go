package ansible

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// hostCounts are those of ansible's recap, for one host.
type hostCounts struct {
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Failed      int `json:"failed"`
	Unreachable int `json:"unreachable"`
	Skipped     int `json:"skipped"`
	Rescued     int `json:"rescued"`
	Ignored     int `json:"ignored"`
}

// taskEnd is one task that did not go well on one host.
type taskEnd struct {
	Host    string `json:"host"`
	Play    string `json:"play,omitempty"`
	Task    string `json:"task"`
	Role    string `json:"role,omitempty"`
	Path    string `json:"path,omitempty"`
	Result  string `json:"result"` // failed or unreachable
	Ignored bool   `json:"ignored,omitempty"`
	Reason  string `json:"reason,omitempty"` // what ansible says, cut short
	Cause   cause  `json:"cause,omitempty"`
}

// playEnd is one play and whether any host was in it.
type playEnd struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern,omitempty"`
	Hosts   bool   `json:"had_hosts"`
}

// changeEnd is one task that changed a file, or would.
type changeEnd struct {
	Host  string     `json:"host"`
	Task  string     `json:"task"`
	Role  string     `json:"role,omitempty"`
	Path  string     `json:"path,omitempty"`
	Files []fileDiff `json:"files,omitempty"`
}

// Bounds of what is kept beside the event stream, which holds everything.
const (
	maxTaskEnds = 1000
	maxChanges  = 2000
	maxReason   = 500
)

// tally counts what the event stream says. One goroutine handles events; progress
// may be read from another.
type tally struct {
	started, ended bool   // playbook_on_start and playbook_on_stats were seen
	version        string // of ansible-core
	stats          map[string]hostCounts
	counted        map[string]*hostCounts // from single events, for a run without stats
	plays          []playEnd
	running        map[string]event // by host: the task that was begun and has not ended
	bad            []taskEnd
	causes         map[string]cause // by host: of its last failure, or of not being reached
	changes        []changeEnd
	changed        map[string]int // host and task to its place in changes
	custom         map[string]json.RawMessage
	checks         *checks
	left           int // entries that found no room
	err            error

	mu    sync.Mutex
	phase string
	last  string
	done  int64
}

func newTally() *tally {
	return &tally{counted: map[string]*hostCounts{}, running: map[string]event{}, causes: map[string]cause{}, changed: map[string]int{}, checks: newChecks()}
}

// handle takes one event.
func (t *tally) handle(e event) {
	switch e.Event {
	case "playbook_on_start":
		t.started, t.version = true, e.Core
	case "playbook_on_play_start":
		t.plays = append(t.plays, playEnd{Name: clip(e.Play, 200), Pattern: clip(e.Pattern, 200), Hosts: true})
		t.show("play: "+e.Play, "", 0)
	case "playbook_on_no_hosts_matched":
		if n := len(t.plays); n > 0 {
			t.plays[n-1].Hosts = false
		}
	case "playbook_on_task_start", "playbook_on_handler_task_start":
		t.checks.begin(e)
		t.show("", "task: "+e.Task, 0)
	case "runner_on_start":
		t.running[e.Host] = e
	case "runner_on_ok", "runner_on_failed", "runner_on_skipped", "runner_on_unreachable":
		t.end(e)
	case "on_file_diff":
		t.change(e)
	case "playbook_on_stats":
		t.close(e)
	}
}

func (t *tally) end(e event) {
	delete(t.running, e.Host)
	result := strings.TrimPrefix(e.Event, "runner_on_")
	c := t.counted[e.Host]
	if c == nil {
		c = &hostCounts{}
		t.counted[e.Host] = c
	}
	switch {
	case result == "skipped":
		c.Skipped++
	case result == "unreachable":
		c.Unreachable++
	case result == "failed" && e.Ignored:
		c.OK++
		c.Ignored++
	case result == "failed":
		c.Failed++
	default:
		c.OK++
		if e.Changed {
			c.Changed++
		}
	}
	if result == "failed" || result == "unreachable" {
		why := causeOf(result, e.Result)
		if !e.Ignored {
			t.causes[e.Host] = why
		}
		if len(t.bad) < maxTaskEnds {
			t.bad = append(t.bad, taskEnd{
				Host: e.Host, Play: e.Play, Task: clip(e.Task, 200), Role: e.Role, Path: e.Path, Result: result, Ignored: e.Ignored,
				Reason: reasonOf(e.Result), Cause: why,
			})
		} else {
			t.left++
		}
	}
	if result == "ok" && e.Changed {
		t.changeOf(e)
	}
	t.checks.end(e, result)
	t.show("", fmt.Sprintf("%s on %s: %s", e.Task, e.Host, result), 1)
}

// reasonOf is what ansible says of a failure, cut short.
func reasonOf(result json.RawMessage) string {
	var r struct {
		Msg json.RawMessage `json:"msg"`
	}
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(r.Msg, &text) != nil {
		text = string(r.Msg)
	}
	return clip(text, maxReason)
}

// changeOf gives the entry of one task on one host.
func (t *tally) changeOf(e event) *changeEnd {
	key := e.Host + "\x00" + e.TaskUUID
	if i, ok := t.changed[key]; ok {
		return &t.changes[i]
	}
	if len(t.changes) == maxChanges {
		t.left++
		return nil
	}
	t.changed[key] = len(t.changes)
	t.changes = append(t.changes, changeEnd{Host: e.Host, Task: clip(e.Task, 200), Role: e.Role, Path: e.Path})
	return &t.changes[len(t.changes)-1]
}

// maxFiles bounds the files of one task's entry.
const maxFiles = 100

func (t *tally) change(e event) {
	if c := t.changeOf(e); c != nil {
		c.Files = append(c.Files, e.Diff[:min(len(e.Diff), max(0, maxFiles-len(c.Files)))]...)
	}
}

func (t *tally) close(e event) {
	t.ended = true
	var hosts map[string]struct {
		OK          int `json:"ok"`
		Changed     int `json:"changed"`
		Failures    int `json:"failures"`
		Unreachable int `json:"unreachable"`
		Skipped     int `json:"skipped"`
		Rescued     int `json:"rescued"`
		Ignored     int `json:"ignored"`
	}
	if err := json.Unmarshal(e.Hosts, &hosts); err != nil {
		t.err = errors.New("the recap has an unknown form")
		return
	}
	t.stats = map[string]hostCounts{}
	for name, h := range hosts {
		t.stats[name] = hostCounts{h.OK, h.Changed, h.Failures, h.Unreachable, h.Skipped, h.Rescued, h.Ignored}
	}
	if len(e.Custom) > 0 && string(e.Custom) != "null" {
		if err := json.Unmarshal(e.Custom, &t.custom); err != nil {
			t.err = errors.New("the generated facts have an unknown form")
		}
	}
}

// counts gives the recap, or what single events add up to where there is none.
func (t *tally) counts() map[string]hostCounts {
	if t.stats != nil {
		return t.stats
	}
	out := map[string]hostCounts{}
	for name, c := range t.counted {
		out[name] = *c
	}
	return out
}

// hostsWhere gives the sorted names of hosts for which keep holds.
func (t *tally) hostsWhere(keep func(hostCounts) bool) []string {
	out := []string{}
	for name, c := range t.counts() {
		if keep(c) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func failed(c hostCounts) bool      { return c.Failed > 0 }
func unreachable(c hostCounts) bool { return c.Unreachable > 0 }
func changed(c hostCounts) bool     { return c.Changed > 0 }

// show notes where the run stands.
func (t *tally) show(phase, last string, done int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if phase != "" {
		t.phase = phaseName(phase)
	}
	if last != "" {
		t.last = clip(strings.ReplaceAll(last, "\x00", ""), 500)
	}
	t.done += done
}

// phaseName keeps to the protocol's form of a phase.
func phaseName(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), 150)
}

// standing gives what show noted last.
func (t *tally) standing() (phase, last string, done int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase, t.last, t.done
}

// progressEvery is how often progress is reported at most.
const progressEvery = time.Second
