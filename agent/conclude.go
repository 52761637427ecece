package agent

import (
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
)

// notLaunched is the end of a started attempt whose executor certainly never ran.
func (at *attempt) notLaunched(err error) ending {
	e := ending{result: string(domain.CodeStartAbandoned), finished: time.Now(), text: err.Error()}
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case at.stop != nil:
		e.result = domain.ClaimStopped
	case at.broken != nil:
		e.result = string(domain.CodeStorageUnavailable)
	}
	return e
}

// endingOf reads the shim's result. The executor's own end counts where it had
// one; otherwise who ended it says what it was.
func (at *attempt) endingOf(r shim.Result) ending {
	if !r.Launched {
		e := at.notLaunched(errText(r.Error))
		e.reaped = &r.Reaped
		return e
	}
	e := ending{launched: true, reaped: &r.Reaped, finished: time.Now(), text: r.Error}
	c, own := r.Conclude()
	code := c.Code
	e.code = &code
	if r.Reason == shim.ReasonShimLost && r.Code == nil && r.Signal == 0 {
		e.code = nil // nobody saw it end
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	switch {
	case at.broken != nil:
		// Part of the job's data is missing, whatever the executor says.
		e.result = string(domain.CodeStorageUnavailable)
	case own:
		e.own = true
		e.result, e.category = string(c.Result), domain.Category(c.RecommendedCategory)
		e.text = c.Message
	case r.Reason == shim.ReasonDisk:
		e.result = string(domain.CodeStorageUnavailable)
		e.text = fmt.Sprintf("its work, output and temporary folder took more than %d bytes, the most that a %s may have", at.box.Disk, at.box.Level)
	case r.Reason == shim.ReasonShimLost:
		e.result = string(executor.ExecutorCrashed)
	case at.stop != nil:
		e.result = domain.ClaimStopped
	case at.drained:
		e.result = string(domain.CodeAgentRestarted)
	case r.Reason == shim.ReasonAgentLost && at.loss == lossNone:
		// This agent is there and the lease is held: the shim was told to end by
		// somebody who may send it signals, which is its executor.
		e.result = string(executor.ExecutorCrashed)
	default:
		// The fence or the shim's own deadline: the lease is lost, and this is
		// claimed only as a late outcome.
		e.result = domain.ClaimStopped
	}
	return e
}

type errText string

func (e errText) Error() string {
	if e == "" {
		return "the executor was not launched"
	}
	return string(e)
}
