package ansible

import (
	"encoding/json"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// cause is why a host was not reached or a task not run, where that can be told from
// what ssh and sudo say. Empty: it cannot.
type cause string

const (
	causeHostKey    cause = "the host key is not the pinned one"
	causeLogin      cause = "the login was refused"
	causeSudo       cause = "sudo was refused"
	causeConnection cause = "no connection"
)

// phrases are those of OpenSSH's client, of sudo and of ansible's become.
var phrases = []struct {
	result, text string
	cause        cause
}{
	{"unreachable", "REMOTE HOST IDENTIFICATION HAS CHANGED", causeHostKey},
	{"unreachable", "Host key verification failed", causeHostKey},
	{"unreachable", "Permission denied (", causeLogin},
	{"unreachable", "Connection refused", causeConnection},
	{"unreachable", "No route to host", causeConnection},
	{"unreachable", "timed out", causeConnection},
	{"failed", "Missing sudo password", causeSudo},
	{"failed", "a password is required", causeSudo},
	{"failed", "is not in the sudoers file", causeSudo},
	{"failed", "is not allowed to execute", causeSudo},
}

// causeOf reads what ansible says of one task's end.
func causeOf(result string, data json.RawMessage) cause {
	var said struct {
		Msg    json.RawMessage `json:"msg"`
		Stderr json.RawMessage `json:"module_stderr"`
		Stdout json.RawMessage `json:"module_stdout"`
	}
	if json.Unmarshal(data, &said) != nil {
		return ""
	}
	text := string(said.Msg)
	if result == "failed" && (len(said.Stderr) > 0 || len(said.Stdout) > 0) {
		// Only a module that did not start has these: no package writes them.
		text += string(said.Stderr) + string(said.Stdout)
	}
	for _, p := range phrases {
		if p.result == result && strings.Contains(text, p.text) {
			return p.cause
		}
	}
	return ""
}

// everyCause says whether each of the hosts has one of the causes.
func (t *tally) everyCause(hosts []string, wanted ...cause) bool {
	for _, h := range hosts {
		found := false
		for _, w := range wanted {
			found = found || t.causes[h] == w
		}
		if !found {
			return false
		}
	}
	return len(hosts) > 0
}

// withCauses names hosts with why, where that is known.
func (t *tally) withCauses(hosts []string) string {
	told := make([]string, len(hosts))
	for i, h := range hosts {
		told[i] = h
		if why := t.causes[h]; why != "" {
			told[i] += ": " + string(why)
		}
	}
	return names(told)
}

// notReached words a run in which nothing failed and hosts were not reached. A host
// key that is not pinned and a refused login are refusals, as in the ssh runner.
func notReached(t *tally, away []string) (executor.OutcomeResult, string) {
	switch {
	case t.everyCause(away, causeHostKey):
		return executor.PolicyDenied, categoryPolicy
	case t.everyCause(away, causeHostKey, causeLogin):
		return executor.TaskFailed, categoryPolicy
	}
	return executor.TargetUnreachable, categoryInfrastructure
}
