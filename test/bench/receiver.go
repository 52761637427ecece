package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/callbacks"
)

// receiver takes calls on loopback and answers each at once.
type receiver struct {
	url string
	srv *http.Server

	mu    sync.Mutex
	heard map[string]time.Time // by attempt, the first call
	first time.Time
	last  time.Time
	news  chan struct{} // holds one when something was heard
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/", heard: map[string]time.Time{}, news: make(chan struct{}, 1)}
	r.srv = &http.Server{Handler: http.HandlerFunc(r.take), ReadHeaderTimeout: time.Minute}
	go func() { _ = r.srv.Serve(l) }() // it ends by Close
	return r, nil
}

func (r *receiver) close() { _ = r.srv.Close() }

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	_, err := io.Copy(io.Discard, req.Body)
	if err != nil {
		http.Error(w, "the body broke off", http.StatusBadRequest)
		return
	}
	now := time.Now()
	r.mu.Lock()
	if id := req.Header.Get(callbacks.HeaderAttempt); r.heard[id].IsZero() {
		r.heard[id], r.last = now, now
		if r.first.IsZero() {
			r.first = now
		}
	}
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusNoContent)
}

// rate is how many came a second after the first, of n.
func (r *receiver) rate() (n int, perSecond float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = len(r.heard)
	if n > 1 && r.last.After(r.first) {
		perSecond = float64(n-1) / r.last.Sub(r.first).Seconds()
	}
	return n, perSecond
}

// refusing is an address that nobody listens on.
func refusing() (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "http://" + l.Addr().String() + "/", l.Close()
}

// silent takes connections and never answers; done ends it.
func silent() (url string, done func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	return "http://" + l.Addr().String() + "/", func() {
		_ = l.Close()
		wg.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	}, nil
}
