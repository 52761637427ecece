package s3test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/internal/peers"
)

const (
	startDeadline = 20 * time.Second
	startTries    = 3
	healthPath    = "/health"
)

var peer = peers.Peer{Name: "S3", Folder: "s3", Binary: "versitygw", Sources: []string{"go.mod", "go.sum"}}

// Process is a running S3 server. Its methods are for the test's own goroutine.
type Process struct {
	Endpoint  string // 127.0.0.1:port, the same after Restart
	AccessKey string
	SecretKey string

	t    testing.TB
	path string
	data string
	meta string // folder for metadata; empty where the file system keeps attributes
	run  *peers.Run
}

// Server starts a server on a free loopback port, with its data in the test's
// temporary folder. It ends with the test.
func Server(t testing.TB) *Process {
	t.Helper()
	path, err := peer.Find()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	p := &Process{
		AccessKey: "test-" + rand.Text()[:12], SecretKey: rand.Text() + rand.Text(),
		t: t, path: path, data: filepath.Join(root, "data"),
	}
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if !keepsAttributes(p.data) {
		p.meta = filepath.Join(root, "meta")
		if err := os.Mkdir(p.meta, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if p.run != nil {
			p.Stop()
		}
	})
	// Between finding a free port and binding it another process may take it.
	for range startTries {
		if p.Endpoint, err = freeEndpoint(); err != nil {
			t.Fatal(err)
		}
		if err = p.start(); err == nil {
			return p
		}
	}
	t.Fatalf("starting the S3 peer: %v", err)
	return nil
}

// Bucket starts a server and returns a fresh bucket on it.
func Bucket(t testing.TB) *objects.Bucket {
	t.Helper()
	return Server(t).Bucket("test")
}

// Config names a bucket on this server.
func (p *Process) Config(bucket string) objects.Config {
	return objects.Config{
		Endpoint: p.Endpoint, Bucket: bucket,
		AccessKey: p.AccessKey, SecretKey: p.SecretKey, PathStyle: true,
	}
}

// Bucket opens the bucket and creates it if need be.
func (p *Process) Bucket(name string) *objects.Bucket {
	p.t.Helper()
	b, err := objects.Open(p.Config(name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(b.Close)
	if err := b.EnsureBucket(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return b
}

// Stop ends the server as a crash would. Its data stays.
func (p *Process) Stop() {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatal("the S3 peer is not running")
	}
	if err := p.run.Kill(); err != nil {
		p.t.Errorf("stopping the S3 peer: %v", err)
	}
	p.run = nil
}

// Restart starts a stopped server again on the same port and data.
func (p *Process) Restart() {
	p.t.Helper()
	if p.run != nil {
		p.t.Fatal("the S3 peer is still running")
	}
	if err := p.start(); err != nil {
		p.t.Fatalf("restarting the S3 peer: %v", err)
	}
}

// Pause freezes the server: connections stand and nothing answers. Resume undoes it.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatal("the S3 peer is not running")
	}
	if err := p.run.Signal(s); err != nil {
		p.t.Fatalf("the S3 peer: %v", err)
	}
}

func (p *Process) start() error {
	args := []string{"--port", p.Endpoint, "--health", healthPath, "--keep-alive", "--quiet", "posix"}
	if p.meta != "" {
		args = append(args, "--sidecar", p.meta)
	}
	cmd := exec.Command(p.path, append(args, p.data)...)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + p.AccessKey, "ROOT_SECRET_KEY=" + p.SecretKey, "HOME=" + p.data}
	run, err := peers.Start(cmd)
	if err != nil {
		return err
	}
	if err := ready(run, "http://"+p.Endpoint+healthPath); err != nil {
		return errors.Join(err, run.Kill())
	}
	p.run = run
	return nil
}

func ready(r *peers.Run, url string) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.NewTimer(startDeadline)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s answers %s", url, resp.Status)
		}
		last = err
		select {
		case <-r.Ended():
			return fmt.Errorf("it ended at once (%v): %s", r.State(), r.Words())
		case <-deadline.C:
			return fmt.Errorf("it is not ready after %s: %w: %s", startDeadline, last, r.Words())
		case <-poll.C:
		}
	}
}

func freeEndpoint() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
