package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/pgembed"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

// Options say what is wanted. The zero value is a throw-away stack without a runner.
type Options struct {
	// Dir keeps data over restarts; empty: everything is temporary.
	Dir    string
	Listen string // of the API; empty: a free loopback port
	Policy *policy.Bundle
	// PolicyIsDefault says that nobody chose Policy, see plane.Config.
	PolicyIsDefault bool
	InputPlaces     []string       // see plane.Config
	Profile         domain.Profile // zero: fast
	Runner          *Runner        // nil: none
	Version         string
	// Delivery is where facts and results go; the zero value: nowhere.
	Delivery plane.Delivery
	Log      *slog.Logger
	// PostgresLog receives the database server's log; nil drops it.
	PostgresLog io.Writer
	// Progress is told in a few words what is being started.
	Progress func(string)
}

// Runner is the runners to start beside the service, one for each job type.
type Runner struct {
	Pool  string
	Slots int // of each
	// JobTypes are those to start; empty: verification. One whose tools are missing is
	// not started, and Progress says what installs them.
	JobTypes []string
	// Executable is this program: it serves as shim and executor by its hidden verbs.
	Executable string
	// Vault is where it reads secrets; nil: nowhere.
	Vault *vault.Config
}

// Stack is a running embedded default.
type Stack struct {
	URL string
	// Tokens for whoever started it.
	ControlPlaneToken, OperatorToken string
	DatabaseURL                      string
	S3                               objects.Config
	Plane                            *plane.Plane

	running []string // job types whose runners were started
	cancel  context.CancelFunc
	failed  chan error
	closers []func() error // in order of start; closed in reverse
	stopped sync.Once
	stopErr error
}

// Start starts everything and returns when the API answers and the runner, if
// any, is on its way. Stop ends it.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Policy == nil {
		o.Policy, o.PolicyIsDefault = policy.BuiltinLocal(), true
	}
	if o.Profile.Name == "" {
		o.Profile = domain.FastProfile()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Stack{cancel: cancel, failed: make(chan error, 4)}
	for _, step := range []func(context.Context, context.Context, Options) error{s.startPostgres, s.startS3, s.startPlane, s.startRunners} {
		if err := step(ctx, run, o); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	return s, nil
}

func (s *Stack) startPostgres(ctx, _ context.Context, o Options) error {
	o.Progress("starting PostgreSQL")
	opts := pgembed.Options{Log: o.PostgresLog}
	if o.Dir != "" {
		// Beside the other data, or where the server's account can reach it.
		opts.Dir = filepath.Join(o.Dir, "postgres")
		opts.Fsync = true
		if os.Geteuid() == 0 && o.Dir == DefaultDir() {
			opts.Dir = pgembed.DefaultDir()
		}
	}
	pg, err := pgembed.Start(ctx, opts)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.DatabaseURL = pg.URL
	s.closers = append(s.closers, pg.Stop)
	return nil
}

// DefaultDir is where a lasting embedded default keeps its data.
func DefaultDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/execution-plane"
	}
	return filepath.Dir(pgembed.DefaultDir())
}

// dir gives a folder for a part: under Options.Dir, or a temporary one.
func (s *Stack) dir(o Options, part string) (string, error) {
	if o.Dir != "" {
		d := filepath.Join(o.Dir, part)
		return d, os.MkdirAll(d, 0o700)
	}
	d, err := os.MkdirTemp("", "execution-plane-"+part+"-")
	if err == nil {
		s.closers = append(s.closers, func() error { return os.RemoveAll(d) })
	}
	return d, err
}

const bucketName = "execution-plane"

func (s *Stack) startS3(_, run context.Context, o Options) error {
	o.Progress("starting object storage")
	dir, err := s.dir(o, "s3")
	if err != nil {
		return fmt.Errorf("make object storage's folder: %w", err)
	}
	srv, err := s3embed.Start(run, dir)
	if err != nil {
		return fmt.Errorf("start object storage: %w", err)
	}
	s.closers = append(s.closers, srv.Close)
	s.S3 = objects.Config{Endpoint: srv.Endpoint, Bucket: bucketName, AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true}
	b, err := objects.Open(s.S3)
	if err != nil {
		return fmt.Errorf("open object storage: %w", err)
	}
	defer b.Close()
	return b.EnsureBucket(run)
}

func (s *Stack) startPlane(ctx, run context.Context, o Options) error {
	o.Progress("starting the service")
	p, err := plane.New(ctx, plane.Config{DatabaseURL: s.DatabaseURL, Objects: s.S3, Policy: o.Policy, PolicyIsDefault: o.PolicyIsDefault, InputPlaces: o.InputPlaces, Profile: o.Profile, Listen: o.Listen, Migrate: true, Log: o.Log, Delivery: o.Delivery})
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	s.Plane, s.URL = p, p.URL()
	done := make(chan struct{})
	planeRun, stop := context.WithCancel(run)
	go func() {
		defer close(done)
		if err := p.Run(planeRun); err != nil {
			s.failed <- err
		}
	}()
	s.closers = append(s.closers, func() error { stop(); <-done; p.Close(); return nil })
	if s.ControlPlaneToken, err = s.token(ctx, o.Dir, "token", domain.RoleControlPlane); err != nil {
		return err
	}
	s.OperatorToken, err = s.token(ctx, o.Dir, "operator-token", domain.RoleOperator)
	return err
}

// token makes a bearer token for whoever started the stack. A stack that keeps its
// data keeps its tokens too, in files that only this user reads.
func (s *Stack) token(ctx context.Context, dir, file, role string) (string, error) {
	path := filepath.Join(dir, file)
	if dir != "" {
		b, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read a token: %w", err)
		}
	}
	token, err := plane.IssueToken(ctx, s.Plane.Commands, "local "+role, role)
	if err == nil && dir != "" {
		err = os.WriteFile(path, []byte(token+"\n"), 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return token, nil
}

// Failed gives the error of a part that ended by itself.
func (s *Stack) Failed() <-chan error { return s.failed }

// Stop ends everything, last started first.
func (s *Stack) Stop() error {
	s.stopped.Do(func() {
		var errs []error
		for i := len(s.closers) - 1; i >= 0; i-- {
			errs = append(errs, s.closers[i]())
		}
		s.cancel()
		s.stopErr = errors.Join(errs...)
	})
	return s.stopErr
}
