package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

type callbacksReplayCmd struct {
	ID       string   `arg:"" optional:"" help:"Callback id, as callbacks list shows it; without one: a range of an endpoint."`
	Endpoint string   `help:"Endpoint whose results are delivered again; also results of before it was configured."`
	Since    string   `help:"Attempts that ended since then: a time (RFC 3339) or an age such as 24h."`
	Until    string   `help:"Attempts that ended before then: a time, an age, or a cursor that is the last one."`
	After    string   `help:"Cursor of the feed to begin behind, as /v1/results gives it; 0.0 for all there is."`
	State    []string `enum:"pending,delivered,exhausted" help:"Only callbacks in these states. Default: all, and results that have no callback yet."`
	Page     int      `default:"200" help:"Results that one request looks at, 1 to 500."`
	Reason   string   `short:"r" required:"" help:"Why; it is recorded."`
}

func (c *callbacksReplayCmd) Run(s *session) error {
	if c.ID != "" {
		return c.one(s)
	}
	r, err := c.request(time.Now())
	if err != nil {
		return err
	}
	return c.pages(s, r)
}

func (c *callbacksReplayCmd) one(s *session) error {
	if c.Endpoint+c.Since+c.Until+c.After != "" || len(c.State) > 0 {
		return &exitError{exitUsage, errors.New("a callback id goes with --reason alone")}
	}
	id, err := callbackID(c.ID)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	x, err := api.ReplayCallback(s.ctx, domain.NewID[domain.CommandID](uuid.New()), id, c.Reason)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(x)
	}
	fmt.Fprintf(s.out, "callback %s to %s: %s\n", x.CallbackID, printable(x.Endpoint), callbackWord(x))
	return nil
}

// request is the first page.
func (c *callbacksReplayCmd) request(now time.Time) (r wire.ReplayRequest, err error) {
	if c.Endpoint == "" || c.Since+c.After == "" {
		return r, errWhichCallbacks
	}
	r = wire.ReplayRequest{Endpoint: c.Endpoint, After: c.After, Reason: c.Reason, Limit: c.Page}
	for _, st := range c.State {
		r.States = append(r.States, domain.CallbackState(st))
	}
	if c.Since != "" {
		if r.Since, err = momentOf(c.Since, now); err != nil {
			return r, &exitError{exitUsage, fmt.Errorf("--since: %w", err)}
		}
	}
	if _, cursor := eventstore.ParseCursor(c.Until); c.Until != "" && cursor == nil {
		r.Until = c.Until
	} else if c.Until != "" {
		if r.To, err = momentOf(c.Until, now); err != nil {
			return r, &exitError{exitUsage, fmt.Errorf("--until: %w", err)}
		}
	}
	return r, nil
}

// momentOf reads a time, or how long ago it was.
func momentOf(text string, now time.Time) (*time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		t := now.Add(-age).UTC()
		return &t, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a time such as 2026-01-31T12:00:00Z nor an age such as 24h", text)
	}
	return &t, nil
}

// pages goes through the range and tells how far it is.
func (c *callbacksReplayCmd) pages(s *session, r wire.ReplayRequest) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	total := wire.ReplayAnswer{Refused: []wire.ReplayRefusal{}}
	for begun := false; ; begun = true {
		p, err := replayPage(s, api, r)
		if err != nil {
			if begun {
				fmt.Fprintf(s.err, "What was done before is recorded. Go on with: --after %s\n", r.After)
			}
			return err
		}
		total.Scheduled += p.Scheduled
		total.Replayed += p.Replayed
		total.PassedOver += p.PassedOver
		total.Refused = append(total.Refused, p.Refused...)
		if p.Next == nil {
			break
		}
		r.After = *p.Next
		if !s.isJSON() {
			fmt.Fprintf(s.err, "  … %d replayed, %d scheduled, %d passed over, at %s\n", total.Replayed, total.Scheduled, total.PassedOver, printable(r.After))
		}
	}
	if s.isJSON() {
		err = s.json(total)
	} else {
		fmt.Fprintf(s.out, "%s: %d replayed, %d scheduled for the first time, %d passed over\n", r.Endpoint, total.Replayed, total.Scheduled, total.PassedOver)
		for _, x := range total.Refused {
			fmt.Fprintf(s.out, "  ✗ %s: %s (%s)\n", x.AttemptID, printable(x.Detail), printable(x.Code))
		}
	}
	if err == nil && len(total.Refused) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// replayPauses are the waits before a page is sent again whose answer was lost.
var replayPauses = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// replayPage sends one page, again under the same key where its answer was lost: a
// page that is sent twice has one effect.
func replayPage(s *session, api *client.Client, r wire.ReplayRequest) (wire.ReplayAnswer, error) {
	key := domain.NewID[domain.CommandID](uuid.New())
	for try := 0; ; try++ {
		p, err := api.ReplayResults(s.ctx, key, r)
		if err == nil || try >= len(replayPauses) || !errors.Is(err, client.ErrUnreachable) && !client.IsUnavailable(err) {
			return p, err
		}
		t := time.NewTimer(replayPauses[try])
		select {
		case <-s.ctx.Done():
			t.Stop()
			return p, err
		case <-t.C:
		}
	}
}
