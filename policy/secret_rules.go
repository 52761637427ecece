package policy

import "slices"

// SecretMapping says which secrets a job may read and with which of Vault's
// existing policies. Where several match, the one with the most specific
// reference decides, see SecretPattern.MoreSpecific; their order means nothing.
type SecretMapping struct {
	Rule      string // secret_mappings/<name>
	Name      string
	Reference SecretPattern
	// Fields restrict the mapping and never select it: another field is
	// refused, not looked up in a less specific mapping. Empty: every field, and
	// the whole secret.
	Fields        []string
	Engine        string // kv1, kv2 or dynamic; empty: what Vault says
	Parameters    map[string]string
	AllowUnmasked bool // values too short to be masked may pass

	secretConditions
	secretToken
}

// SecretStore says where an attempt may store artifacts of sensitivity secret
// in a KV version 2 mount. No two stores may apply to one artifact of one job.
type SecretStore struct {
	Rule      string // secret_mappings/<name>
	Name      string
	Template  SecretTemplate
	Artifacts []string // globs of artifact names
	Readers   []string // API roles that may be told the reference; none by default

	secretConditions
	secretToken
}

// secretConditions say for which jobs a mapping is.
type secretConditions struct {
	JobTypes     []string
	Actions      []string // globs
	Environments []string // globs
	when         *expression
}

func (c secretConditions) admit(jobType, action, environment string) bool {
	return slices.Contains(c.JobTypes, jobType) && matchAny(c.Actions, action) && matchAny(c.Environments, environment)
}

// overlap says whether some job could meet both.
func (c secretConditions) overlap(o secretConditions) bool {
	return slices.ContainsFunc(c.JobTypes, func(t string) bool { return slices.Contains(o.JobTypes, t) }) &&
		globsMeet(c.Actions, o.Actions) && globsMeet(c.Environments, o.Environments)
}

// secretToken says from what a token is made, and what it may.
type secretToken struct {
	Mount     string // without slashes at its ends; may hold some inside
	TokenRole string
	Policies  []string // of Vault, in lower case
}

// globsMeet says whether some text matches a glob of each list.
func globsMeet(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if globsOverlap(x, y) {
				return true
			}
		}
	}
	return false
}

// globsOverlap says whether some text matches both globs, see matchGlob.
func globsOverlap(a, b string) bool {
	// meet[j] says it of the beginnings a[:i] and b[:j]. A star matches nothing,
	// or takes one more character of the other side.
	meet := make([]bool, len(b)+1)
	meet[0] = true
	for j := range len(b) {
		meet[j+1] = meet[j] && b[j] == '*'
	}
	for i := range len(a) {
		corner := meet[0]
		meet[0] = meet[0] && a[i] == '*'
		for j := range len(b) {
			above := meet[j+1]
			if a[i] == '*' || b[j] == '*' {
				meet[j+1] = above || meet[j]
			} else {
				meet[j+1] = corner && a[i] == b[j]
			}
			corner = above
		}
	}
	return meet[len(b)]
}
