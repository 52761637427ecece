package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type callbacksCmd struct {
	List      callbacksListCmd   `cmd:"" default:"withargs" help:"List callbacks, the last scheduled first."`
	Show      callbacksShowCmd   `cmd:"" help:"Show one callback with its tries."`
	Replay    callbacksReplayCmd `cmd:"" help:"Deliver a result once more, or those of a range (operator)."`
	Endpoints endpointsCmd       `cmd:"" help:"Show where results are delivered, and how that goes."`
	Stop      changeEndpointCmd  `cmd:"" help:"Let an endpoint's callbacks wait (operator)."`
	Resume    changeEndpointCmd  `cmd:"" help:"Deliver to an endpoint again (operator)."`
}

type callbacksListCmd struct {
	Endpoint string `help:"Only this endpoint."`
	State    string `enum:",pending,delivered,exhausted" default:"" help:"Only this state: pending, delivered or exhausted."`
	Attempt  string `help:"Only of this attempt: its id, a prefix of it, or @latest."`
	Limit    int    `default:"50" help:"At most so many, 1 to 500."`
	After    string `help:"Cursor of the page before."`
}

func (c *callbacksListCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	q := client.CallbackQuery{Endpoint: c.Endpoint, State: domain.CallbackState(c.State), Limit: c.Limit, After: c.After}
	if c.Attempt != "" {
		if q.AttemptID, err = s.attempt(api, c.Attempt); err != nil {
			return err
		}
	}
	page, err := api.Callbacks(s.ctx, q)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(page)
	}
	if len(page.Items) == 0 {
		fmt.Fprintln(s.err, "No callbacks. Where results would go: execution-plane callbacks endpoints")
		return nil
	}
	t := table(s.out)
	fmt.Fprintln(t, "CALLBACK\tENDPOINT\tATTEMPT\tSTATE\tTRIES\tNEXT\tLAST\tSCHEDULED")
	for _, x := range page.Items {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", x.CallbackID, printable(x.Endpoint), short(x.AttemptID), callbackWord(x), x.Tries,
			until(x.NextAt), lastWord(x.LastStatus, x.LastError), x.ScheduledAt.Format(time.RFC3339))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Fprintf(s.err, "More: --after %s\n", page.Next)
	}
	return nil
}

// callbackWord is a callback's state, with its round where it was replayed.
func callbackWord(c wire.Callback) string {
	if c.Round > 1 {
		return fmt.Sprintf("%s (round %d)", c.State, c.Round)
	}
	return string(c.State)
}

// lastWord is what the last try gave.
func lastWord(status int, class string) string {
	switch {
	case status > 0 && class != "":
		return fmt.Sprintf("%d %s", status, printable(class))
	case status > 0:
		return fmt.Sprint(status)
	}
	return printable(class)
}

// until is how long it is until a moment.
func until(at *time.Time) string {
	if at == nil {
		return ""
	}
	if d := time.Until(*at).Round(time.Second); d > 0 {
		return "in " + d.String()
	}
	return "now"
}

type callbacksShowCmd struct {
	ID string `arg:"" help:"Callback id, as callbacks list shows it."`
}

func (c *callbacksShowCmd) Run(s *session) error {
	id, err := callbackID(c.ID)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	x, err := api.Callback(s.ctx, id)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(x)
	}
	printCallback(s.out, x)
	return nil
}

func callbackID(text string) (domain.CallbackID, error) {
	id, err := domain.ParseID[domain.CallbackID](text)
	if err != nil {
		err = &exitError{exitUsage, fmt.Errorf("%q is not a callback id; list them: execution-plane callbacks list", text)}
	}
	return id, err
}

func printCallback(w io.Writer, x wire.CallbackHistory) {
	fmt.Fprintf(w, "%s  to %s\n", callbackWord(x.Callback), printable(x.Endpoint))
	t := table(w)
	row := func(k, v string) {
		if v != "" {
			fmt.Fprintf(t, "  %s\t%s\n", k, v)
		}
	}
	row("callback", x.CallbackID.String())
	row("attempt", x.AttemptID.String())
	row("result", fmt.Sprintf("%d bytes, SHA-256 %s", x.ResultBytes, printable(x.ResultSHA256)))
	row("next try", until(x.NextAt))
	if x.State == domain.CallbackPending {
		row("given up", x.GiveUpAt.Format(time.RFC3339)+", if nothing takes it before")
	}
	t.Flush()
	if x.Omitted > 0 {
		fmt.Fprintf(w, "  (%d older entries are left out)\n", x.Omitted)
	}
	t = table(w)
	for _, e := range x.History {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", e.At.Format(time.RFC3339), e.Event, actorWord(e.Actor), historyGist(e))
	}
	t.Flush()
	if x.State == domain.CallbackAbandoned {
		fmt.Fprintf(w, "Deliver it again: execution-plane callbacks replay %s --reason …\n", x.CallbackID)
	}
}

func historyGist(e wire.CallbackEvent) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if e.Try > 0 {
		add("round %d, try %d", e.Round, e.Try)
	} else if e.Round > 1 {
		add("round %d", e.Round)
	}
	if last := lastWord(e.Status, e.ErrorClass); last != "" {
		add("%s", last)
	}
	if e.LatencyMS != nil {
		add("%d ms", *e.LatencyMS)
	}
	if e.NextAt != nil {
		add("next %s", e.NextAt.Format(time.TimeOnly))
	}
	if e.Reason != "" {
		add("%s", printable(e.Reason))
	}
	return strings.Join(parts, ", ")
}

type endpointsCmd struct{}

func (c *endpointsCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	all, err := api.CallbackEndpoints(s.ctx)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(all)
	}
	if len(all.Items) == 0 {
		fmt.Fprintln(s.err, "No callback endpoint is configured at this replica, and no callback waits. Results can be read: GET /v1/results")
		return nil
	}
	t := table(s.out)
	fmt.Fprintln(t, "ENDPOINT\tSTATE\tORIGIN\tFOR\tPENDING\tOLDEST\tEXHAUSTED\tLAST ERROR")
	for _, e := range all.Items {
		oldest := ""
		if e.OldestPending != nil {
			oldest = time.Since(*e.OldestPending).Round(time.Second).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n", printable(e.Name), endpointWord(e), printable(e.Origin), endpointFor(e), e.Pending, oldest, e.Exhausted, senderWord(e.Sender))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if all.Trouble != "" {
		fmt.Fprintf(s.out, "✗ new results get no callbacks: %s\n", printable(all.Trouble))
	}
	if all.Unknown > 0 {
		fmt.Fprintf(s.out, "! results that named an endpoint which is not configured: %d\n", all.Unknown)
	}
	return nil
}

func endpointWord(e wire.CallbackEndpoint) string {
	if e.Cause == "" {
		return e.State
	}
	word := e.State + " (" + e.Cause
	if e.StoppedAt != nil {
		word += " since " + e.StoppedAt.Format(time.RFC3339)
	}
	return word + ")"
}

// endpointFor says whose results an endpoint gets.
func endpointFor(e wire.CallbackEndpoint) string {
	var parts []string
	if e.OnlyNamed {
		parts = append(parts, "jobs that name it")
	}
	if len(e.JobTypes) > 0 {
		parts = append(parts, strings.Join(e.JobTypes, ","))
	}
	if len(e.Environments) > 0 {
		parts = append(parts, "in "+strings.Join(e.Environments, ","))
	}
	if len(parts) == 0 && e.Origin != "" {
		return "all jobs"
	}
	return printable(strings.Join(parts, " "))
}

func senderWord(x *wire.CallbackSender) string {
	if x == nil {
		return ""
	}
	var parts []string
	if x.FailuresInRow > 0 {
		parts = append(parts, fmt.Sprintf("%s, %d in a row", printable(x.LastError), x.FailuresInRow))
	}
	if x.SecretProblem != "" {
		parts = append(parts, "secret: "+printable(x.SecretProblem))
	}
	return strings.Join(parts, "; ")
}

type changeEndpointCmd struct {
	Endpoint string `arg:"" help:"Name of the endpoint."`
	Reason   string `short:"r" required:"" help:"Why; it is recorded."`

	change string
}

// AfterApply learns which of the two verbs was called.
func (c *changeEndpointCmd) AfterApply(k *kong.Context) error {
	c.change = k.Selected().Name
	return nil
}

func (c *changeEndpointCmd) Run(s *session) error {
	if !domain.ValidEndpointName(c.Endpoint) {
		return &exitError{exitUsage, fmt.Errorf("%q is not the name of an endpoint; list them: execution-plane callbacks endpoints", c.Endpoint)}
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	e, err := api.ChangeEndpoint(s.ctx, domain.NewID[domain.CommandID](uuid.New()), c.Endpoint, c.change, c.Reason)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(e)
	}
	fmt.Fprintf(s.out, "endpoint %s: %s, %d callbacks pending\n", printable(e.Name), endpointWord(e), e.Pending)
	return nil
}

// deliveryGist is the one fact of an event about deliveries or publishing.
func deliveryGist(e domain.Event) string {
	answer := func(a domain.CallbackAnswer, class string) string {
		return fmt.Sprintf("round %d, try %d, %s, %d ms", a.Round, a.Try, lastWord(a.Status, class), a.LatencyMS)
	}
	switch d := e.(type) {
	case domain.CallbackScheduled:
		return fmt.Sprintf("%s of %s", printable(d.Endpoint), short(d.AttemptID))
	case domain.CallbackDelivered:
		return answer(d.CallbackAnswer, "")
	case domain.CallbackFailed:
		text := answer(d.CallbackAnswer, d.ErrorClass)
		if d.NextAt != nil {
			text += ", next " + d.NextAt.UTC().Format(time.TimeOnly)
		}
		return text
	case domain.CallbackExhausted:
		return fmt.Sprintf("round %d, %d tries, %s", d.Round, d.Tries, printable(d.Reason))
	case domain.CallbackReplayed:
		return fmt.Sprintf("round %d begins", d.Round)
	case domain.EndpointStopped:
		return printable(d.Endpoint) + ": " + printable(d.Cause)
	case domain.EndpointResumed:
		return printable(d.Endpoint)
	case domain.ForwarderParked:
		return fmt.Sprintf("%s of %s: %s at %s version %d", printable(d.Key), printable(d.Topic), printable(d.Reason), printable(shortStream(d.Stream)), d.Version)
	case domain.ForwarderRetryRequested:
		return fmt.Sprintf("%s of %s", printable(d.Key), printable(d.Topic))
	case domain.ForwarderEventSkipped:
		return fmt.Sprintf("%s of %s: event %s", printable(d.Key), printable(d.Topic), short(d.EventID))
	case domain.ForwarderUnparked:
		return fmt.Sprintf("%s of %s, %d published", printable(d.Key), printable(d.Topic), d.Published)
	case domain.ForwarderReplayed:
		return fmt.Sprintf("from %s to %s", printable(d.From), printable(d.Until))
	}
	return ""
}

// printCallbacks shows where an attempt's result was delivered.
func printCallbacks(w io.Writer, all []wire.AttemptCallback) {
	for _, c := range all {
		text := fmt.Sprintf("  callback to %s: %s, tries: %d", printable(c.Endpoint), c.State, c.Tries)
		if c.LastError != "" {
			text += ", last " + printable(c.LastError)
		}
		if c.NextAt != nil {
			text += ", next " + until(c.NextAt)
		}
		fmt.Fprintln(w, text)
	}
}

var errWhichCallbacks = &exitError{exitUsage, errors.New("say what is to be delivered again: a callback id, or --endpoint with --since or --after")}
