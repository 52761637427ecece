package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

type compareCmd struct {
	ID    string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
	Other string `arg:"" optional:"" help:"The attempt to compare it with; if not given, the one that it repeats (retry_of)."`
}

// comparison is what compare answers with -o json.
type comparison struct {
	A           domain.AttemptID `json:"a"` // the older one
	B           domain.AttemptID `json:"b"`
	Differences []difference     `json:"differences"`
	Same        []string         `json:"same"` // parts in which the two do not differ
	NotCompared []string         `json:"not_compared,omitempty"`
}

// difference is one thing in which two attempts differ; what one of them has not is
// empty.
type difference struct {
	Part string `json:"part"`
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// The parts of an attempt, in the order in which a person asks for them.
const (
	partJob       = "job"
	partPolicy    = "policy"
	partInputs    = "inputs"
	partSecrets   = "secrets"
	partRunner    = "runner"
	partOutcome   = "outcome"
	partContract  = "contract"
	partHosts     = "hosts"
	partEvidence  = "evidence"
	partArtifacts = "artifacts"
)

var parts = []string{partJob, partPolicy, partInputs, partSecrets, partRunner, partOutcome, partContract, partHosts, partEvidence, partArtifacts}

func (c *compareCmd) Run(s *session) error {
	api, b, err := s.target(c.ID)
	if err != nil {
		return err
	}
	a, err := c.other(s, api, b)
	if err != nil {
		return err
	}
	var of [2]*described
	for i, id := range []domain.AttemptID{a, b} {
		if of[i], err = describe(s, api, id); err != nil {
			return err
		}
	}
	if of[1].created.Before(of[0].created) {
		of[0], of[1] = of[1], of[0]
	}
	r := compareAttempts(of[0], of[1])
	if s.isJSON() {
		return s.json(r)
	}
	printComparison(s.out, of[0], of[1], r)
	return nil
}

func (c *compareCmd) other(s *session, api *client.Client, id domain.AttemptID) (domain.AttemptID, error) {
	if c.Other != "" {
		return s.attempt(api, c.Other)
	}
	v, err := api.Attempt(s.ctx, id)
	switch {
	case err != nil:
		return id, err
	case v.RetryOf == nil:
		return id, &exitError{exitUsage, fmt.Errorf("attempt %s repeats no other one; name the one to compare it with: execution-plane compare %s OTHER", short(id), short(id))}
	}
	return *v.RetryOf, nil
}

// compareAttempts finds in what two attempts differ. A part that one of them does not
// show is not compared.
func compareAttempts(a, b *described) comparison {
	r := comparison{A: a.id, B: b.id, Differences: []difference{}, Same: []string{}}
	unknown := map[string]bool{}
	for _, d := range []*described{a, b} {
		for _, why := range d.without {
			r.NotCompared = append(r.NotCompared, short(d.id)+" shows no "+why)
			part, _, _ := strings.Cut(why, ":")
			unknown[part] = true
		}
	}
	for _, part := range parts {
		if unknown[part] {
			continue
		}
		of := [2]map[string]string{a.parts[part], b.parts[part]}
		names := map[string]bool{}
		for _, side := range of {
			for name := range side {
				names[name] = true
			}
		}
		before := len(r.Differences)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if of[0][name] != of[1][name] {
				r.Differences = append(r.Differences, difference{part, name, of[0][name], of[1][name]})
			}
		}
		if before == len(r.Differences) && len(names) > 0 {
			r.Same = append(r.Same, part)
		}
	}
	return r
}

// shownValue is how much of a value a person is shown; -o json has all of it.
const shownValue = 48

func printComparison(w io.Writer, a, b *described, r comparison) {
	fmt.Fprintf(w, "a  %s  %s\nb  %s  %s\n", a.id, a.line, b.id, b.line)
	if len(r.Differences) > 0 {
		t := table(w)
		fmt.Fprintln(t, "PART\tWHAT\tA\tB")
		for _, d := range r.Differences {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Part, clipped(d.What), clipped(d.A), clipped(d.B))
		}
		t.Flush()
	}
	if len(r.Same) > 0 {
		fmt.Fprintf(w, "the same in both: %s\n", strings.Join(r.Same, ", "))
	}
	for _, why := range r.NotCompared {
		fmt.Fprintf(w, "! %s\n", printable(why))
	}
}

func clipped(v string) string {
	if v == "" {
		return "–"
	}
	runes := []rune(strings.NewReplacer("\n", " ", "\t", " ").Replace(printable(v)))
	if len(runes) <= shownValue {
		return string(runes)
	}
	return string(runes[:shownValue-1]) + "…"
}
