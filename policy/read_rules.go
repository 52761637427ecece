package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// jobTypes are the six of the platform; a bundle that names another has a
// spelling mistake.
var jobTypes = []string{"ansible", "kubernetes", "helm", "opentofu", "ssh", "verification"}

var isolations = []string{"process", "sandbox", "container"}

func (d *document) read(root ast.Node, b *Bundle) {
	d.object(root, "the file", fields{
		"pools":              d.each("pools", func(n ast.Node) { d.readPool(n, b) }),
		"runners":            d.each("runners", func(n ast.Node) { d.readRunner(n, b) }),
		"targets":            d.each("targets", func(n ast.Node) { d.readTarget(n, b) }),
		"retry_policies":     d.each("retry_policies", func(n ast.Node) { d.readRetry(n, b) }),
		"commands":           d.each("commands", func(n ast.Node) { d.readCommands(n, b) }),
		"operation_policies": d.each("operation_policies", func(n ast.Node) { d.readOperation(n, b) }),
		"secret_mappings":    d.each("secret_mappings", func(n ast.Node) { d.readSecretMapping(n, b) }),
		"packages":           d.each("packages", func(n ast.Node) { d.readPackage(n, b) }),
		"host_keys":          d.each("host_keys", func(n ast.Node) { d.readHostKeys(n, b) }),
		"isolation":          d.each("isolation", func(n ast.Node) { d.readIsolation(n, b) }),
		"images":             d.each("images", func(n ast.Node) { d.readImage(n, b) }),
		"probes":             d.each("probes", func(n ast.Node) { d.readProbe(n, b) }),
		"capabilities":       d.each("capabilities", func(n ast.Node) { d.readCapability(n, b) }),
	})
}

func (d *document) each(what string, read func(ast.Node)) func(ast.Node) {
	return func(n ast.Node) { d.list(n, what, read) }
}

func (d *document) readPool(n ast.Node, b *Bundle) {
	p := Pool{Labels: map[string]string{}}
	before := len(d.mistakes)
	d.object(n, "pool", fields{
		"id":           func(v ast.Node) { p.Rule = d.ruleID(v) },
		"name":         func(v ast.Node) { p.Name = d.name(v, "pool.name") },
		"job_types":    func(v ast.Node) { p.JobTypes = d.jobTypes(v, "pool.job_types") },
		"actions":      func(v ast.Node) { p.Actions = d.nonEmpty(v, "pool.actions") },
		"environments": func(v ast.Node) { p.Environments = d.nonEmpty(v, "pool.environments") },
		"labels":       func(v ast.Node) { p.Labels = d.labels(v, "pool.labels") },
		"max_slots":    func(v ast.Node) { p.MaxSlots = int(d.integer(v, "pool.max_slots", 1, 1000)) },
	}, "name", "job_types", "actions", "environments", "max_slots")
	if len(d.mistakes) > before {
		return
	}
	if _, ok := b.pools[p.Name]; ok {
		d.fail(n, "pool %q is defined twice", p.Name)
		return
	}
	if p.Rule == "" {
		p.Rule = "pools/" + p.Name
	}
	if d.addRule(n, b, "pools", p.Rule, nil) {
		b.pools[p.Name] = p
	}
}

func (d *document) readRunner(n ast.Node, b *Bundle) {
	r := RunnerRule{}
	before := len(d.mistakes)
	d.object(n, "runner", fields{
		"id":            func(v ast.Node) { r.Rule = d.ruleID(v) },
		"name":          func(v ast.Node) { r.Name = d.name(v, "runner.name") },
		"version":       func(v ast.Node) { r.Version = d.constraint(v) },
		"binary_sha256": func(v ast.Node) { r.BinarySHA256 = d.digests(v, "runner.binary_sha256") },
		"job_types":     func(v ast.Node) { r.JobTypes = d.jobTypes(v, "runner.job_types") },
		"environments":  func(v ast.Node) { r.Environments = d.nonEmpty(v, "runner.environments") },
		"extensions":    func(v ast.Node) { r.Extensions = d.nonEmpty(v, "runner.extensions") },
		"isolation":     func(v ast.Node) { r.Isolation = d.isolation(v) },
		"when":          func(v ast.Node) { r.when = d.when(v) },
	}, "name", "job_types", "environments")
	if len(d.mistakes) > before {
		return
	}
	if r.Version == nil && len(r.BinarySHA256) == 0 {
		d.fail(n, "runner %q: name a version (\"*\" for every one) or binary_sha256", r.Name)
		return
	}
	if r.Rule == "" {
		r.Rule = "runners/" + r.Name
	}
	if d.addRule(n, b, "runners", r.Rule, r.when) {
		b.runners = append(b.runners, r)
	}
}

func (d *document) readTarget(n ast.Node, b *Bundle) {
	t := TargetRule{}
	before := len(d.mistakes)
	d.object(n, "target", fields{
		"id":           func(v ast.Node) { t.Rule = d.ruleID(v) },
		"actions":      func(v ast.Node) { t.Actions = d.nonEmpty(v, "target.actions") },
		"environments": func(v ast.Node) { t.Environments = d.nonEmpty(v, "target.environments") },
		"hosts":        func(v ast.Node) { t.Hosts = d.hosts(v) },
		"cidrs":        func(v ast.Node) { t.CIDRs = d.cidrs(v) },
		"ports":        func(v ast.Node) { t.Ports = d.ports(v) },
		"when":         func(v ast.Node) { t.when = d.when(v) },
	}, "id", "actions", "environments", "ports")
	if len(d.mistakes) > before {
		return
	}
	if len(t.Hosts) == 0 && len(t.CIDRs) == 0 {
		d.fail(n, "target %q names neither hosts nor cidrs", t.Rule)
		return
	}
	if d.addRule(n, b, "targets", t.Rule, t.when) {
		b.targets = append(b.targets, t)
	}
}

func (d *document) readRetry(n ast.Node, b *Bundle) {
	p := RetryPolicy{Factor: 1, StableSuccesses: 1}
	before := len(d.mistakes)
	d.object(n, "retry policy", fields{
		"name":             func(v ast.Node) { p.Name = d.name(v, "retry policy name") },
		"interval":         func(v ast.Node) { p.Interval = d.duration(v, "interval", 100*time.Millisecond, time.Hour) },
		"factor":           func(v ast.Node) { p.Factor = d.number(v, "factor", 1, 10) },
		"max_interval":     func(v ast.Node) { p.MaxInterval = d.duration(v, "max_interval", 100*time.Millisecond, time.Hour) },
		"jitter":           func(v ast.Node) { p.Jitter = d.number(v, "jitter", 0, 1) },
		"stable_successes": func(v ast.Node) { p.StableSuccesses = int(d.integer(v, "stable_successes", 1, 100)) },
		"stable_for":       func(v ast.Node) { p.StableFor = d.duration(v, "stable_for", 0, time.Hour) },
		"attempts":         func(v ast.Node) { p.Attempts = int(d.integer(v, "attempts", 0, 10000)) },
	}, "name", "interval")
	if len(d.mistakes) > before {
		return
	}
	if p.MaxInterval == 0 {
		p.MaxInterval = p.Interval
	}
	if p.MaxInterval < p.Interval {
		d.fail(n, "retry policy %q: max_interval is shorter than interval", p.Name)
		return
	}
	if p.Attempts > 0 && p.Attempts < p.StableSuccesses {
		d.fail(n, "retry policy %q: %d attempts can never give %d stable successes", p.Name, p.Attempts, p.StableSuccesses)
		return
	}
	p.Rule = "retry_policies/" + p.Name
	if d.addRule(n, b, "retry_policies", p.Rule, nil) {
		b.retries[p.Name] = p
	}
}

func (d *document) readOperation(n ast.Node, b *Bundle) {
	o := OperationPolicy{Elevated: true}
	before := len(d.mistakes)
	d.object(n, "operation policy", fields{
		"name":         func(v ast.Node) { o.Name = d.name(v, "operation policy name") },
		"actions":      func(v ast.Node) { o.Actions = d.nonEmpty(v, "operation policy actions") },
		"environments": func(v ast.Node) { o.Environments = d.nonEmpty(v, "operation policy environments") },
		"elevated":     func(v ast.Node) { o.Elevated = d.boolean(v, "operation policy elevated") },
		"when":         func(v ast.Node) { o.when = d.when(v) },
	}, "name", "actions", "environments")
	if len(d.mistakes) > before {
		return
	}
	o.Rule = "operation_policies/" + o.Name
	if d.addRule(n, b, "operation_policies", o.Rule, o.when) {
		b.operations[o.Name] = o
	}
}

// name reads a name or id: letters, digits and . _ - /, at most 128 long.
func (d *document) name(n ast.Node, what string) string {
	s := d.text(n, what)
	if len(s) > 128 {
		d.fail(n, "%s is longer than 128 characters", what)
	}
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("._-/", c) >= 0:
		default:
			d.fail(n, "%s may hold letters, digits and . _ - / only", what)
			return s
		}
	}
	return s
}

func (d *document) ruleID(n ast.Node) string { return d.name(n, "id") }

func (d *document) jobTypes(n ast.Node, what string) []string {
	out := d.nonEmpty(n, what)
	for _, t := range out {
		if t != "" && !slices.Contains(jobTypes, t) {
			d.fail(n, "%s: %q is no job type (known: %s)", what, t, strings.Join(jobTypes, ", "))
		}
	}
	return out
}

func (d *document) isolation(n ast.Node) []string {
	out := d.nonEmpty(n, "runner.isolation")
	for _, i := range out {
		if i != "" && !slices.Contains(isolations, i) {
			d.fail(n, "runner.isolation: %q is none of %s", i, strings.Join(isolations, ", "))
		}
	}
	return out
}

func (d *document) constraint(n ast.Node) *Constraint {
	s := d.text(n, "runner.version")
	if s == "" {
		return nil
	}
	c, err := ParseConstraint(s)
	if err != nil {
		d.fail(n, "%s", err)
		return nil
	}
	return &c
}

func (d *document) digests(n ast.Node, what string) []string {
	out := d.nonEmpty(n, what)
	for _, s := range out {
		if s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
			d.fail(n, "%s: a digest is 64 lower-case hexadecimal digits", what)
		}
	}
	return out
}

func (d *document) hosts(n ast.Node) []string {
	var out []string
	d.list(n, "target.hosts", func(item ast.Node) {
		s := d.text(item, "an entry of target.hosts")
		if s == "" {
			return
		}
		if err := checkHostPattern(s); err != nil {
			d.fail(item, "target.hosts: %s", err)
			return
		}
		out = append(out, s)
	})
	return out
}

func (d *document) cidrs(n ast.Node) []netip.Prefix {
	var out []netip.Prefix
	d.list(n, "target.cidrs", func(item ast.Node) {
		s := d.text(item, "an entry of target.cidrs")
		if s == "" {
			return
		}
		prefix, err := parseCIDR(s)
		if err != nil {
			d.fail(item, "target.cidrs: %s", err)
			return
		}
		out = append(out, prefix)
	})
	return out
}

// parseCIDR reads a range or a single address.
func parseCIDR(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		addr, aerr := netip.ParseAddr(s)
		if aerr != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is no address and no CIDR such as 10.1.0.0/16", s)
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	switch {
	case prefix.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is IPv4 inside IPv6: write the IPv4 range", s)
	case prefix != prefix.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has bits outside its mask: the range is %s", s, prefix.Masked())
	case nat64Block.Overlaps(prefix) && prefix.Bits() >= nat64Block.Bits():
		return netip.Prefix{}, fmt.Errorf("%q is inside NAT64's prefix: write the IPv4 range behind it", s)
	case prefix.Bits() > 0 && alwaysDenied(prefix.Addr()) != "" && coveredByDenied(prefix):
		return netip.Prefix{}, fmt.Errorf("%q is denied always and no rule can allow it", s)
	}
	return prefix, nil
}

func coveredByDenied(prefix netip.Prefix) bool {
	if prefix.IsSingleIP() {
		return true
	}
	for _, block := range unusableBlocks {
		if block.Bits() <= prefix.Bits() && block.Contains(prefix.Addr()) {
			return true
		}
	}
	return false
}

func (d *document) ports(n ast.Node) []PortRange {
	var out []PortRange
	before := len(d.mistakes)
	d.list(n, "target.ports", func(item ast.Node) {
		if _, ok := item.(*ast.IntegerNode); ok {
			p := uint16(d.integer(item, "a port", 1, 65535))
			out = append(out, PortRange{p, p})
			return
		}
		r, err := parsePortRange(d.text(item, "an entry of target.ports"))
		if err != nil {
			d.fail(item, "target.ports: %s", err)
			return
		}
		out = append(out, r)
	})
	if len(out) == 0 && len(d.mistakes) == before {
		d.fail(n, "target.ports is empty, so the rule would match nothing")
	}
	return out
}

func parsePortRange(s string) (PortRange, error) {
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	first, err1 := strconv.ParseUint(a, 10, 16)
	last, err2 := strconv.ParseUint(b, 10, 16)
	if err1 != nil || err2 != nil || first == 0 || last < first {
		return PortRange{}, fmt.Errorf("a port is 1 to 65535, a range is like \"8000-8999\"")
	}
	return PortRange{uint16(first), uint16(last)}, nil
}
