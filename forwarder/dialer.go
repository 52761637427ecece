package forwarder

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// dialer connects a client to its brokers, and can cut it off: a client has no
// other way of giving up what it waits for.
type dialer struct {
	net.Dialer
	ctx    context.Context // of the dials under way
	cancel context.CancelFunc

	mu   sync.Mutex
	cut  bool
	open map[net.Conn]struct{}
}

var errCutOff = errors.New("the connection to Kafka was cut off because this replica stops publishing")

func newDialer(timeout time.Duration) *dialer {
	ctx, cancel := context.WithCancel(context.Background())
	return &dialer{Dialer: net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}, ctx: ctx, cancel: cancel, open: map[net.Conn]struct{}{}}
}

// Dial connects, unless the client was cut off.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	cut := d.cut
	d.mu.Unlock()
	if cut {
		return nil, errCutOff
	}
	c, err := d.DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut {
		return nil, errors.Join(errCutOff, c.Close())
	}
	d.open[c] = struct{}{}
	return &connection{Conn: c, dialer: d}, nil
}

// cutOff closes all connections and lets no further one come about.
func (d *dialer) cutOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut = true
	d.cancel()
	for c := range d.open {
		_ = c.Close() // what is lost with it is sent again by the next leader
	}
	clear(d.open)
}

type connection struct {
	net.Conn
	dialer *dialer
}

func (c *connection) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.open, c.Conn)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}
