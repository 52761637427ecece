package ansible

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// Exit statuses of ansible-playbook that mean it did not take what it was given.
const (
	codeError   = 1
	codeParser  = 4 // of hosts that were not reached, too
	codeOptions = 5
)

// outcome says how the run ended. The events decide; the exit status counts only
// where it contradicts them, and never makes a success.
func (a *attempt) outcome(r *run) executor.Outcome {
	out := executor.Outcome{Result: executor.TaskFailed, RecommendedCategory: categoryUnknown}
	if r.code >= 0 {
		out.Code = &r.code
	}
	t := r.tally
	bad, away := t.hostsWhere(failed), t.hostsWhere(unreachable)
	switch {
	case r.stopped:
		out.Message = stoppedMessage(r)
	case r.refused != nil:
		refused := outcomeOf(r.refused)
		refused.Code = out.Code
		return refused
	case !t.started && (r.code == codeError || r.code == codeParser || r.code == codeOptions):
		out.Result, out.RecommendedCategory = executor.InputsRejected, categoryValidation
		out.Message = "ansible does not take the playbook; the log says why"
	case r.trouble() != nil || !t.ended:
		out.RecommendedCategory = categoryInfrastructure
		out.Message = fmt.Sprintf("the event stream does not come to an end: %v", errors.Join(r.trouble(), fmt.Errorf("ansible-playbook ended with status %d", r.code)))
		if len(r.interrupted) > 0 {
			out.Message += "; " + endedMessage(r)
		}
	case len(bad) > 0:
		if t.everyCause(bad, causeSudo) {
			out.RecommendedCategory = categoryPolicy
		}
		out.Message = fmt.Sprintf("failed on %s%s", t.withCauses(bad), t.andUnreachable(away))
	case len(away) > 0:
		out.Result, out.RecommendedCategory = notReached(t, away)
		out.Message = "not reached: " + t.withCauses(away)
	case len(t.counts()) == 0:
		out.Result, out.RecommendedCategory = executor.InputsRejected, categoryValidation
		out.Message = a.nothingRan(t)
	case r.code != 0:
		out.Message = fmt.Sprintf("ansible-playbook ended with status %d though no host failed", r.code)
	default:
		out.Result, out.RecommendedCategory = executor.Succeeded, categorySuccess
		out.Message = fmt.Sprintf("%d hosts, %d changed", len(t.counts()), len(t.hostsWhere(changed)))
	}
	return out
}

// nothingRan says why no task was run.
func (a *attempt) nothingRan(t *tally) string {
	matched := slices.ContainsFunc(t.plays, func(p playEnd) bool { return p.Hosts })
	switch {
	case !matched:
		return "no play matched a host of the inventory"
	case len(a.p.Tags)+len(a.p.SkipTags) == 0:
		return "the plays that matched a host have no task"
	}
	return fmt.Sprintf("no task matches the tags: of tags [%s] without skip_tags [%s] none is left",
		clip(strings.Join(a.p.Tags, ", "), 200), clip(strings.Join(a.p.SkipTags, ", "), 200))
}

func stoppedMessage(r *run) string { return "stopped; " + endedMessage(r) }

// endedMessage says where something may still run.
func endedMessage(r *run) string {
	var left []string
	for _, e := range r.interrupted {
		if !e.Ended {
			left = append(left, e.Host)
		}
	}
	if len(left) == 0 {
		return fmt.Sprintf("%d running tasks were ended on their hosts", len(r.interrupted))
	}
	return "it is not certain that the task has ended on " + names(left)
}

func (t *tally) andUnreachable(hosts []string) string {
	if len(hosts) == 0 {
		return ""
	}
	return "; not reached: " + t.withCauses(hosts)
}

// names lists a few hosts.
func names(hosts []string) string {
	const most = 10
	if len(hosts) <= most {
		return strings.Join(hosts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(hosts[:most], ", "), len(hosts)-most)
}
