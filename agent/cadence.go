package agent

import (
	"sync"
	"time"
)

// followedFor is how long a log is sent at a follower's pace after the last
// answer that asked for it.
const followedFor = 30 * time.Second

// Where a follower's pace is told. Each says so for itself, because the answers
// may come from replicas of which not all know the follower.
const (
	byReport = iota
	byLog
	tellers
)

// cadence is how often one attempt's log is sent: as often as the service says
// for all, or sooner while somebody follows this one.
type cadence struct {
	mu   sync.Mutex
	told [tellers]pace
}

// pace is what one kind of answer said last; every is 0 where nobody follows.
type pace struct {
	every time.Duration
	heard time.Time
}

// hear takes what an answer says; 0 seconds is the general interval. It reports
// whether the log is wanted sooner than before, so that what waits is looked at
// again.
func (c *cadence) hear(teller, seconds int, general time.Duration) (sooner bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	before := c.intervalLocked(now, general)
	c.told[teller] = pace{time.Duration(max(seconds, 0)) * time.Second, now}
	return c.intervalLocked(now, general) < before
}

func (c *cadence) interval(general time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.intervalLocked(time.Now(), general)
}

func (c *cadence) intervalLocked(now time.Time, general time.Duration) time.Duration {
	least := time.Duration(0)
	for _, p := range c.told {
		if p.every > 0 && now.Sub(p.heard) < followedFor && (least == 0 || p.every < least) {
			least = p.every
		}
	}
	if least == 0 {
		return general
	}
	return least
}

// follow takes an answer's flush interval for this attempt.
func (at *attempt) follow(teller, seconds int) {
	if at.cadence.hear(teller, seconds, at.agent.flushEvery()) && at.spool != nil {
		poke(at.spool.wake)
	}
}

func (at *attempt) flushEvery() time.Duration { return at.cadence.interval(at.agent.flushEvery()) }
