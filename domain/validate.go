package domain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// violations collects broken rules in the order of the document.
type violations []Violation

func (v *violations) add(pointer, code, format string, args ...any) {
	*v = append(*v, Violation{Pointer: pointer, Code: code, Message: fmt.Sprintf(format, args...)})
}

var (
	// names are what the control plane may call things: artifacts, evidence, nodes.
	namePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,199}$`)
	labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
	sha256Hex    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Validate says everything that is wrong with a spec, short of what needs the
// action's schema or the policy: those have their own words.
func (s *JobSpec) Validate(l ControlLimits) []Violation {
	var v violations
	s.validateIdentity(&v)
	s.validateTarget(&v)
	s.validateInputs(&v)
	s.validateContract(&v)
	s.validateControls(&v, l)
	s.validateRunner(&v)
	return v
}

func (s *JobSpec) validateIdentity(v *violations) {
	if s.OperationID.IsZero() {
		v.add("/operation_id", "required", "is required: the operation this job belongs to")
	}
	if s.AttemptID.IsZero() {
		v.add("/attempt_id", "required", "is required: a new UUID for this attempt")
	}
	checkText(v, "/plan_node_id", s.PlanNodeID, 1, 200)
	switch {
	case s.JobType == "":
		v.add("/job_type", "required", "is required: one of %s", strings.Join(jobTypes, ", "))
	case !slices.Contains(jobTypes, s.JobType):
		v.add("/job_type", "enum", "is not a job type; it is one of %s", strings.Join(jobTypes, ", "))
	}
	prefix := ActionPrefix(s.JobType) + "."
	switch {
	case len(s.Action) > 128:
		v.add("/action", "max_length", "has %d bytes, at most 128", len(s.Action))
	case s.Action == "":
		v.add("/action", "required", "is required, such as %sx; see GET /v1/actions", prefix)
	case slices.Contains(jobTypes, s.JobType) && !strings.HasPrefix(s.Action, prefix):
		v.add("/action", "prefix", "does not belong to job type %s: its actions begin with %s", s.JobType, prefix)
	}
	if s.RetryOf != nil && s.RetryOf.IsZero() {
		v.add("/retry_of", "required", "names no attempt; leave it out where there was none before")
	}
	if s.RetryOf != nil && *s.RetryOf == s.AttemptID {
		v.add("/retry_of", "self", "names the attempt itself; it names an earlier one")
	}
	if p := s.RequestedBy; p != nil {
		if !slices.Contains([]string{"user", "service", "ai_agent"}, p.Kind) {
			v.add("/requested_by/kind", "enum", "is one of user, service, ai_agent")
		}
		checkText(v, "/requested_by/id", p.ID, 1, 200)
	}
	checkLabels(v, "/labels", s.Labels)
}

func (s *JobSpec) validateTarget(v *violations) {
	if s.Target.Environment == "" {
		v.add("/target/environment", "required", "is required")
	} else if !labelPattern.MatchString(s.Target.Environment) {
		v.add("/target/environment", "pattern", "may hold letters, digits, '.', '_', '-' and '/', at most 63")
	}
	if len(s.Target.Resources) > 1000 {
		v.add("/target/resources", "max_items", "has %d entries, at most 1000", len(s.Target.Resources))
	}
	seen := map[string]bool{}
	for i, r := range s.Target.Resources {
		at := fmt.Sprintf("/target/resources/%d", i)
		checkText(v, at+"/resource_id", r.ResourceID, 1, 200)
		checkText(v, at+"/resource_type", r.ResourceType, 1, 200)
		if seen[r.ResourceID] {
			v.add(at+"/resource_id", "unique", "is named twice")
		}
		seen[r.ResourceID] = true
		if b := r.Binding; b != nil {
			checkText(v, at+"/binding/address", b.Address, 1, 253)
			checkText(v, at+"/binding/user", b.User, 0, 200)
			if b.Port < 0 || b.Port > 65535 {
				v.add(at+"/binding/port", "range", "is a port from 1 to 65535")
			}
			if b.AccessSecret != "" && !slices.ContainsFunc(s.Inputs.Secrets, func(x SecretInput) bool { return x.Name == b.AccessSecret }) {
				v.add(at+"/binding/access_secret", "reference", "names no entry of inputs.secrets")
			}
		}
	}
}

func (s *JobSpec) validateInputs(v *violations) {
	names := map[string]bool{}
	if len(s.Inputs.Artifacts) > MaxInputArtifacts {
		v.add("/inputs/artifacts", "max_items", "has %d entries, at most %d", len(s.Inputs.Artifacts), MaxInputArtifacts)
	}
	for i, a := range s.Inputs.Artifacts {
		a.validate(v, fmt.Sprintf("/inputs/artifacts/%d", i), names)
	}
	if len(s.Inputs.Secrets) > MaxSecrets {
		v.add("/inputs/secrets", "max_items", "has %d entries, at most %d", len(s.Inputs.Secrets), MaxSecrets)
	}
	names = map[string]bool{}
	for i, x := range s.Inputs.Secrets {
		at := fmt.Sprintf("/inputs/secrets/%d", i)
		checkName(v, at+"/name", x.Name, names, optional)
		if !LooksLikeReference(x.SecretRef) {
			v.add(at+"/secret_ref", "scheme", "is a reference vault://<mount>/<path>[#field][?version=n], never a value")
		}
	}
	for i, c := range s.Inputs.Capabilities {
		checkText(v, fmt.Sprintf("/inputs/capabilities/%d", i), c, 1, 200)
	}
}

const (
	required = true
	optional = false
)

// checkName checks a name that must be unique among its siblings. An input without
// a name is legal; nothing can address it.
func checkName(v *violations, pointer, name string, seen map[string]bool, needed bool) {
	if name == "" {
		if needed {
			v.add(pointer, "required", "is required")
		}
		return
	}
	if !namePattern.MatchString(name) {
		v.add(pointer, "pattern", "begins with a letter or digit and holds letters, digits and . _ / : @ - only")
	}
	if seen[name] {
		v.add(pointer, "unique", "is used twice")
	}
	seen[name] = true
}

func (s *JobSpec) validateContract(v *violations) {
	list := func(kind string, items []string) {
		if len(items) > 100 {
			v.add("/output_contract/"+kind, "max_items", "has %d entries, at most 100", len(items))
		}
		seen := map[string]bool{}
		for i, n := range items {
			checkName(v, fmt.Sprintf("/output_contract/%s/%d", kind, i), n, seen, required)
		}
	}
	list("capabilities", s.OutputContract.Capabilities)
	list("artifacts", s.OutputContract.Artifacts)
	list("evidence", s.OutputContract.Evidence)
}

func (s *JobSpec) validateControls(v *violations, l ControlLimits) {
	c := s.Controls
	bounded := func(name string, n, low, high int) {
		if n < low || n > high {
			v.add("/controls/"+name, "range", "is %d; it is from %d to %d", n, low, high)
		}
	}
	bounded("timeout_seconds", c.TimeoutSeconds, 1, l.MaxTimeout)
	bounded("queue_timeout_seconds", c.QueueTimeoutSeconds, 0, l.MaxQueue)
	bounded("idle_timeout_seconds", c.IdleTimeoutSeconds, 0, l.MaxIdle)
	bounded("cancel_grace_seconds", c.CancelGraceSeconds, 0, l.MaxCancelGrace)
	bounded("priority", c.Priority, 0, 9)
	for name, ref := range map[string]string{
		"retry_policy_ref": c.RetryPolicyRef, "allowed_commands_ref": c.AllowedCommandsRef,
		"operation_policy_ref": c.OperationPolicyRef, "callback_ref": c.CallbackRef,
	} {
		if ref != "" && !namePattern.MatchString(ref) {
			v.add("/controls/"+name, "pattern", "names an entry of the policy bundle")
		}
	}
}

func (s *JobSpec) validateRunner(v *violations) {
	r := s.Runner
	if r == nil {
		return
	}
	if r.Name != "" && !labelPattern.MatchString(r.Name) {
		v.add("/runner/name", "pattern", "is a runner's name, such as %s-runner", s.JobType)
	}
	if r.Isolation != "" && !slices.Contains([]string{"process", "sandbox", "container"}, r.Isolation) {
		v.add("/runner/isolation", "enum", "is one of process, sandbox, container")
	}
	if q := r.Requirements; q != nil {
		checkLabels(v, "/runner/requirements/labels", q.Labels)
		if len(q.Tools) > 16 {
			v.add("/runner/requirements/tools", "max_items", "has %d entries, at most 16", len(q.Tools))
		}
		for name, c := range q.Tools {
			if _, err := ParseConstraint(c); err != nil || !labelPattern.MatchString(name) {
				v.add("/runner/requirements/tools/"+pointerEscape(name), "constraint", "is a version constraint such as >=2.17")
			}
		}
	}
}

func checkLabels(v *violations, pointer string, labels map[string]string) {
	if len(labels) > 16 {
		v.add(pointer, "max_items", "has %d entries, at most 16", len(labels))
	}
	for k, val := range labels {
		if !labelPattern.MatchString(k) {
			v.add(pointer+"/"+pointerEscape(k), "pattern", "is not a label name: letters, digits and . _ / - , at most 63")
		}
		checkText(v, pointer+"/"+pointerEscape(k), val, 0, 200)
	}
}

func checkText(v *violations, pointer, s string, low, high int) {
	switch {
	case len(s) < low:
		v.add(pointer, "required", "is required")
	case len(s) > high:
		v.add(pointer, "max_length", "has %d bytes, at most %d", len(s), high)
	case !plainText(s):
		v.add(pointer, "pattern", "holds control characters")
	}
}

// plainText reports whether a text is UTF-8 without control characters.
func plainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

func pointerEscape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// SortViolations orders violations by pointer and code: map order never shows.
func SortViolations(v []Violation) []Violation {
	slices.SortFunc(v, func(a, b Violation) int {
		if c := strings.Compare(a.Pointer, b.Pointer); c != 0 {
			return c
		}
		return strings.Compare(a.Code, b.Code)
	})
	return v
}
