package main

import (
	"errors"
	"fmt"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/strictjson"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

type policyExplainCmd struct {
	File   string `short:"f" required:"" help:"JobSpec as JSON or YAML; - reads standard input."`
	Policy string `env:"EXECUTION_PLANE_POLICY" help:"Folder of the bundle. Default: the built-in one."`
	Dev    bool   `help:"Without --policy: the bundle of serve --dev."`
	All    bool   `help:"Show the rules too that have nothing to do with the job."`
}

func (c *policyExplainCmd) Run(s *session) error {
	b, err := c.bundle(s)
	if err != nil {
		return err
	}
	raw, err := readJob(s, c.File)
	if err != nil {
		return err
	}
	var spec domain.JobSpec
	if err := strictjson.Unmarshal(raw, &spec); err != nil {
		return &exitError{exitUsage, fmt.Errorf("read the JobSpec %s: %w", c.File, err)}
	}
	if v := violations(&spec, b); len(v) > 0 {
		for _, x := range v {
			fmt.Fprintf(s.err, "✗ %s %s\n", orRoot(x.Pointer), printable(x.Message))
		}
		return &exitError{exitUsage, errors.New("this is no valid JobSpec, so that policy is not asked")}
	}
	e := b.Explain(runners.PolicyInput(&spec))
	var verdict error
	if !e.Verdict.Allow {
		verdict = &exitError{code: exitPolicy}
	}
	if s.isJSON() {
		return errors.Join(s.json(e), verdict)
	}
	c.print(s, e)
	return verdict
}

func (c *policyExplainCmd) bundle(s *session) (*policy.Bundle, error) {
	switch {
	case c.Policy != "":
		return loadPolicy(s, c.Policy)
	case c.Dev:
		return policy.BuiltinLocal(), nil
	}
	return policy.Builtin(), nil
}

// violations is what can be told of a JobSpec without a service.
func violations(spec *domain.JobSpec, b *policy.Bundle) []domain.Violation {
	v := spec.Validate(domain.DefaultControlLimits())
	if _, known := runners.Catalogue().Lookup(spec.Action); !known {
		if !b.ApprovesExtension(spec.Action) {
			v = append(v, domain.Violation{Pointer: "/action", Message: "is not an action of this service"})
		}
		return v
	}
	for _, p := range runners.Catalogue().ValidateParameters(spec.Action, spec.Inputs.Parameters) {
		v = append(v, domain.Violation{Pointer: "/inputs/parameters" + p.Pointer, Message: p.Message})
	}
	return v
}

func (c *policyExplainCmd) print(s *session, e policy.Explanation) {
	verdict := "deny"
	if e.Verdict.Allow {
		verdict = "allow"
	}
	fmt.Fprintf(s.out, "%s policy: %s (bundle %.12s)\n", mark(verdict), verdict, e.Verdict.BundleDigest)
	for _, r := range e.Verdict.Reasons {
		fmt.Fprintf(s.out, "    - %s: %s\n", r.Code, printable(r.Detail))
	}
	for _, p := range e.Verdict.Privileges {
		fmt.Fprintf(s.out, "    ! lets it use: %s\n", p)
	}
	hidden := 0
	t := table(s.out)
	for _, r := range e.Rules {
		sign := "·"
		switch {
		case r.Applied:
			sign = "✓"
		case !r.Considered && !c.All:
			hidden++
			continue
		}
		fmt.Fprintf(t, "  %s\t%s\t%s:%d\t%s\n", sign, printable(r.ID), printable(r.File), r.Line, printable(r.Why))
		if r.When != "" {
			fmt.Fprintf(t, "  \t\t\twhen: %s\n", printable(r.When))
		}
	}
	t.Flush()
	if hidden > 0 {
		fmt.Fprintf(s.out, "  %d rules have nothing to do with this job; --all shows them\n", hidden)
	}
}
