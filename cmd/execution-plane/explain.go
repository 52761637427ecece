package main

import (
	"encoding/json"
	"fmt"

	"github.com/platform-core/execution-plane-service/domain"
)

type explainCmd struct {
	ID string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
}

func (c *explainCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	e, err := api.Explain(s.ctx, id)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(e)
	}
	fmt.Fprintln(s.out, e.Summary)
	if e.Next != "" {
		fmt.Fprintln(s.out, e.Next)
	}
	if p := e.Policy; p != nil {
		fmt.Fprintf(s.out, "%s policy: %s (bundle %.12s)\n", mark(p.Verdict), p.Verdict, p.BundleDigest)
		printReasons(s.out, p.Reasons)
	}
	// What cannot be read is left out here too.
	if raw, _, err := api.Result(s.ctx, id, 0); err == nil && raw != nil {
		var r domain.ExecutionResult
		if json.Unmarshal(raw, &r) == nil {
			printRunnerSays(s, api, id, r)
		}
	}
	printFits(s.out, e.Runners)
	printCallbacks(s.out, e.Callbacks)
	return nil
}
