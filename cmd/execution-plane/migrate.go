package main

import (
	"fmt"

	"github.com/platform-core/execution-plane-service/migrations"
)

type migrateCmd struct {
	databaseFlag
	Check bool `help:"Only say how many migrations are pending; exit code 1 if any."`
}

func (c *migrateCmd) Run(s *session) error {
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	pending, err := migrations.Check(s.ctx, pool)
	if err != nil {
		return err
	}
	if !c.Check {
		if err := migrations.Up(s.ctx, pool); err != nil {
			return err
		}
	}
	if s.isJSON() {
		err = s.json(map[string]any{"pending": pending, "applied": !c.Check})
	} else if c.Check {
		fmt.Fprintf(s.out, "%d migrations pending\n", pending)
	} else {
		fmt.Fprintf(s.out, "%d migrations applied; the schema is up to date\n", pending)
	}
	if err == nil && c.Check && pending > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}
