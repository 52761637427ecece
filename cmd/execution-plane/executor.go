package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/conformance"
)

type executorCmd struct {
	Run         executorRunCmd         `cmd:"" help:"Give one task to an executor and show what it does."`
	Conformance executorConformanceCmd `cmd:"" help:"Check an executor against the protocol."`
	Serve       executorServeCmd       `cmd:"" hidden:""`
}

type executorServeCmd struct {
	Type string `arg:""`
}

func (executorServeCmd) Run(*session) error { return errProtocolVerb }

type executorRunCmd struct {
	Task string   `short:"t" required:"" type:"existingfile" help:"The task document, JSON."`
	Argv []string `arg:"" passthrough:"" help:"The executor's command."`
}

func (c *executorRunCmd) Run(s *session) error {
	task, err := readTask(c.Task)
	if err != nil {
		return err
	}
	shimArgv, err := selfShim()
	if err != nil {
		return err
	}
	r, err := conformance.RunOnce(s.ctx, withoutDashes(c.Argv), task, conformance.RunOptions{Shim: shimArgv, Stdout: s.err, Stderr: s.err})
	if err != nil {
		return err
	}
	return s.json(r)
}

type executorConformanceCmd struct {
	Task     string   `short:"t" required:"" type:"existingfile" help:"A task that the executor accepts and finishes soon, JSON."`
	LongTask string   `type:"existingfile" help:"A task that runs for a few seconds, for the checks of SIGTERM and of tools."`
	Argv     []string `arg:"" passthrough:"" help:"The executor's command."`
}

func (c *executorConformanceCmd) Run(s *session) error {
	var o conformance.Options
	var err error
	if o.Task, err = readTask(c.Task); err != nil {
		return err
	}
	if c.LongTask != "" {
		long, err := readTask(c.LongTask)
		if err != nil {
			return err
		}
		o.LongTask = &long
	}
	if o.Shim, err = selfShim(); err != nil {
		return err
	}
	r, err := conformance.Check(s.ctx, withoutDashes(c.Argv), o)
	if err != nil {
		return err
	}
	if s.isJSON() {
		err = s.json(r)
	} else {
		for _, x := range r.Findings {
			fmt.Fprintf(s.out, "%s %s: %s\n", mark(string(x.Verdict)), x.Name, printable(x.Explanation))
		}
	}
	if err == nil && !r.Conforms {
		return &exitError{code: exitFailed}
	}
	return err
}

func readTask(path string) (executor.Task, error) {
	var task executor.Task
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &task)
	}
	if err != nil {
		return task, &exitError{exitUsage, fmt.Errorf("read the task %s: %w", path, err)}
	}
	return task, nil
}

// withoutDashes drops the -- that separates the executor's command from ours.
func withoutDashes(argv []string) []string {
	if len(argv) > 0 && argv[0] == "--" {
		return argv[1:]
	}
	return argv
}

func selfShim() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{self, "shim"}, nil
}
