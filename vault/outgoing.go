package vault

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// outgoing is the text of a request, which may hold a value. It is overwritten
// when it is done with and the transport has let go of it: that may still read a
// body when the answer is there already, or when nobody waits for it any more.
type outgoing struct {
	mu      sync.Mutex
	text    []byte
	readers int
	over    bool
}

type outgoingKey struct{}

func (o *outgoing) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, outgoingKey{}, o)
}

// done says that no request will be made with the text any more.
func (o *outgoing) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.clear()
}

func (o *outgoing) clear() {
	if o.over && o.readers == 0 {
		clear(o.text)
	}
}

// watched gives the request with bodies that tell when they are let go.
func watched(req *http.Request) *http.Request {
	o, ok := req.Context().Value(outgoingKey{}).(*outgoing)
	if !ok || req.Body == nil {
		return req
	}
	out := *req
	out.Body = o.read(req.Body)
	if again := req.GetBody; again != nil {
		out.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return o.read(body), nil
		}
	}
	return &out
}

func (o *outgoing) read(body io.ReadCloser) io.ReadCloser {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers++
	return &reading{ReadCloser: body, of: o}
}

type reading struct {
	io.ReadCloser
	of     *outgoing
	closed sync.Once
}

func (r *reading) Close() error {
	err := r.ReadCloser.Close()
	r.closed.Do(func() {
		r.of.mu.Lock()
		defer r.of.mu.Unlock()
		r.of.readers--
		r.of.clear()
	})
	return err
}
