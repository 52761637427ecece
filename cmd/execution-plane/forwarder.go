package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type forwarderCmd struct {
	Status forwarderStatusCmd `cmd:"" default:"withargs" help:"Show how publishing to Kafka goes, and what is parked."`
	Retry  forwarderRetryCmd  `cmd:"" help:"Try a parked key again (operator)."`
	Skip   forwarderSkipCmd   `cmd:"" help:"Give up publishing one event that the broker refuses (operator)."`
	Replay forwarderReplayCmd `cmd:"" help:"Publish history again, with the credentials of the database and the brokers."`
}

type forwarderStatusCmd struct{}

func (c *forwarderStatusCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	f, err := api.Forwarder(s.ctx)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(f)
	}
	printForwarder(s.out, f)
	return nil
}

func printForwarder(w io.Writer, f wire.Forwarder) {
	switch {
	case f.Leader == nil && !f.Enabled && f.Checkpoint == "" && len(f.Parked) == 0:
		fmt.Fprintln(w, "Nothing is published: no broker is configured. The same events: execution-plane events")
		return
	case f.Leader == nil:
		fmt.Fprintln(w, "✗ no replica publishes at present")
	case f.Trouble != "":
		fmt.Fprintln(w, "✗ publishing stands still: "+printable(f.Trouble))
	default:
		fmt.Fprintln(w, "✓ events are published")
	}
	t := table(w)
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(t, "  %s\t%s\n", k, v)
		}
	}
	if l := f.Leader; l != nil {
		here := ""
		if l.Here {
			here = ", the replica that answers"
		}
		row("leader", printable(l.Holder)+here)
	}
	row("checkpoint", printable(f.Checkpoint))
	row("end of the feed", printable(f.FeedEnd))
	row("behind", fmt.Sprintf("%d events, %s", f.LagEvents, time.Duration(f.LagSeconds)*time.Second))
	row("topics", printable(strings.Join(f.Topics, ", ")))
	t.Flush()
	if len(f.Parked) > 0 {
		printParked(w, f.Parked)
	}
}

func printParked(w io.Writer, keys []wire.ParkedKey) {
	fmt.Fprintln(w, "Parked: later events of these keys are passed over until they are tried again")
	t := table(w)
	fmt.Fprintln(t, "  TOPIC\tKEY\tREASON\tEVENT\tTYPE\tSTREAM\tSINCE\t")
	for _, k := range keys {
		state := ""
		switch {
		case k.SkippedEvent != nil:
			state = "skipped, to be tried"
		case k.RetryRequested:
			state = "to be tried"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s v%d\t%s\t%s\n", printable(k.Topic), printable(k.Key), printable(k.Reason), k.EventID, printable(k.Type),
			printable(shortStream(k.Stream)), k.Version, time.Duration(k.AgeSeconds)*time.Second, state)
	}
	t.Flush()
	for _, k := range keys {
		if k.Detail != "" {
			fmt.Fprintf(w, "  %s %s: %s\n", printable(k.Topic), printable(k.Key), printable(k.Detail))
		}
	}
	fmt.Fprintln(w, "Next: remove the cause, then execution-plane forwarder retry --topic T --key K --reason …; or give the event up: forwarder skip --topic T --key K --event E --reason …")
}

type parkedFlags struct {
	Topic  string `required:"" help:"Topic, as forwarder status shows it."`
	Key    string `required:"" help:"Key, as forwarder status shows it; * is the whole topic."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`
}

type forwarderRetryCmd struct{ parkedFlags }

func (c *forwarderRetryCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	a, err := api.RetryKey(s.ctx, domain.NewID[domain.CommandID](uuid.New()), wire.RetryRequest{Topic: c.Topic, Key: c.Key, Reason: c.Reason})
	if err != nil {
		return err
	}
	return c.done(s, a, "will be tried again from the refused event on")
}

type forwarderSkipCmd struct {
	parkedFlags
	Event string `required:"" help:"The refused event's id, as forwarder status shows it."`
}

func (c *forwarderSkipCmd) Run(s *session) error {
	event, err := domain.ParseID[domain.EventID](c.Event)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--event: %q is not an event id; see: execution-plane forwarder status", c.Event)}
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	a, err := api.SkipEvent(s.ctx, domain.NewID[domain.CommandID](uuid.New()), wire.SkipRequest{Topic: c.Topic, Key: c.Key, EventID: event, Reason: c.Reason})
	if err != nil {
		return err
	}
	return c.done(s, a, "will be tried again behind the event that is given up")
}

func (f parkedFlags) done(s *session, a wire.Ack, what string) error {
	if s.isJSON() {
		return s.json(a)
	}
	fmt.Fprintf(s.out, "%s of %s %s\nSee: execution-plane forwarder status\n", printable(f.Key), printable(f.Topic), what)
	return nil
}
