package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
)

type auditCmd struct {
	List auditListCmd `cmd:"" help:"List what operators did and what jobs were let do beyond others, the newest first."`
}

type auditListCmd struct {
	Privileged bool          `help:"Every use of sudo, destructive and elevated jobs, and every act of an operator."`
	Since      time.Duration `help:"Only the last so much time, such as 24h."`
	Limit      int           `default:"100" help:"At most so many; 0 for all there are."`
}

// auditPage is how many facts one request asks for.
const auditPage = 500

func (c *auditListCmd) Run(s *session) error {
	if !c.Privileged {
		return &exitError{exitUsage, errors.New("audit list needs --privileged; execution-plane events prints every event")}
	}
	if c.Limit < 0 || c.Since < 0 {
		return &exitError{exitUsage, errors.New("--limit and --since are not negative")}
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	q := client.AuditQuery{Limit: auditPage}
	if c.Since > 0 {
		q.Since = time.Now().Add(-c.Since)
	}
	all := []wire.AuditFact{}
	for {
		if c.Limit > 0 {
			q.Limit = min(auditPage, c.Limit-len(all))
		}
		page, err := api.Audit(s.ctx, q)
		if err != nil {
			return err
		}
		all = append(all, page.Items...)
		if page.Next == "" || c.Limit > 0 && len(all) >= c.Limit {
			break
		}
		q.After = page.Next
	}
	if s.isJSON() {
		return s.json(all)
	}
	t := table(s.out)
	fmt.Fprintln(t, "TIME\tKIND\tWHO\tEVENT\tSTREAM\tWHY")
	for _, f := range all {
		why := printable(f.Reason)
		if why == "" {
			why = eventGist(f.Event)
		}
		at, _, _ := strings.Cut(f.Event.Time, ".")
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", at, strings.Join(f.Kinds, ","), actorWord(f.Event.Actor), f.Event.Type, printable(f.Event.Stream), why)
	}
	return t.Flush()
}
