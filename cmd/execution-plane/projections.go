package main

import (
	"errors"
	"fmt"

	"github.com/platform-core/execution-plane-service/projections"
)

type projectionsCmd struct {
	Check   projectionsCheckCmd   `cmd:"" help:"Compare every table with a fold of the events."`
	Rebuild projectionsRebuildCmd `cmd:"" help:"Make a table what the events say, while the service runs."`
}

type projectionsCheckCmd struct{ databaseFlag }

func (c *projectionsCheckCmd) Run(s *session) error {
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := projections.Check(s.ctx, pool, nil)
	if err != nil && len(r.Differences) == 0 {
		return err
	}
	if s.isJSON() {
		err = errors.Join(err, s.json(r))
	} else {
		fmt.Fprintf(s.out, "%d streams, %d events, %d rows, %d differences\n", r.Streams, r.Events, r.Rows, int64(len(r.Differences))+r.Omitted)
		for _, d := range r.Differences {
			fmt.Fprintln(s.out, "  "+printable(d.String()))
		}
		if r.Omitted > 0 {
			fmt.Fprintf(s.out, "  and %d more\n", r.Omitted)
		}
	}
	if len(r.Differences) > 0 {
		return &exitError{exitVerification, err}
	}
	return err
}

type projectionsRebuildCmd struct {
	databaseFlag
	Table string `arg:"" help:"The table, such as attempt_status."`
}

func (c *projectionsRebuildCmd) Run(s *session) error {
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	rows, err := projections.Rebuild(s.ctx, pool, c.Table)
	if err != nil {
		return err
	}
	svc, closeStore := directService(pool)
	defer closeStore()
	if err := svc.NoteRebuild(s.ctx, c.Table, rows); err != nil {
		return fmt.Errorf("%s is rebuilt, but that could not be recorded; run it again: %w", c.Table, err)
	}
	if s.isJSON() {
		return s.json(map[string]any{"table": c.Table, "rows": rows})
	}
	fmt.Fprintf(s.out, "%s rebuilt: %d rows\n", c.Table, rows)
	return nil
}
