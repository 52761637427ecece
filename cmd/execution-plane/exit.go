package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// The exit codes. They never change their meaning.
const (
	exitOK           = 0 // succeeded, and the output contract is confirmed
	exitFailed       = 1
	exitUsage        = 2 // wrong usage, or the request was refused
	exitPolicy       = 3
	exitInfra        = 4 // a lost lease included
	exitTimedOut     = 5
	exitCancelled    = 6
	exitUnconfirmed  = 7 // succeeded, the contract is not confirmed
	exitUnreachable  = 8
	exitVerification = 9
)

// exitError ends the program with a code; without an error it ends in silence,
// since everything has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

// exitCode gives the code of an error.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, client.ErrUnreachable), client.IsUnavailable(err), client.IsOverloaded(err):
		return exitUnreachable
	case isProblem(err):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return exitFailed
	}
	return exitFailed
}

func isProblem(err error) bool {
	var p *client.ProblemError
	return errors.As(err, &p) && p.Problem.Status >= 400 && p.Problem.Status < 500
}

// resultCode gives the code of a result.
func resultCode(r domain.ExecutionResult) int {
	switch r.Status {
	case domain.StatusSucceeded:
		if r.ContractConfirmed() {
			return exitOK
		}
		return exitUnconfirmed
	case domain.StatusTimedOut:
		return exitTimedOut
	case domain.StatusCancelled:
		return exitCancelled
	}
	switch r.ExitSummary.Category {
	case domain.CategoryPolicy:
		return exitPolicy
	case domain.CategoryInfrastructure:
		return exitInfra
	}
	return exitFailed
}

// report says what went wrong and what to do about it.
func report(s *session, err error) {
	var p *client.ProblemError
	if s.Output == "json" {
		out := map[string]any{"error": err.Error()}
		if errors.As(err, &p) {
			out["problem"] = p.Problem
		}
		_ = json.NewEncoder(s.err).Encode(out) // nowhere else to say it
		return
	}
	if !errors.As(err, &p) {
		fmt.Fprintln(s.err, "execution-plane:", plainError(err))
		if errors.Is(err, client.ErrUnreachable) {
			fmt.Fprintf(s.err, "  Is the service up at %s? Start one here: execution-plane serve --dev\n", s.URL)
		}
		return
	}
	fmt.Fprintln(s.err, "execution-plane:", problemText(p.Problem))
	for _, v := range p.Problem.Violations {
		fmt.Fprintf(s.err, "  %s %s\n", orRoot(v.Pointer), v.Message)
	}
	if p.Problem.Next != "" {
		fmt.Fprintln(s.err, "  Next:", p.Problem.Next)
	} else if p.Problem.Status == 401 {
		fmt.Fprintln(s.err, "  Next: set EXECUTION_PLANE_TOKEN, or use --token-file")
	}
}

func problemText(p wire.Problem) string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if p.Pointer != "" {
		text = p.Pointer + ": " + text
	}
	return fmt.Sprintf("%s (%d %s)", text, p.Status, p.Code)
}

func orRoot(pointer string) string {
	if pointer == "" {
		return "(the whole document)"
	}
	return pointer
}

// plainError keeps control characters of foreign text out of the terminal.
func plainError(err error) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0x7f {
			return '�'
		}
		return r
	}, err.Error())
}
