package e2e_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// balancer is a TCP load balancer: each connection goes to the next backend that
// takes it. It knows nothing of HTTP and does not repeat what a backend cut off.
type balancer struct {
	url      string
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	backends []string              // guarded by mu
	next     int                   // guarded by mu
	open     map[net.Conn]struct{} // guarded by mu
	closed   bool                  // guarded by mu
}

func newBalancer(t *testing.T, backends ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{url: "http://" + l.Addr().String(), listener: l, backends: backends, open: map[net.Conn]struct{}{}}
	b.wg.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

func (b *balancer) close() {
	b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for c := range b.open {
		c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

func (b *balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.serve(c) })
	}
}

func (b *balancer) serve(c net.Conn) {
	defer c.Close()
	up := b.dial()
	if up == nil {
		return
	}
	defer up.Close()
	if !b.keep(c, up) {
		return
	}
	defer b.drop(c, up)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(up, c) // either end may go at any time
		up.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(c, up)
	// The backend has ended the connection: so does the balancer, as one that
	// would leave its client waiting helps nobody.
	c.Close()
	both.Wait()
}

// dial finds a backend that lives; nil if none does.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	first := b.next
	b.next++
	backends := b.backends
	b.mu.Unlock()
	for i := range backends {
		if up, err := net.DialTimeout("tcp", backends[(first+i)%len(backends)], time.Second); err == nil {
			return up
		}
	}
	return nil
}

func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		b.open[c] = struct{}{}
	}
	return !b.closed
}

func (b *balancer) drop(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range conns {
		delete(b.open, c)
	}
}
