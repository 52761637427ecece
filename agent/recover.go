package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
)

// recover takes up the attempts of an earlier agent on this folder. Their
// processes are ended already; cleaned says what was found of them.
func (a *Agent) recover(cleaned []shim.Cleaned) {
	entries, err := os.ReadDir(attemptsDir(a.config.StateDir))
	if err != nil {
		a.config.Log.Error("what an earlier agent left cannot be listed", "error", err)
		return
	}
	left := map[string]shim.Cleaned{}
	for _, c := range cleaned {
		left[c.Dir] = c
	}
	for _, e := range entries {
		dir := filepath.Join(attemptsDir(a.config.StateDir), e.Name())
		j, err := loadJournal(dir)
		if unread := new(fs.PathError); errors.As(err, &unread) && !errors.Is(err, fs.ErrNotExist) {
			a.config.Log.Error("the journal of an earlier agent's attempt cannot be read; its folder stays for the next agent", "dir", dir, "error", err)
			continue
		}
		if err != nil {
			// Without a journal nothing was started: it is written first.
			a.config.Log.Warn("a folder without a readable journal is removed", "dir", dir, "error", err)
			if err := removeTree(dir); err != nil {
				a.config.Log.Error("it does not go; remove it by hand", "dir", dir, "error", err)
			}
			continue
		}
		at := a.newAttempt(dir, j)
		found := left[dir]
		a.begin(at, func() { at.resume(found) })
	}
}

// resume brings an earlier agent's attempt to its end. Nothing of it runs.
func (at *attempt) resume(found shim.Cleaned) {
	defer at.remove()
	at.unfence()
	at.removeInputs()
	was := at.journal.Phase
	at.log.Info("taken up again", "phase", string(was))
	if was == phaseOffered {
		at.release(releaseDeclined)
		return
	}
	if err := at.startSending(); err != nil {
		at.keep = true
		at.log.Error("what an earlier agent spooled cannot be read; the attempt's folder stays for the next agent", "dir", at.dir, "error", err)
		return
	}
	if was == phaseEnded && at.journal.Fenced {
		at.lose(lossFenced) // before a report could renew the lease
	}
	at.mu.Lock()
	at.held = was != phaseLost
	at.mu.Unlock()
	switch was {
	case phaseEnded:
		at.endSpool()
		at.complete()
	case phaseDone:
		at.endSpool()
	case phaseLost:
		at.endSpool()
		at.lose(lossFenced)
	default:
		at.conclude(at.restarted(was, found))
		if was == phaseStarting && at.journal.Phase == phaseLost && at.lossNow() == lossNone {
			at.release(releaseDeclined) // the start never arrived
			return
		}
	}
	at.freeSlot()
	at.sendRest()
}

// restarted is how an attempt ended whose agent crashed under it.
func (at *attempt) restarted(was phase, found shim.Cleaned) ending {
	e := ending{result: string(domain.CodeAgentRestarted), launched: was == phaseLaunched, finished: time.Now(),
		text: "the agent restarted while the job ran"}
	if e.launched {
		// No shim told of the end, so there is no proof.
		e.reaped = &shim.Reaped{Survivors: found.Left, Method: shim.MethodNone, Killed: found.Killed}
	}
	return e
}

// endSpool says that the log has the length that was claimed.
func (at *attempt) endSpool() {
	if err := at.notices.close(); err != nil {
		at.log.Warn("the log is not closed", "error", err)
	}
	if err := at.spool.close(); err != nil {
		at.log.Warn("the log is not closed", "error", err)
	}
	at.artifacts.close()
}
