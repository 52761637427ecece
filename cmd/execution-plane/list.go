package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type listCmd struct {
	Operation   string        `help:"Only this operation_id."`
	Node        string        `help:"Only this plan_node_id."`
	Status      string        `help:"Only this state: queued, leased, running, finalizing, succeeded, failed, cancelled, timed_out."`
	FailureCode string        `help:"Only this failure code."`
	Runner      string        `help:"Only this runner id."`
	JobType     string        `help:"Only this job type."`
	Action      string        `help:"Only this action."`
	Environment string        `help:"Only this environment."`
	Resource    string        `help:"Only attempts on this resource_id."`
	RequestedBy string        `help:"Only attempts asked for by this principal."`
	Since       time.Duration `help:"Only attempts made within this time, such as 24h."`
	Limit       int           `default:"50" help:"At most so many, 1 to 500."`
	After       string        `help:"Cursor of the page before."`
}

func (c *listCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	q := client.AttemptQuery{
		PlanNodeID: c.Node, Status: c.Status, FailureCode: domain.FailureCode(c.FailureCode), JobType: c.JobType, Action: c.Action,
		Environment: c.Environment, ResourceID: c.Resource, RequestedBy: c.RequestedBy, Limit: c.Limit, After: c.After,
	}
	if c.Since > 0 {
		q.Since = time.Now().Add(-c.Since)
	}
	if c.Operation != "" {
		if q.OperationID, err = domain.ParseID[domain.OperationID](c.Operation); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--operation: %w", err)}
		}
	}
	if c.Runner != "" {
		if q.RunnerID, err = domain.ParseID[domain.RunnerID](c.Runner); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--runner: %w", err)}
		}
	}
	page, err := api.Attempts(s.ctx, q)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(page)
	}
	printAttempts(s, page.Items)
	if page.Next != "" {
		fmt.Fprintf(s.err, "More: --after %s\n", page.Next)
	}
	return nil
}

func printAttempts(s *session, items []wire.Attempt) {
	if len(items) == 0 {
		fmt.Fprintln(s.err, "No attempts.")
		return
	}
	t := table(s.out)
	fmt.Fprintln(t, "ATTEMPT\tSTATE\tACTION\tENVIRONMENT\tRESOURCES\tCREATED\tTOOK")
	for _, a := range items {
		took := ""
		if a.StartedAt != nil && a.FinishedAt != nil {
			took = a.FinishedAt.Sub(*a.StartedAt).Round(100 * time.Millisecond).String()
		}
		resources := printable(strings.Join(a.Resources, ","))
		if len(resources) > 40 {
			resources = fmt.Sprintf("%.30s… (%d)", resources, len(a.Resources))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", short(a.AttemptID), stateWord(a), a.Action, a.Environment, resources, a.CreatedAt.Format(time.RFC3339), took)
	}
	t.Flush()
}
