package main

import (
	"context"
	"fmt"
	"strings"
)

// part is one thing that is measured.
type part struct {
	name string
	what string
	// once: what the disk of PostgreSQL does changes nothing worth a second run.
	once bool
	run  func(ctx context.Context, b *bench) error
}

func parts() []part {
	return []part{
		{name: "append", what: "appends of one command beside bare INSERTs of the same rows", run: appends},
		{name: "group", what: "group commit beside COPY into the same tables", run: groups},
		{name: "jobs", what: "whole jobs through the API beside River's", run: lifecycles},
		{name: "latency", what: "submit to start at rest beside three commits", run: latencies},
		{name: "versions", what: "a command on a long stream beside one on a short", run: longStreams},
		{name: "held", what: "requests that wait for work", once: true, run: holds},
		{name: "log", what: "log through the service beside plain objects", once: true, run: logs},
		{name: "ledger", what: "verification and feed beside a plain SELECT", once: true, run: readLedger},
		{name: "forward", what: "publishing to Kafka beside the stock path and a bare producer", once: true, run: forwarding},
		{name: "backlog", what: "publishing and results out of a small and a large backlog", once: true, run: backlogs},
		{name: "delivery", what: "commit to broker at a steady rate, alone and beside a poisoned key", once: true, run: deliveries},
		{name: "callbacks", what: "calls to a receiver, alone and beside one that is dead", once: true, run: callingBack},
	}
}

func partNames() []string {
	var out []string
	for _, p := range parts() {
		out = append(out, p.name)
	}
	return out
}

// pick finds parts by their names; "" is all of them.
func pick(names string) ([]part, error) {
	if names == "" {
		return parts(), nil
	}
	var out []part
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, p := range parts() {
			if p.name == name {
				out, found = append(out, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no part %q; the parts are %s", name, strings.Join(partNames(), ", "))
		}
	}
	return out, nil
}
