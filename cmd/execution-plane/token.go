package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token; it is shown once."`
	List   tokenListCmd   `cmd:"" help:"List tokens."`
	Revoke tokenRevokeCmd `cmd:"" help:"End a token; every replica knows it within five seconds."`
}

type tokenCreateCmd struct {
	Name        string        `arg:"" help:"Who will use it."`
	Role        string        `required:"" enum:"control-plane,auditor,viewer,operator" help:"control-plane, auditor, viewer or operator."`
	Expires     time.Duration `help:"How long it is good; default for ever."`
	DatabaseURL string        `name:"database-url" env:"EXECUTION_PLANE_DATABASE_URL" help:"Make it in the database itself: for the first token of a deployment."`
}

func (c *tokenCreateCmd) Run(s *session) error {
	var token wire.TokenSecret
	if c.DatabaseURL != "" && s.Token == "" && s.TokenFile == "" {
		if c.Expires != 0 {
			return &exitError{exitUsage, errors.New("--expires is for tokens made through the service")}
		}
		secret, err := c.direct(s)
		if err != nil {
			return err
		}
		token.Token = secret
	} else {
		api, err := s.client()
		if err != nil {
			return err
		}
		if token, err = api.CreateToken(s.ctx, domain.NewID[domain.CommandID](uuid.New()), wire.TokenRequest{Name: c.Name, Role: c.Role, ExpiresSeconds: int(c.Expires / time.Second)}); err != nil {
			return err
		}
	}
	if s.isJSON() {
		return s.json(map[string]string{"token": token.Token, "role": c.Role, "name": c.Name})
	}
	fmt.Fprintln(s.out, token.Token)
	fmt.Fprintln(s.err, "This is shown once. Keep it out of command lines: export EXECUTION_PLANE_TOKEN=…")
	return nil
}

func (c *tokenCreateCmd) direct(s *session) (string, error) {
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	svc, closeStore := directService(pool)
	defer closeStore()
	return plane.IssueToken(s.ctx, svc, c.Name, c.Role)
}

// directService is the service's commands on the database itself, for verbs that
// work without it.
func directService(pool *pgxpool.Pool) (svc *commands.Service, closeStore func()) {
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	return commands.New(commands.Config{
		Store: store, Index: commands.NewIndex(projections.NewReader(pool)), Policy: policy.Builtin, Actions: runners.Catalogue(), Profile: domain.DefaultProfile(),
	}), store.Close
}

type tokenListCmd struct{}

func (c *tokenListCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	ts, err := api.Tokens(s.ctx)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(ts)
	}
	t := table(s.out)
	fmt.Fprintln(t, "TOKEN\tNAME\tROLE\tPOOL\tCREATED\tSTATE")
	for _, x := range ts {
		state := "good"
		switch {
		case x.RevokedAt != nil:
			state = "revoked " + x.RevokedAt.Format(time.RFC3339)
		case x.ExpiresAt != nil && x.ExpiresAt.Before(time.Now()):
			state = "expired"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", x.TokenID, printable(x.Name), x.Role, printable(x.Pool), x.CreatedAt.Format(time.RFC3339), state)
	}
	return t.Flush()
}

type tokenRevokeCmd struct {
	ID     string `arg:"" help:"Token id, as token list shows it."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`
}

func (c *tokenRevokeCmd) Run(s *session) error {
	id, err := domain.ParseID[domain.TokenID](c.ID)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	if _, err := api.RevokeToken(s.ctx, domain.NewID[domain.CommandID](uuid.New()), id, c.Reason); err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(map[string]string{"token_id": c.ID, "state": "revoked"})
	}
	fmt.Fprintln(s.out, "revoked; every replica knows it within five seconds")
	return nil
}
