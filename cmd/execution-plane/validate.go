package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/platform-core/execution-plane-service/api/client"
)

type validateCmd struct {
	File string `short:"f" required:"" help:"JobSpec as JSON or YAML; - reads standard input."`
}

func (c *validateCmd) Run(s *session) error {
	spec, err := readJob(s, c.File)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	return validate(s, api, spec)
}

// validate says what would come of a JobSpec.
func validate(s *session, api *client.Client, spec []byte) error {
	d, err := api.DryRun(s.ctx, spec)
	if err != nil {
		return err
	}
	var verdict error
	switch {
	case !d.Valid:
		verdict = &exitError{code: exitUsage}
	case d.Policy != nil && d.Policy.Verdict != "allow":
		verdict = &exitError{code: exitPolicy}
	}
	if s.isJSON() {
		return errors.Join(s.json(d), verdict)
	}
	for _, v := range d.Violations {
		fmt.Fprintf(s.out, "✗ %s %s\n", orRoot(v.Pointer), v.Message)
	}
	if d.Valid {
		fmt.Fprintln(s.out, "✓ a valid JobSpec")
	}
	if p := d.Policy; p != nil {
		fmt.Fprintf(s.out, "%s policy: %s (bundle %.12s, rules %s)\n", mark(p.Verdict), p.Verdict, p.BundleDigest, strings.Join(p.Rules, ", "))
		printReasons(s.out, p.Reasons)
	}
	if d.Valid {
		if len(d.Runners) == 0 {
			fmt.Fprintln(s.out, "? no runner is registered")
		}
		printFits(s.out, d.Runners)
	}
	return verdict
}
