package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/term"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// client connects to the service.
func (s *session) client() (*client.Client, error) {
	token := s.Token
	if s.TokenFile != "" {
		b, err := os.ReadFile(s.TokenFile)
		if err != nil {
			return nil, &exitError{exitUsage, fmt.Errorf("read the token: %w", err)}
		}
		token = strings.TrimSpace(string(b))
	}
	c, err := client.New(client.Config{BaseURL: s.URL, Token: token, UserAgent: "execution-plane/" + version})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return c, nil
}

// json prints an answer as JSON.
func (s *session) json(v any) error {
	e := json.NewEncoder(s.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// raw prints JSON bytes as they came, with a newline.
func (s *session) raw(b []byte) error {
	_, err := fmt.Fprintf(s.out, "%s\n", b)
	return err
}

func (s *session) isJSON() bool { return s.Output == "json" }

// isTerminal reports whether a stream is a terminal that shows progress bars.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// target connects and finds the attempt that a verb is about.
func (s *session) target(id string) (*client.Client, domain.AttemptID, error) {
	c, err := s.client()
	if err != nil {
		return nil, domain.AttemptID{}, err
	}
	found, err := s.attempt(c, id)
	return c, found, err
}

// leastPrefix is the shortest prefix of an attempt id that may stand for it.
const leastPrefix = 4

// attempt finds an attempt by its id, a unique prefix of it, or "@latest".
func (s *session) attempt(c *client.Client, id string) (domain.AttemptID, error) {
	if full, err := domain.ParseID[domain.AttemptID](id); err == nil {
		return full, nil
	}
	var none domain.AttemptID
	q := client.AttemptQuery{Limit: 2}
	if id != "@latest" {
		if len(id) < leastPrefix || strings.Trim(id, "0123456789abcdef-") != "" {
			return none, &exitError{exitUsage, fmt.Errorf("%q is not an attempt id: give the whole id, at least %d leading characters of it, or @latest", id, leastPrefix)}
		}
		q.IDPrefix = id
	}
	page, err := c.Attempts(s.ctx, q)
	if err != nil {
		return none, err
	}
	switch {
	case len(page.Items) == 0:
		return none, &exitError{exitUsage, fmt.Errorf("no attempt begins with %q; list them: execution-plane list", id)}
	case len(page.Items) > 1 && id != "@latest":
		return none, &exitError{exitUsage, fmt.Errorf("several attempts begin with %q, among them %s and %s; give more of the id", id, page.Items[0].AttemptID, page.Items[1].AttemptID)}
	}
	return page.Items[0].AttemptID, nil
}

// database opens the database of verbs that work on it without the service.
func database(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("open the database: %w", err)}
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, &exitError{exitUnreachable, fmt.Errorf("reach the database: %w", err)}
	}
	return pool, nil
}

// databaseFlag is the flag of those verbs.
type databaseFlag struct {
	DatabaseURL string `name:"database-url" env:"EXECUTION_PLANE_DATABASE_URL" required:"" help:"PostgreSQL connection URL."`
}

// short is an id as tables show it.
func short(id fmt.Stringer) string {
	text := id.String()
	if len(text) > 8 {
		return text[:8]
	}
	return text
}

func stateWord(a wire.Attempt) string {
	if a.FailureCode != "" {
		return a.State + " (" + string(a.FailureCode) + ")"
	}
	if a.StopReason != "" && a.FinishedAt == nil {
		return a.State + " (stopping: " + string(a.StopReason) + ")"
	}
	return a.State
}
