package sshaccess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// slack is how long the host may take for what it does beside waiting. A stop takes
// at most twice that and the grace.
const slack = 6 * time.Second

// stop ends the program and everything that it started, and finds out whether it is
// gone. A signal by the protocol would not do: sshd passes none on for root, and
// only to the one process. Another session ends the tree instead.
func (r *run) stop() {
	start := time.Now()
	group, began := r.out.group()
	if !began {
		// The script ends by its input what it may be about to start; only a script
		// that has ended starts nothing more.
		r.shell.hangUp()
		if !waitFor(r.shell.ended, r.client.lost, slack) {
			r.result.Left = "the host did not say whether it had begun"
			return
		}
		group, _ = r.out.group()
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.limits.Grace+slack, errSilent)
	defer cancel()
	gone, err := r.client.reap(ctx, r.token, group, r.variables)
	switch {
	case err != nil:
		r.result.Left = "it could not be looked for: " + err.Error()
		r.shell.hangUp()
		waitFor(r.shell.ended, r.client.lost, max(r.limits.Grace+slack-time.Since(start), time.Second))
		return
	case !gone:
		r.result.Left = "some of its processes did not end"
		return
	}
	if !waitFor(r.shell.ended, r.client.lost, drain) {
		r.result.Left = "nothing of it was found, and the host did not report its end"
		return
	}
	r.result.Confirmed = true
}

// reap ends a process tree from a session of its own and says whether it is gone.
func (c *Client) reap(ctx context.Context, token string, group int, variables string) (bool, error) {
	sh, err := c.openShell(ctx, reapScript(token, group, variables))
	if err != nil {
		return false, err
	}
	defer sh.close()
	answer := make(chan []byte, 1)
	c.wg.Go(func() {
		var said bytes.Buffer
		// What could not be read is no answer.
		_, _ = said.ReadFrom(sh.channel)
		answer <- said.Bytes()
	})
	// Its errors are nobody's; they must only not fill the window.
	c.wg.Go(func() { drainAll(sh.channel.Stderr()) })
	select {
	case said := <-answer:
		switch {
		case bytes.Contains(said, []byte(token+" gone\n")):
			return true, nil
		case bytes.Contains(said, []byte(token+" left\n")):
			return false, nil
		}
		if err := c.Err(); err != nil {
			return false, err
		}
		return false, errors.New("the host did not answer the question")
	case <-ctx.Done():
		return false, fmt.Errorf("the host did not answer the question: %w", context.Cause(ctx))
	}
}

func drainAll(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
