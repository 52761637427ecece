package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/platform-core/execution-plane-service/ledger"
)

type verifyCmd struct {
	databaseFlag
}

func (c *verifyCmd) Run(s *session) error {
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	r, err := ledger.Verify(s.ctx, pool, verifyProgress(s))
	if err != nil && r.OK() {
		return err
	}
	// Also a verification that could not go on says what it had found.
	if s.isJSON() {
		err = errors.Join(err, s.json(r))
	} else {
		printVerification(s.out, r)
	}
	if !r.OK() {
		return &exitError{exitVerification, err}
	}
	return err
}

func verifyProgress(s *session) func(string, int, int) {
	if !isTerminal(s.err) || s.isJSON() {
		return nil
	}
	return func(what string, done, of int) {
		fmt.Fprintf(s.err, "\r%-12s %d/%d \x1b[K", what, done, of)
		if done == of {
			fmt.Fprint(s.err, "\r\x1b[K")
		}
	}
}

func printVerification(w io.Writer, r ledger.Report) {
	if r.OK() {
		fmt.Fprintf(w, "✓ ledger verified: %d streams, %d events, every hash, head and feed entry, %d texts; %d projected rows equal a fold of the events\n", r.Streams, r.Events, r.Texts, r.Rows)
		return
	}
	fmt.Fprintf(w, "✗ the ledger is not what it should be: %d faults, %d projected rows differ\n", len(r.Faults), len(r.Differences))
	for _, f := range r.Faults {
		fmt.Fprintln(w, "  "+printable(f.String()))
	}
	for _, d := range r.Differences {
		fmt.Fprintln(w, "  "+printable(d.String()))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.Omitted)
	}
	if len(r.Differences) > 0 && len(r.Faults) == 0 {
		fmt.Fprintln(w, "  Next: execution-plane projections rebuild TABLE; the events are whole")
	}
}

// jsonLine prints one value as one line of JSON.
func jsonLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
