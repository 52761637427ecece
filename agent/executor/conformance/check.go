package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// Verdict on one check.
type Verdict string

// NotObserved means that the run gave no chance to see it; the explanation
// says what to do. It does not make the report fail.
const (
	Passed      Verdict = "passed"
	Failed      Verdict = "failed"
	NotObserved Verdict = "not_observed"
)

// Finding is the result of one check. Explanation is for people.
type Finding struct {
	Name        string  `json:"name"`
	Verdict     Verdict `json:"verdict"`
	Explanation string  `json:"explanation"`
}

// Report is the result of all checks.
type Report struct {
	Conforms bool      `json:"conforms"`
	Findings []Finding `json:"findings"`
}

// Options of Check.
type Options struct {
	// Shim is the command that runs shim.Main.
	Shim []string
	// Task is one that the executor accepts and finishes soon. Its folders are
	// filled in.
	Task executor.Task
	// LongTask is one that runs for at least a few seconds, for the checks of
	// SIGTERM and of tools. Nil means Task.
	LongTask *executor.Task
	// Grace is what the executor has after SIGTERM; 0 is ten seconds.
	Grace time.Duration
	// Timeout bounds each run; 0 is a minute.
	Timeout time.Duration
	// TempDir takes the runs' folders, which are removed; empty is the system's.
	TempDir string
}

// trial is the state that checks share.
type trial struct {
	argv    []string
	o       Options
	valid   RunReport // of the first check
	missing error     // files that it announced and did not leave
	sampled *sample
}

// Check tries the executor. The error means that it could not be tried at all
// (a wrong command, no folder), or that ctx ended.
func Check(ctx context.Context, argv []string, o Options) (Report, error) {
	if o.Grace <= 0 {
		o.Grace = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	if prefix, _, ok := strings.Cut(o.Task.Action, "."); !ok || prefix == "" {
		return Report{}, fmt.Errorf("try the executor: the task's action %q has no job type prefix", o.Task.Action)
	}
	t := &trial{argv: argv, o: o, sampled: newSample()}
	report := Report{Conforms: true}
	for _, c := range checks {
		verdict, text, err := c.run(ctx, t)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return report, fmt.Errorf("check %s: %w", c.name, err)
		}
		report.Findings = append(report.Findings, Finding{c.name, verdict, text})
		report.Conforms = report.Conforms && verdict != Failed
	}
	return report, nil
}

// once runs a task in a folder of its own. during, if given, is called while
// it runs. look, if given, sees the report while the folder still stands.
func (t *trial) once(ctx context.Context, task executor.Task, during func(*attempt), look func(RunReport)) (RunReport, error) {
	parent, remove, err := tempDir(t.o.TempDir)
	if err != nil {
		return RunReport{}, err
	}
	defer remove()
	parent, err = filepath.Abs(parent)
	if err != nil {
		return RunReport{}, err
	}
	a, err := begin(ctx, t.argv, task, RunOptions{
		Shim: t.o.Shim, Dir: filepath.Join(parent, "attempt"), Timeout: t.o.Timeout,
		Ladder: shim.Ladder{{Signal: "SIGTERM", To: shim.ToProcess, Wait: t.o.Grace}},
	})
	if err != nil {
		return RunReport{}, err
	}
	defer a.process.Close()
	stop := t.sampled.watch(a.process)
	if during != nil {
		during(a)
	}
	r := a.finish(ctx)
	stop()
	if !r.Result.Launched {
		return r, errors.New(r.Result.Error)
	}
	if look != nil {
		look(r)
	}
	return r, nil
}
