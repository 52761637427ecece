package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type getCmd struct {
	ID   string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Spec bool   `help:"Print the JobSpec as it was accepted, and nothing else."`
}

func (c *getCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	if c.Spec {
		b, err := api.JobSpec(s.ctx, id)
		if err != nil {
			return err
		}
		return s.raw(b)
	}
	a, err := api.Attempt(s.ctx, id)
	if err != nil {
		return err
	}
	raw, _, err := api.Result(s.ctx, id, 0)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(struct {
			Attempt wire.Attempt    `json:"attempt"`
			Result  json.RawMessage `json:"result"`
		}{a, raw})
	}
	if raw != nil {
		var r domain.ExecutionResult
		if err := json.Unmarshal(raw, &r); err != nil {
			return fmt.Errorf("read the result: %w", err)
		}
		printResult(s.out, r)
		printRunnerSays(s, api, id, r)
		printCallbacks(s.out, a.Callbacks)
		return nil
	}
	printAttempt(s, a)
	return nil
}

func printAttempt(s *session, a wire.Attempt) {
	fmt.Fprintf(s.out, "%s  %s in %s\n", stateWord(a), a.Action, a.Environment)
	t := table(s.out)
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(t, "  %s\t%s\n", k, v)
		}
	}
	row("attempt", a.AttemptID.String())
	row("operation", a.OperationID.String()+" / "+printable(a.PlanNodeID))
	row("created", a.CreatedAt.Format(time.RFC3339))
	if a.StartedAt != nil {
		row("started", a.StartedAt.Format(time.RFC3339))
	}
	if a.RunnerID != nil {
		row("runner", fmt.Sprintf("%s, epoch %d", a.RunnerID, a.Epoch))
	}
	if a.Category != "" {
		row("outcome", "decided: "+string(a.Category))
	}
	if p := a.Progress; p != nil {
		row("progress", fmt.Sprintf("%s %d/%d %s", printable(p.Phase), p.Done, p.Total, printable(p.Message)))
	}
	t.Flush()
	fmt.Fprintf(s.out, "Why is it there? execution-plane explain %s\n", short(a.AttemptID))
}
