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
	rows, report, err := c.rebuild(s, pool)
	if err != nil {
		return err
	}
	svc, closeStore := directService(pool)
	defer closeStore()
	if err := svc.NoteRebuild(s.ctx, c.Table, rows); err != nil {
		return fmt.Errorf("%s is rebuilt, but that could not be recorded; run it again: %w", c.Table, err)
	}
	if s.isJSON() {
		out := map[string]any{"table": c.Table, "rows": rows}
		if report != nil {
			out["report"] = report
		}
		return s.json(out)
	}
	if report == nil {
		fmt.Fprintf(s.out, "%s rebuilt: %d rows\n", c.Table, rows)
		return nil
	}
	fmt.Fprintf(s.out, "%s rebuilt: %s\n", c.Table, report)
	for _, d := range report.Changed {
		fmt.Fprintln(s.out, "  "+printable(d.String()))
	}
	if report.Omitted > 0 {
		fmt.Fprintf(s.out, "  and %d more\n", report.Omitted)
	}
	return nil
}

// rebuild tells of results more than the number of rows: their bytes were promised
// not to change.
func (c *projectionsRebuildCmd) rebuild(s *session, pool *projections.Pool) (rows int64, report *projections.ResultsRebuilt, err error) {
	if c.Table != projections.ResultsReader {
		rows, err = projections.Rebuild(s.ctx, pool, c.Table)
		return rows, nil, err
	}
	r, err := projections.RebuildResults(s.ctx, pool)
	return r.Rows, &r, err
}
