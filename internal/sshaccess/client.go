package sshaccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Client is a login on a host. It may be used by many goroutines. Close it.
type Client struct {
	hop   string
	conns []*ssh.Client // jump hosts first, the target last

	once sync.Once
	lost chan struct{} // closed when the connection ended, for whatever reason
	mu   sync.Mutex
	why  error // why it ended; set before lost is closed
	stop chan struct{}
	wg   sync.WaitGroup
}

// watch notices the end of the connection and asks now and then whether the host is
// still there: a peer that was unplugged sends nothing, not even an end.
func (c *Client) watch(every, patience time.Duration) {
	c.lost, c.stop = make(chan struct{}), make(chan struct{})
	target := c.conns[len(c.conns)-1]
	c.wg.Go(func() {
		err := target.Wait()
		if err == nil {
			err = errors.New("the host closed it")
		}
		c.end(err)
	})
	c.wg.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-c.lost:
				return
			case <-ticker.C:
			}
			if !c.answers(target, patience) {
				c.end(fmt.Errorf("the host did not answer within %s", patience))
				c.abandon()
				return
			}
		}
	})
}

// answers asks once. Any reply is one, a refusal too.
func (c *Client) answers(conn *ssh.Client, patience time.Duration) bool {
	replied := make(chan struct{})
	c.wg.Go(func() {
		_, _, err := conn.SendRequest("keepalive@openssh.com", true, nil)
		if err == nil {
			close(replied)
		}
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-replied:
		return true
	case <-c.lost:
		return true // and is watched no longer
	case <-timer.C:
		return false
	}
}

func (c *Client) end(why error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.why = why
		c.mu.Unlock()
		close(c.lost)
	})
}

// Settle is Err, and gives the end of the connection, if that is why something of it
// failed, time to be known: the library tells those who wait on a channel first.
func (c *Client) Settle() error {
	waitFor(c.lost, nil, settling)
	return c.Err()
}

const settling = 500 * time.Millisecond

// Err is nil while the connection stands, and a *LostError after.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		return nil
	}
	return &LostError{c.hop, c.why}
}

// abandon closes the streams from here on outwards, so that nothing waits for a
// peer that does not answer.
func (c *Client) abandon() {
	for _, conn := range c.conns {
		// It may be closed already.
		_ = conn.Close()
	}
	for _, conn := range slices.Backward(c.conns) {
		_ = conn.Wait()
	}
}

// Close ends the login. What still runs on the host is ended there, see Run.
func (c *Client) Close() {
	c.end(errClosed)
	c.abandon()
	c.wg.Wait()
}

// SFTP starts the host's file service. It ends with the client; ctx bounds the
// start only. Writes are sent without waiting for each, so that a file whose write
// failed may have holes.
func (c *Client) SFTP(ctx context.Context) (*sftp.Client, error) {
	type started struct {
		client *sftp.Client
		err    error
	}
	done := make(chan started, 1)
	c.wg.Go(func() {
		client, err := sftp.NewClient(c.conns[len(c.conns)-1], sftp.UseConcurrentWrites(true))
		done <- started{client, err}
	})
	select {
	case s := <-done:
		if s.err != nil {
			if err := c.Settle(); err != nil {
				return nil, err
			}
			return nil, &NotStartedError{c.hop, "the file service (sftp): " + s.err.Error()}
		}
		return s.client, nil
	case <-ctx.Done():
		c.end(context.Cause(ctx))
		c.abandon()
		<-done
		return nil, context.Cause(ctx)
	}
}

// Abandon gives the connection up at once: whatever waits for the host ends with a
// *LostError. Close must still be called.
func (c *Client) Abandon() {
	c.end(errSilent)
	c.abandon()
}
