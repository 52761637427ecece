package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/internal/plane"
)

// forwarderReplayCmd works on the database and the brokers themselves.
type forwarderReplayCmd struct {
	databaseFlag
	kafkaFlags
	From   string   `required:"" help:"Where to begin: a cursor (1.42), a position (42) or a time (2026-01-02T15:04:05Z); that event is published too."`
	Until  string   `help:"Where to end, a cursor; that event is published too. Default: all that was published so far."`
	Types  []string `name:"type" help:"Only events of these types, with commas between."`
	Topics []string `name:"topic" help:"Only these topics, with commas between."`
	Reason string   `short:"r" required:"" help:"Why; it stands in the ledger."`
}

func (c *forwarderReplayCmd) Run(s *session) error {
	kafka, err := c.kafkaFlags.config()
	if err == nil && kafka == nil {
		err = errors.New("--kafka-brokers (EXECUTION_PLANE_KAFKA_BROKERS) is missing: where to publish")
	}
	for _, name := range c.Types {
		if !slices.Contains(domain.EventTypes(), name) {
			err = errors.Join(err, fmt.Errorf("--type: there is no event %q; docs/events.md lists them", name))
		}
	}
	if err != nil {
		return &exitError{exitUsage, err}
	}
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	svc, closeStore := directService(pool)
	defer closeStore()
	r := plane.Replay{Delivery: plane.Delivery{Kafka: kafka, Topics: c.topics(), Source: c.EventSource},
		From: c.From, Until: c.Until, Types: c.Types, Topics: c.Topics, Reason: c.Reason}
	done, err := plane.PublishAgain(s.ctx, pool, svc, r, func(p forwarder.ReplayProgress) {
		if !s.isJSON() {
			fmt.Fprintf(s.err, "published %d events again, up to %s of %s\n", p.Published, p.At, p.Until)
		}
	})
	switch {
	case errors.Is(err, plane.ErrConfig):
		return &exitError{exitUsage, err}
	case err != nil && errors.Is(err, context.Canceled):
		return fmt.Errorf("it ended early; go on with --from %s: %w", done.At, err)
	case err != nil:
		return err
	}
	if s.isJSON() {
		err = s.json(map[string]any{"published": done.Published, "passed_over": done.PassedOver, "refused": done.Refused, "until": done.Until.String()})
	} else if done.PassedOver+done.Refused > 0 {
		fmt.Fprintf(s.out, "The broker refused %d (%s); %d behind them, or of keys that are parked, were passed over. See execution-plane forwarder status\n",
			done.Refused, printable(done.Refusal), done.PassedOver)
	}
	if err == nil && done.Refused > 0 {
		err = &exitError{exitFailed, errors.New("some events could not be published again")}
	}
	return err
}
