package executor

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Control sends messages to the shim. It may be used from many goroutines.
// An error means that the message was refused by the protocol's own bounds, or
// that nobody listens any more; the executor is then about to be ended.
type Control struct {
	mu   sync.Mutex
	w    io.Writer
	done bool
}

// ErrAfterOutcome says that the outcome was sent before: it is the last message.
var ErrAfterOutcome = errors.New("the outcome was sent before; it is the last message")

// NewControl writes messages to w, for tests of executors without a shim.
func NewControl(w io.Writer) *Control { return &Control{w: w} }

// Progress reports where the work stands; total 0 where the end is not known.
func (c *Control) Progress(phase string, done, total int64, message string) error {
	return c.Send(Message{Progress: &Progress{Phase: phase, Done: done, Total: total, Message: message}})
}

// Evidence reports one observation.
func (c *Control) Evidence(e Evidence) error { return c.Send(Message{Evidence: &e}) }

// Artifact announces a finished file.
func (c *Control) Artifact(a Artifact) error { return c.Send(Message{Artifact: &a}) }

// Output announces a result for later steps.
func (c *Control) Output(o Output) error { return c.Send(Message{Output: &o}) }

// Fact records a decision.
func (c *Control) Fact(f Fact) error { return c.Send(Message{Fact: &f}) }

// Send sends any one message. Serve sends the outcome itself.
func (c *Control) Send(m Message) error {
	line, err := EncodeMessage(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return ErrAfterOutcome
	}
	if m.Outcome != nil {
		c.done = true
	}
	if _, err := c.w.Write(line); err != nil {
		return fmt.Errorf("send a message of type %s: %w", m.Kind(), err)
	}
	return nil
}
