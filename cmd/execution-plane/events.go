package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type eventsCmd struct {
	ID     string `arg:"" optional:"" help:"Attempt id, a prefix of it, or @latest; without one: the feed of everything."`
	After  string `help:"Version (of an attempt's stream) or cursor (of the feed) to begin after."`
	Follow bool   `short:"f" help:"Go on as events come."`
	Limit  int    `default:"500" help:"At most so many; 0 for all there are."`
}

// errStop ends a stream in order.
var errStop = errors.New("enough")

func (c *eventsCmd) Run(s *session) error {
	if c.ID == "" {
		return c.feed(s)
	}
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	var after int64
	if c.After != "" {
		if _, err := fmt.Sscan(c.After, &after); err != nil {
			return &exitError{exitUsage, fmt.Errorf("--after: %q is not a version", c.After)}
		}
	}
	if c.Follow {
		tail := api.TailAttemptEvents(s.ctx, id, after)
		defer tail.Close()
		return c.print(s, tail.Next)
	}
	all, err := eventsOf(s, api, id, after, c.Limit)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(all)
	}
	printTimeline(s.out, all)
	return nil
}

// eventsOf reads an attempt's events behind a version, at most limit; 0: all.
func eventsOf(s *session, api *client.Client, id domain.AttemptID, after int64, limit int) (all []wire.Event, err error) {
	for {
		page, err := api.AttemptEvents(s.ctx, id, after, 500)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if page.Next == "" || len(page.Items) == 0 {
			return all, nil
		}
		after = page.Items[len(page.Items)-1].Version
	}
}

func (c *eventsCmd) feed(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	if c.Follow {
		tail := api.TailEvents(s.ctx, c.After)
		defer tail.Close()
		return c.print(s, tail.Next)
	}
	n, last := 0, ""
	next, err := api.Events(s.ctx, c.After, c.Limit, func(e wire.Event) error {
		if err := c.line(s, e); err != nil {
			return err
		}
		if n++; c.Limit > 0 && n == c.Limit {
			last = e.Cursor
			return errStop
		}
		return nil
	})
	if last != "" {
		next = last
	}
	if err != nil && !errors.Is(err, errStop) {
		return err
	}
	if !s.isJSON() && next != "" {
		fmt.Fprintln(s.err, "Go on with: --after", next)
	}
	return nil
}

func (c *eventsCmd) print(s *session, next func() (wire.Event, error)) error {
	for {
		e, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.line(s, e); err != nil {
			return err
		}
	}
}

// line prints one event: a line of JSON, or of words.
func (c *eventsCmd) line(s *session, e wire.Event) error {
	if s.isJSON() {
		return jsonLine(s.out, e)
	}
	_, err := fmt.Fprintf(s.out, "%s  %s  %-28s v%-4d %s  %s\n", e.Cursor, e.Time, shortStream(e.Stream), e.Version, e.Type, eventGist(e))
	return err
}

func shortStream(stream string) string {
	if len(stream) > 28 {
		return stream[:27] + "…"
	}
	return stream
}
