package deliverytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/examples/controlplane/receiver"
)

// Fault is how a receiver fails.
type Fault string

// The faults. All but Late, Slow and MidBody keep nothing of what came.
const (
	None     Fault = ""
	Down     Fault = "down"      // the connection ends without an answer
	Refuses  Fault = "500"       // 500
	Redirect Fault = "redirect"  // 307 to another path of the same server
	Throttle Fault = "throttle"  // 429 with Retry-After: 1
	Slow     Fault = "slow"      // the right answer after 700 ms
	Late     Fault = "late"      // the right answer, after the sender has given up
	MidBody  Fault = "mid-body"  // 200, and the connection ends in the middle of the body
	MidHead  Fault = "mid-head"  // the connection ends in the middle of the head
	Endless  Fault = "endless"   // a refusal whose body never ends
	Mumbling Fault = "no-answer" // it takes the request and says nothing until the sender has given up
)

// Faults lists those that keep a result from being delivered.
func Faults() []Fault {
	return []Fault{Down, Refuses, Redirect, Throttle, Late, MidBody, MidHead, Endless, Mumbling}
}

// Peer is a receiver of callbacks: that of examples/controlplane behind a door that
// can fail.
type Peer struct {
	URL      string
	Dir      string // where it keeps what it got
	Receiver *receiver.Receiver

	secret string
	server *http.Server
	served chan struct{}

	mu    sync.Mutex
	fault Fault         // guarded by mu
	met   map[Fault]int // requests by the fault that they met; guarded by mu
	stray []string      // requests that should not have come; guarded by mu
}

const peerPath = "/results"

// StartPeer starts one that keeps what it gets in a folder.
func StartPeer(dir string) (*Peer, error) {
	p := &Peer{Dir: dir, secret: newSecret(), served: make(chan struct{}), met: map[Fault]int{}}
	var err error
	if p.Receiver, err = receiver.Open(receiver.Options{Dir: dir, Secrets: []string{p.secret}}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, p.Receiver.Close())
	}
	p.URL = "http://" + l.Addr().String() + peerPath
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: 30 * time.Second}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(l) // it ends with Close
	}()
	return p, nil
}

// Close ends it.
func (p *Peer) Close() error {
	err := p.server.Close()
	<-p.served
	return errors.Join(err, p.Receiver.Close())
}

// Secret is what its sender signs with.
func (p *Peer) Secret() string { return p.secret }

// Set lets it fail in this way from now on, or no more.
func (p *Peer) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Met is how many requests met a fault.
func (p *Peer) Met(f Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met[f]
}

// Stray lists requests that nobody should have made, such as those that follow a
// redirect.
func (p *Peer) Stray() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.stray...)
}

func (p *Peer) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	f := p.fault
	p.met[f]++
	if r.URL.Path != peerPath || r.Method != http.MethodPost {
		p.stray = append(p.stray, r.Method+" "+r.URL.String())
	}
	p.mu.Unlock()
	switch f {
	case Down:
		panic(http.ErrAbortHandler) // ends the connection, and is no crash
	case Refuses:
		http.Error(w, "broken", http.StatusInternalServerError)
	case Redirect:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	case Throttle:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many", http.StatusTooManyRequests)
	case Slow:
		sleep(r.Context(), 700*time.Millisecond)
		p.Receiver.ServeHTTP(w, r)
	case Late:
		answer := p.take(r)
		<-r.Context().Done() // the sender has gone
		w.WriteHeader(answer.Code)
	case MidBody:
		p.midBody(w, p.take(r))
	case MidHead:
		hangUp(w, "HTTP/1.1 200 OK\r\nContent-Le")
	case Endless:
		endless(w, r)
	case Mumbling:
		drain(r)
		<-r.Context().Done()
	default:
		p.Receiver.ServeHTTP(w, r)
	}
}

// take lets the receiver have a request and keeps its answer back.
func (p *Peer) take(r *http.Request) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	p.Receiver.ServeHTTP(answer, r)
	return answer
}

func (p *Peer) midBody(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	hangUp(w, fmt.Sprintf("HTTP/1.1 %d OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n%s", answer.Code, answer.Body))
}

// hangUp writes something and ends the connection.
func hangUp(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the connection is gone already
	}
	_, _ = conn.Write([]byte(text)) // so it is here
	_ = conn.Close()
}

// drain reads the body: only then does the server notice that the sender goes.
func drain(r *http.Request) { _, _ = new(bytes.Buffer).ReadFrom(r.Body) }

func endless(w http.ResponseWriter, r *http.Request) {
	drain(r)
	w.WriteHeader(http.StatusBadGateway)
	piece := []byte(strings.Repeat("no ", 1000))
	for r.Context().Err() == nil {
		if _, err := w.Write(piece); err != nil {
			return
		}
		sleep(r.Context(), 10*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
