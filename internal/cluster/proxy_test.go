package cluster_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// linkFault is what a proxy does to what passes through it.
type linkFault struct {
	HoldUp, HoldDown bool // bytes to the service, bytes from it: kept until it ends
	Slow             bool // small pieces, each late
	Cut              bool // every other request is passed on and then reset with its connection
	Reset            bool // when it ends, what was held is thrown away with its connection
}

// proxy is one runner's way to the service. Each connection goes to the next
// replica that takes it.
type proxy struct {
	listener net.Listener
	backends []string
	next     atomic.Uint64
	work     sync.WaitGroup

	mu      sync.Mutex
	fault   linkFault
	changed chan struct{} // closed when fault changes
	pairs   map[*pair]bool
	closed  bool
	// Of the fault that is on: pieces that were kept, late or cut off.
	affected int
	requests int
}

// pair is one connection and its other half.
type pair struct {
	client, server net.Conn
	dead           bool // what it held is thrown away; guarded by the proxy's mu
	cut            bool // its request was the last; guarded by the proxy's mu
}

// slowPiece is passed on at a time while a link is slow, slowPause later.
const (
	slowPiece = 700
	slowPause = 60 * time.Millisecond
)

func newProxy(address string, backends ...string) (*proxy, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open a proxy: %w", err)
	}
	p := &proxy{listener: l, backends: backends, changed: make(chan struct{}), pairs: map[*pair]bool{}}
	p.work.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(client net.Conn) {
	server := p.dial()
	if server == nil {
		reset(client)
		return
	}
	x := &pair{client: client, server: server}
	p.mu.Lock()
	if p.closed {
		x.dead = true
	}
	p.pairs[x] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(x, server, client, true) })
	both.Go(func() { p.copy(x, client, server, false) })
	both.Wait()
	client.Close()
	server.Close()
	p.mu.Lock()
	delete(p.pairs, x)
	p.mu.Unlock()
}

// dial asks each replica once; one that is gone refuses at once.
func (p *proxy) dial() net.Conn {
	for range p.backends {
		c, err := net.DialTimeout("tcp", p.backends[p.next.Add(1)%uint64(len(p.backends))], time.Second)
		if err == nil {
			return c
		}
	}
	return nil
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it may be closed already
	}
	c.Close()
}

// copy passes one direction on until it ends, and ends the other half of it.
func (p *proxy) copy(x *pair, to, from net.Conn, up bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(x, to, buf[:n], up) {
			reset(x.client)
			reset(x.server)
			return
		}
		if err == nil {
			continue
		}
		t, ok := to.(*net.TCPConn)
		if !ok || !errors.Is(err, io.EOF) {
			reset(x.client)
			reset(x.server)
			return
		}
		_ = t.CloseWrite() // half a close is passed on as one; the other side may be gone
		return
	}
}

// pass brings one piece over, as the fault allows; false if the connection is to end.
func (p *proxy) pass(x *pair, to net.Conn, b []byte, up bool) bool {
	f, alive := p.wait(x, up)
	if !alive {
		return false
	}
	if f.Slow {
		for len(b) > 0 {
			n := min(slowPiece, len(b))
			if !p.pause(x, slowPause) {
				return false
			}
			if _, err := to.Write(b[:n]); err != nil {
				return false
			}
			b = b[n:]
		}
		return true
	}
	cut := f.Cut && up && p.cuts(x)
	if _, err := to.Write(b); err != nil {
		return false
	}
	if cut {
		// The request arrives, its answer does not.
		p.pause(x, cutAfter)
	}
	return !cut
}

// cutAfter is the time that a request has to arrive before its connection is reset.
const cutAfter = 20 * time.Millisecond

func (p *proxy) cuts(x *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	if p.requests%2 == 0 {
		return false
	}
	p.affected++
	x.cut = true
	return true
}

// wait returns when the direction is open.
func (p *proxy) wait(x *pair, up bool) (linkFault, bool) {
	counted := false
	for {
		p.mu.Lock()
		f, changed, dead := p.fault, p.changed, x.dead
		held := up && f.HoldUp || !up && f.HoldDown
		if (held || f.Slow) && !counted && !dead {
			p.affected++
			counted = true
		}
		cut := x.cut && !up
		p.mu.Unlock()
		if cut {
			p.pause(x, 2*cutAfter)
		}
		if dead || cut {
			return f, false
		}
		if !held {
			return f, true
		}
		<-changed
	}
}

func (p *proxy) pause(x *pair, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
	p.mu.Lock()
	defer p.mu.Unlock()
	return !x.dead
}

// begin puts a fault on. A cut begins with every connection there is.
func (p *proxy) begin(f linkFault) {
	p.mu.Lock()
	p.affected, p.requests = 0, 0
	if f.Cut {
		p.affected += len(p.pairs)
		p.dropLocked()
	}
	p.setLocked(f)
	p.mu.Unlock()
}

// end takes it off and says how many pieces it met.
func (p *proxy) end() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Reset {
		p.dropLocked()
	}
	n := p.affected
	p.setLocked(linkFault{})
	return n
}

func (p *proxy) setLocked(f linkFault) {
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) dropLocked() {
	for x := range p.pairs {
		x.dead = true
		reset(x.client)
		reset(x.server)
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.dropLocked()
	p.setLocked(linkFault{})
	p.mu.Unlock()
	p.work.Wait()
}
