package sshaccess

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/crypto/ssh"
)

// shell is a session in which the host's /bin/sh runs a script.
type shell struct {
	channel ssh.Channel
	ended   chan struct{} // closed with the status, or when the session is gone

	mu     sync.Mutex
	exit   int
	exited bool
}

// openShell starts the script. It waits for the host no longer than ctx and the
// connection last.
func (c *Client) openShell(ctx context.Context, script string) (*shell, error) {
	type opened struct {
		channel  ssh.Channel
		requests <-chan *ssh.Request
		err      error
	}
	done := make(chan opened, 1)
	target := c.conns[len(c.conns)-1]
	c.wg.Go(func() {
		channel, requests, err := target.OpenChannel("session", nil)
		if err != nil {
			done <- opened{err: err}
			return
		}
		ok, err := channel.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{shellCommand}))
		if err == nil && !ok {
			err = fmt.Errorf("it refused to run %q", shellCommand)
		}
		if err != nil {
			channel.Close()
			go ssh.DiscardRequests(requests)
		}
		done <- opened{channel, requests, err}
	})
	var o opened
	select {
	case o = <-done:
	case <-ctx.Done():
		c.wg.Go(func() { // nobody waits for it any more
			if late := <-done; late.err == nil {
				late.channel.Close()
				ssh.DiscardRequests(late.requests)
			}
		})
		return nil, context.Cause(ctx)
	}
	if o.err != nil {
		if err := c.Settle(); err != nil {
			return nil, err
		}
		return nil, &NotStartedError{c.hop, o.err.Error()}
	}
	s := &shell{channel: o.channel, ended: make(chan struct{})}
	c.wg.Go(func() { s.listen(o.requests) })
	c.wg.Go(func() {
		// A host that ends before it has read all is told from its status.
		_, _ = o.channel.Write([]byte(script))
	})
	return s, nil
}

// listen takes the host's word on how the shell ended.
func (s *shell) listen(requests <-chan *ssh.Request) {
	defer s.end(0, false)
	for r := range requests {
		switch r.Type {
		case "exit-status":
			var m struct{ Status uint32 }
			if ssh.Unmarshal(r.Payload, &m) == nil {
				s.end(int(m.Status), true)
			}
		case "exit-signal":
			var m struct {
				Signal string
				Core   bool
				Error  string
				Lang   string
			}
			if ssh.Unmarshal(r.Payload, &m) == nil {
				s.end(128+signals[m.Signal], true)
			}
		}
		if r.WantReply {
			// A channel that is gone needs no reply.
			_ = r.Reply(false, nil)
		}
	}
}

func (s *shell) end(exit int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known && !s.exited {
		s.exit, s.exited = exit, true
	}
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
}

// status is how the shell ended, if the host said so.
func (s *shell) status() (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit, s.exited
}

// hangUp ends the script's input.
func (s *shell) hangUp() {
	// A channel that is gone has no input either.
	_ = s.channel.CloseWrite()
}

func (s *shell) close() {
	// It may be closed already.
	_ = s.channel.Close()
}

// signals are those that RFC 4254 names.
var signals = map[string]int{"ABRT": 6, "ALRM": 14, "FPE": 8, "HUP": 1, "ILL": 4, "INT": 2, "KILL": 9,
	"PIPE": 13, "QUIT": 3, "SEGV": 11, "TERM": 15, "USR1": 10, "USR2": 12}
