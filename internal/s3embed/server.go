package s3embed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
)

const shutdownWait = 5 * time.Second

// Server is a running server.
type Server struct {
	Endpoint  string // 127.0.0.1:port; another port after each start
	AccessKey string
	SecretKey string

	http    *http.Server
	release func() error
	served  chan struct{} // closed when the listener's loop has ended
	failure error         // of the loop; read after served
	forget  func() bool   // unbinds the server from the context
	once    sync.Once
	closing error
}

// Start serves the objects in dir, which it creates if need be, until ctx ends or
// Close is called. Objects and keys survive a restart. The error says if another
// process owns dir.
func Start(ctx context.Context, dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("starting the embedded S3 server: %w", err)
	}
	release, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("starting the embedded S3 server in %s: %w", dir, err)
	}
	s, err := start(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the embedded S3 server in %s: %w", dir, err), release())
	}
	s.release = release
	// The result of shutdown is kept for whoever calls Close.
	s.forget = context.AfterFunc(ctx, func() { _ = s.shutdown() })
	return s, nil
}

func start(dir string) (*Server, error) {
	keys, err := loadKeys(filepath.Join(dir, "keys.json"))
	if err != nil {
		return nil, err
	}
	f, err := openFolder(dir)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	protocol := gofakes3.New(f, gofakes3.WithTimeSkewLimit(0), gofakes3.WithoutVersioning())
	s := &Server{
		Endpoint: listener.Addr().String(), AccessKey: keys.AccessKey, SecretKey: keys.SecretKey,
		http: &http.Server{
			Handler:           &gate{keys: keys, now: time.Now, next: protocol.Server()},
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
		},
		served: make(chan struct{}),
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.failure = err
		}
	}()
	return s, nil
}

// Close stops the server: running requests get 5 s, then their connections are
// cut. It may be called more than once and returns the same error.
func (s *Server) Close() error {
	s.forget()
	return s.shutdown()
}

func (s *Server) shutdown() error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownWait)
		defer cancel()
		err := s.http.Shutdown(ctx)
		if err != nil {
			err = s.http.Close()
		}
		<-s.served
		s.closing = errors.Join(err, s.failure, s.release())
	})
	return s.closing
}
