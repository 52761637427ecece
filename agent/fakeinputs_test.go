package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// stocked is an object that jobs may be given.
type stocked struct {
	data   []byte
	sha256 string // what the service says of it
	size   int64  // and its size; -1: it does not say
	gone   bool   // the store does not have it
	// flow, where set, is how its bytes come.
	flow func(ctx context.Context, data []byte) io.Reader
}

// put stocks an object under the name of an input, and returns its digest.
func (f *fakePlane) put(name string, data []byte) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := hexSum(data)
	f.stock[name] = &stocked{data: data, sha256: sum, size: -1}
	return sum
}

func (b *boundPlane) Input(ctx context.Context, l Lease, name string) (InputLocation, error) {
	return call(ctx, b, "input", uuid.Nil, nil, func() (InputLocation, error) {
		if _, err := b.f.running(l); err != nil {
			return InputLocation{}, err
		}
		s, ok := b.f.stock[name]
		if !ok {
			return InputLocation{}, refusal(domain.KindNotFound, "input_unknown")
		}
		return InputLocation{URL: url.PathEscape(name), SHA256: s.sha256, Size: s.size}, nil
	})
}

func (b *boundPlane) Get(ctx context.Context, at string) (io.ReadCloser, int64, error) {
	s, err := call(ctx, b, "get", uuid.Nil, nil, func() (*stocked, error) {
		name, err := url.PathUnescape(at)
		if err != nil || b.f.stock[name] == nil || b.f.stock[name].gone {
			return nil, errors.Join(ErrNoObject, err)
		}
		is := *b.f.stock[name]
		return &is, nil
	})
	if err != nil {
		return nil, 0, err
	}
	if s.flow != nil {
		return io.NopCloser(s.flow(ctx, s.data)), int64(len(s.data)), nil
	}
	return io.NopCloser(bytes.NewReader(s.data)), int64(len(s.data)), nil
}

// handOut is the object store by HTTP. It takes no bearer token.
func (f *fakePlane) handOut(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" || r.Header.Get("Lease-Token") != "" {
		f.t.Error("a token came to the object store")
	}
	f.mu.Lock()
	name, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/v1/objects/"))
	var s *stocked
	if found := f.stock[name]; found != nil {
		is := *found
		s = &is
	}
	f.mu.Unlock()
	if err == nil && s != nil && s.flow != nil {
		w.Header().Set("Content-Length", strconv.Itoa(len(s.data)))
		body := s.flow(r.Context(), s.data)
		_, _ = io.CopyN(w, body, int64(len(s.data)/2))
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, body)
		return
	}
	if err != nil || s == nil || s.gone {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(s.data) // who left needs no answer
}

// held bytes come when they are let go, and never after the end of ctx.
type heldBytes struct {
	ctx  context.Context
	rest io.Reader
	free <-chan struct{}
}

func (h heldBytes) Read(p []byte) (int, error) {
	select {
	case <-h.free:
		return h.rest.Read(p)
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	}
}

// heldUntil lets the first half come at once, and the rest when free is closed.
func heldUntil(free <-chan struct{}) func(context.Context, []byte) io.Reader {
	return func(ctx context.Context, data []byte) io.Reader {
		half := len(data) / 2
		return io.MultiReader(bytes.NewReader(data[:half]), heldBytes{ctx, bytes.NewReader(data[half:]), free})
	}
}
