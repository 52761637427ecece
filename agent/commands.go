package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// slotToken is a lease token that waits for an offer. It is kept until an offer
// used it, so that a lost answer is asked for again with the same hashes.
type slotToken struct{ secret, sha256 string }

// How a request says what the agent knows: the id of a lease that it holds, so
// that it hears when that is over, stop/<id> for a stop that it carries out, and
// the drain. A drain that is known is not told again, so its end is found out by
// asking once without. revoke/<attempt id> stands for tokens that it revokes.
const (
	knownStop  = "stop/"
	knownDrain = "drain"
)

// maxAttempts is how many attempts one agent may have at all: a report names each,
// and the service takes no longer one.
const maxAttempts = 1000

// commandLoop holds one request at a time. It is asked anew at once when a slot
// becomes free or the agent begins to drain.
func (a *Agent) commandLoop() {
	failures := 0
	for a.life.Err() == nil {
		began := time.Now()
		answer, err := a.askCommands()
		switch {
		case err == nil:
			failures = 0
			empty := len(answer.Offers)+len(answer.Stops)+len(answer.Gone) == 0
			a.obey(answer)
			a.answeredInDrain()
			if empty && time.Since(began) < firstPause {
				// A service that does not hold must not be asked in a circle.
				_ = sleep(a.life, firstPause)
			}
		case a.life.Err() != nil:
			return
		case errors.Is(err, errAskAnew):
			failures = 0
		default:
			if identityRefused(err) {
				a.reidentify(err)
			}
			_ = sleep(a.life, pause(failures, err))
			failures++
		}
	}
}

var errAskAnew = errors.New("the request was given up to ask anew")

// askCommands holds one request; errAskAnew when something changed meanwhile.
func (a *Agent) askCommands() (wire.Commands, error) {
	select {
	case <-a.slotFreed: // what changed before now is in the request
	default:
	}
	req := a.commandsRequest()
	a.mu.Lock()
	wait := time.Duration(a.timing.WaitSeconds) * time.Second
	a.mu.Unlock()
	wait = min(max(wait, time.Second), 30*time.Second)
	ctx, cancel := context.WithTimeout(a.life, wait+callTimeout)
	defer cancel()
	anew := false
	done := make(chan struct{})
	watcher := make(chan struct{})
	go func() {
		defer close(watcher)
		select {
		case <-a.slotFreed:
			anew = true
			cancel()
		case <-done:
		}
	}()
	answer, err := a.plane().Commands(ctx, a.cred.RunnerID, wait, req)
	close(done)
	<-watcher
	if err != nil && anew {
		return answer, errAskAnew
	}
	return answer, err
}

func (a *Agent) commandsRequest() wire.CommandsRequest {
	req := wire.CommandsRequest{TokenSHA256: []string{}}
	busy := a.busy()
	for _, at := range a.list() {
		at.mu.Lock()
		if at.held && at.loss <= lossFenced {
			req.Known = append(req.Known, at.lease.ID.String())
		}
		if at.stop != nil {
			req.Known = append(req.Known, knownStop+at.lease.ID.String())
		}
		at.mu.Unlock()
	}
	low := a.diskLow()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planeDrain {
		req.Known = append(req.Known, knownDrain)
	}
	for id := range a.revokes {
		req.Known = append(req.Known, knownRevoke+id.String())
	}
	// An agent that was told to end asks with its tokens until it is sure that no
	// offer is under way; what comes it gives back.
	closed := a.settled || a.planeDrain || a.killed || a.refused
	free, room := max(0, a.slots-busy), min(a.slots+a.config.maxSending, maxAttempts)-len(a.attempts)
	a.askedLess.Store(low || room < free)
	if closed || a.spooled.full() || low {
		return req
	}
	req.FreeSlots = max(0, min(free, room))
	for len(a.tokens) < req.FreeSlots {
		secret := newSecret()
		a.tokens = append(a.tokens, slotToken{secret, secretSHA256(secret)})
	}
	for _, t := range a.tokens[:req.FreeSlots] {
		req.TokenSHA256 = append(req.TokenSHA256, t.sha256)
	}
	return req
}

// obey does what an answer says. Everything is addressed by lease: what is not
// held here is ignored.
func (a *Agent) obey(c wire.Commands) {
	a.mu.Lock()
	if c.Drain != a.planeDrain {
		a.config.Log.Debug("the service's drain", "drain", c.Drain)
	}
	a.planeDrain = c.Drain
	a.mu.Unlock()
	for _, o := range c.Offers {
		a.take(o)
	}
	for _, s := range c.Stops {
		if at := a.find(s.LeaseID); at != nil && at.lease.Epoch == s.Epoch {
			at.requestStop(s)
		}
	}
	for _, r := range c.Revoke {
		a.takeRevoke(r)
	}
	for _, id := range c.Gone {
		if at := a.find(id); at != nil {
			at.gone()
		}
	}
}

func (a *Agent) find(id domain.LeaseID) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.attempts[id]
}

// take begins an offer that used one of our tokens. One that is already held is
// the repeated answer to a lost one; one with another hash is not ours.
func (a *Agent) take(o wire.Offer) {
	if a.find(o.LeaseID) != nil {
		return
	}
	token, ok := a.useToken(o.TokenSHA256)
	if !ok {
		a.config.Log.Warn("an offer names a token that is not waiting here; it is ignored", "attempt_id", o.AttemptID.String(), "epoch", o.Epoch)
		return
	}
	j := &journal{
		AttemptID: o.AttemptID, LeaseID: o.LeaseID, Epoch: o.Epoch, Token: token,
		Clocks: o.Clocks, PolicyDigest: o.PolicyDigest, Phase: phaseOffered,
	}
	at := a.newAttempt(attemptDir(a.config.StateDir, o.AttemptID, o.Epoch), j)
	at.offer = o
	at.specErr = json.Unmarshal(o.JobSpec, &at.spec)
	j.JobType = at.spec.JobType
	at.log.Info("offered")
	a.begin(at, at.run)
}

func (a *Agent) useToken(sha256 string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, t := range a.tokens {
		if t.sha256 == sha256 {
			a.tokens = append(a.tokens[:i:i], a.tokens[i+1:]...)
			return t.secret, true
		}
	}
	return "", false
}
