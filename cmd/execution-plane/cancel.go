package main

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

type cancelCmd struct {
	ID     string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`
	Wait   bool   `short:"w" help:"Wait for the end and print the result."`
	Abort  bool   `help:"End it as an operator (needs the operator role): failed / operator_aborted."`
}

func (c *cancelCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	stop := api.Cancel
	if c.Abort {
		stop = api.Abort
	}
	a, err := stop(s.ctx, domain.NewID[domain.CommandID](uuid.New()), id, c.Reason)
	if err != nil {
		return err
	}
	if c.Wait {
		r, err := followResult(s, api, id)
		if err != nil {
			return err
		}
		if r.FailureCode == domain.CodeCancelled || c.Abort && r.FailureCode == domain.CodeOperatorAborted {
			return nil // that is what was asked for
		}
		return &exitError{code: resultCode(r)}
	}
	if s.isJSON() {
		return s.json(a)
	}
	fmt.Fprintf(s.out, "attempt %s is %s\n", short(id), stateWord(a))
	return nil
}
