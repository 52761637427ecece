package policy

import (
	"net/netip"
	"time"
)

// Pool is what the runners of one pool may be used for. A runner's credential
// is bound to a pool; its registration may narrow this and never widen it.
type Pool struct {
	Rule         string // rule id, pools/<name> unless the file gives another
	Name         string
	JobTypes     []string
	Actions      []string // globs
	Environments []string // globs
	Labels       map[string]string
	MaxSlots     int // of one runner; 1 to 1,000
}

// Admits says whether runners of the pool may take this kind of attempt.
func (p Pool) Admits(jobType, action, environment string) bool {
	return matchAny(p.JobTypes, jobType) && matchAny(p.Actions, action) && matchAny(p.Environments, environment)
}

// RunnerRule approves one runner implementation: by name, and by version or by
// the digest of its binary.
type RunnerRule struct {
	Rule         string
	Name         string
	Version      *Constraint // nil if only digests count
	BinarySHA256 []string    // lower-case hex; empty if only the version counts
	JobTypes     []string
	Environments []string // globs
	Extensions   []string // globs of <prefix>.x.<name> actions; none by default
	Isolation    []string // which isolation may be asked for; empty means any
	when         *expression
}

// TargetRule allows actions to dial.
//
// A target given as a name needs a rule whose Hosts match it. The address it
// resolves to must be in the CIDRs of the same rule; a rule without CIDRs
// allows only addresses of the public network. A target given as an address
// needs a rule whose CIDRs cover it.
type TargetRule struct {
	Rule         string
	Actions      []string // globs
	Environments []string // globs
	Hosts        []string // host patterns, see matchHost
	CIDRs        []netip.Prefix
	Ports        []PortRange
	when         *expression
}

// PortRange is inclusive at both ends.
type PortRange struct {
	First, Last uint16
}

// RetryPolicy says how to repeat something that has not worked yet.
type RetryPolicy struct {
	Rule            string
	Name            string
	Interval        time.Duration // before the first repetition
	Factor          float64       // each pause is the last one times this; 1 to 10
	MaxInterval     time.Duration
	Jitter          float64       // share of the pause that is drawn at random, 0 to 1
	StableSuccesses int           // consecutive successes that count as success
	StableFor       time.Duration // the least time those successes must span
	Attempts        int           // tries in all; 0 means until the deadline
}

// CommandSet is what an allowed_commands_ref names: command templates, folders
// for files, services and facts of hosts. An empty one allows nothing.
type CommandSet struct {
	Rule         string
	Name         string
	Environments []string // globs; all by default

	templates map[string]*commandTemplate
	files     map[string]*fileRule
	services  []*serviceRule
	facts     []string
	when      *expression
}

// OperationPolicy is what an operation_policy_ref names: an explicit or
// elevated permission.
type OperationPolicy struct {
	Rule         string
	Name         string
	Actions      []string // globs of the actions it may be used with
	Environments []string // globs
	Elevated     bool     // using it is a privilege that the audit lists
	when         *expression
}
