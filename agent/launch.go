package agent

import (
	"context"
	"io"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
)

// launcher starts one executor. An error means that nothing was launched; a ctx
// that ends before the executor was ordered prevents it.
type launcher func(ctx context.Context, c shim.Config) (process, error)

// process is a running executor with its shim; *shim.Process gives it. The logs
// and the messages are read to their ends, which wait does not need, then close.
type process interface {
	logs() (stdout, stderr io.Reader)
	messages() <-chan executor.Message
	extend(until isolation.BootTime) error
	// stop ends the tree by the ladder and returns at once.
	stop(l shim.Ladder, note string) error
	wait() shim.Result
	close() error
}

type shimProcess struct{ p *shim.Process }

func launchShim(ctx context.Context, c shim.Config) (process, error) {
	p, err := shim.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return shimProcess{p}, nil
}

func (s shimProcess) logs() (io.Reader, io.Reader)          { return s.p.Stdout, s.p.Stderr }
func (s shimProcess) messages() <-chan executor.Message     { return s.p.Messages }
func (s shimProcess) extend(until isolation.BootTime) error { return s.p.Extend(until) }
func (s shimProcess) stop(l shim.Ladder, note string) error { return s.p.Stop(l, note) }
func (s shimProcess) wait() shim.Result                     { return s.p.Wait() }
func (s shimProcess) close() error                          { return s.p.Close() }

// ladderOf is how the executor of a type is asked to end within budget; SIGKILL
// follows. A tofu that is interrupted twice drops its state, so it gets one
// signal and all the time; ansible's children sit in its process group.
func ladderOf(jobType string, budget time.Duration) shim.Ladder {
	switch jobType {
	case "opentofu":
		return shim.Ladder{{Signal: "SIGINT", To: shim.ToProcess, Wait: budget}}
	case "ansible", "ssh":
		return shim.Ladder{{Signal: "SIGTERM", To: shim.ToGroup, Wait: budget}}
	default:
		return shim.Ladder{{Signal: "SIGTERM", To: shim.ToProcess, Wait: budget}}
	}
}

// fenceLadder fits into the time between the fence and the end of the lease: a
// part of the budget is left for SIGKILL and the proof.
func fenceLadder(jobType string, budget time.Duration) shim.Ladder {
	return ladderOf(jobType, budget-min(budget/2, time.Second))
}
