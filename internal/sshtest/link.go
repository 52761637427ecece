package sshtest

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Link is a stretch of network before a host, which can be made slow, silent or
// broken. Its zero faults pass everything on.
type Link struct {
	Port       int
	KnownHosts []string // of the host at this port

	listener net.Listener
	target   string
	faults   Faults
	stop     chan struct{} // closed at the end
	wg       sync.WaitGroup

	pace atomic.Int64 // of Pace

	mu     sync.Mutex
	frozen chan struct{} // closed by Freeze
	conns  []net.Conn
}

// Faults of a link.
type Faults struct {
	// Delay is waited before a connection's first byte to the client.
	Delay time.Duration
	// Drip passes the host's bytes one by one, so far apart.
	Drip time.Duration
	// After lets so many bytes of the host through to the client and then none;
	// below 1 all.
	After int64
}

// NewLink listens on a free port before the host, until the test ends.
func NewLink(t testing.TB, h *Host, f Faults) *Link {
	t.Helper()
	l := listen(t, f)
	l.target = net.JoinHostPort(h.Address, strconv.Itoa(h.Port))
	for _, k := range h.HostKeys {
		l.KnownHosts = append(l.KnownHosts, fmt.Sprintf("[127.0.0.1]:%d %s", l.Port, line(k)))
	}
	l.serve(l.pass)
	return l
}

// Silent gives a port that accepts connections and never says a word, until the
// test ends.
func Silent(t testing.TB) int {
	t.Helper()
	l := listen(t, Faults{})
	l.serve(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	return l.Port
}

// Closed gives a port on which nobody listens.
func Closed(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("sshtest: %v", err)
	}
	return port
}

func listen(t testing.TB, f Faults) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("sshtest: %v", err)
	}
	l := &Link{Port: listener.Addr().(*net.TCPAddr).Port, listener: listener, faults: f,
		stop: make(chan struct{}), frozen: make(chan struct{})}
	t.Cleanup(func() {
		listener.Close()
		close(l.stop)
		l.Cut()
		l.wg.Wait()
	})
	return l
}

func (l *Link) serve(handle func(net.Conn)) {
	l.wg.Go(func() {
		for {
			conn, err := l.listener.Accept()
			if err != nil {
				return
			}
			l.keep(conn)
			l.wg.Go(func() {
				defer conn.Close()
				handle(conn)
			})
		}
	})
}

func (l *Link) keep(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.stop:
		conn.Close()
	default:
		l.conns = append(l.conns, conn)
	}
}

// Freeze passes nothing on from now, in either direction, and closes nothing: as a
// peer that was unplugged.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.frozen:
	default:
		close(l.frozen)
	}
}

// Pace makes the link slow from now: it waits so long before each up to 32 KiB, in
// both directions.
func (l *Link) Pace(d time.Duration) { l.pace.Store(int64(d)) }

// Cut closes every connection.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

func (l *Link) pass(client net.Conn) {
	host, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	l.keep(host)
	var both sync.WaitGroup
	both.Go(func() {
		l.copy(host, client, Faults{})
		host.Close()
	})
	both.Go(func() {
		l.copy(client, host, l.faults)
		client.Close()
	})
	both.Wait()
}

func (l *Link) copy(to io.Writer, from io.Reader, f Faults) {
	if f.Delay > 0 && !l.pause(f.Delay) {
		return
	}
	buffer := make([]byte, 32<<10)
	if f.Drip > 0 {
		buffer = buffer[:1]
	}
	var passed int64
	for {
		n, err := from.Read(buffer)
		if f.After > 0 && passed+int64(n) > f.After {
			n = int(f.After - passed)
		}
		if pace := time.Duration(l.pace.Load()); pace > 0 && n > 0 && !l.pause(pace) {
			return
		}
		if n > 0 && !l.isFrozen() {
			passed += int64(n)
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if f.After > 0 && passed >= f.After || l.isFrozen() {
			// Silent, and open.
			<-l.stop
			return
		}
		if err != nil {
			return
		}
		if f.Drip > 0 && !l.pause(f.Drip) {
			return
		}
	}
}

// pause is false if the link ended.
func (l *Link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.stop:
		return false
	}
}

func (l *Link) isFrozen() bool {
	select {
	case <-l.frozen:
		return true
	default:
		return false
	}
}
