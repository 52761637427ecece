package main

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

type sealIncompleteCmd struct {
	ID     string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`
}

func (c *sealIncompleteCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	a, err := api.SealIncomplete(s.ctx, domain.NewID[domain.CommandID](uuid.New()), id, c.Reason)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(a)
	}
	fmt.Fprintf(s.out, "attempt %s is %s\n", short(id), stateWord(a))
	return nil
}
