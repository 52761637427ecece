package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

type runnersCmd struct {
	List   runnersListCmd  `cmd:"" default:"withargs" help:"List runners."`
	Pause  changeRunnerCmd `cmd:"" help:"Give it no new work."`
	Resume changeRunnerCmd `cmd:"" help:"Give it work again."`
	Drain  changeRunnerCmd `cmd:"" help:"Let it finish what it has and leave."`
	Evict  changeRunnerCmd `cmd:"" help:"Give it up: its leases end at once, and it must enrol anew."`
}

type runnersListCmd struct{}

func (c *runnersListCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	rs, err := api.Runners(s.ctx)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(rs)
	}
	if len(rs) == 0 {
		fmt.Fprintln(s.err, "No runner is registered. Enrol one: execution-plane runner enroll --pool default")
		return nil
	}
	t := table(s.out)
	fmt.Fprintln(t, "RUNNER\tNAME\tVERSION\tPOOL\tSTATUS\tLEASES\tISOLATION\tLAST SEEN\tHOST")
	for _, r := range rs {
		seen := "never"
		if r.LastSeen != nil {
			seen = time.Since(*r.LastSeen).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\n", short(r.RunnerID), printable(r.Name), printable(r.Version), printable(r.Pool), r.Status, r.Leases, r.Slots, strings.Join(r.Isolation, ","), seen, printable(r.Host))
	}
	return t.Flush()
}

type changeRunnerCmd struct {
	ID     string `arg:"" help:"Runner id or a prefix of it."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`

	change string
}

// AfterApply learns which of the four verbs was called.
func (c *changeRunnerCmd) AfterApply(k *kong.Context) error {
	c.change = k.Selected().Name
	return nil
}

func (c *changeRunnerCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	id, err := findRunner(s, api, c.ID)
	if err != nil {
		return err
	}
	r, err := api.ChangeRunner(s.ctx, domain.NewID[domain.CommandID](uuid.New()), id, c.change, c.Reason)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(r)
	}
	fmt.Fprintf(s.out, "runner %s is %s\n", short(id), r.Status)
	return nil
}

func findRunner(s *session, api *client.Client, id string) (domain.RunnerID, error) {
	if full, err := domain.ParseID[domain.RunnerID](id); err == nil {
		return full, nil
	}
	var found []domain.RunnerID
	rs, err := api.Runners(s.ctx)
	if err != nil {
		return domain.RunnerID{}, err
	}
	for _, r := range rs {
		if len(id) >= leastPrefix && strings.HasPrefix(r.RunnerID.String(), id) {
			found = append(found, r.RunnerID)
		}
	}
	if len(found) != 1 {
		return domain.RunnerID{}, &exitError{exitUsage, fmt.Errorf("%d runners begin with %q; list them: execution-plane runners", len(found), id)}
	}
	return found[0], nil
}
