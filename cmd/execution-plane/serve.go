package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
)

type serveCmd struct {
	Dev     bool     `help:"Run everything on this machine: a private PostgreSQL, object storage and a runner."`
	Modules []string `help:"Run only these modules: api, dispatcher, artifact-worker. Default: all."`
	Listen  string   `env:"EXECUTION_PLANE_LISTEN" default:"127.0.0.1:8080" help:"Address of the API."`

	DatabaseURL string `name:"database-url" env:"EXECUTION_PLANE_DATABASE_URL" help:"PostgreSQL connection URL."`
	MaxConns    int32  `env:"EXECUTION_PLANE_DATABASE_CONNS" default:"0" help:"Database connections at most; 0: by the number of cores."`
	Migrate     bool   `env:"EXECUTION_PLANE_MIGRATE" help:"Apply pending migrations at start."`

	S3Endpoint  string `name:"s3-endpoint" env:"EXECUTION_PLANE_S3_ENDPOINT" help:"Object storage, host:port."`
	S3Bucket    string `name:"s3-bucket" env:"EXECUTION_PLANE_S3_BUCKET" default:"execution-plane"`
	S3AccessKey string `name:"s3-access-key" env:"EXECUTION_PLANE_S3_ACCESS_KEY"`
	S3SecretKey string `name:"s3-secret-key" env:"EXECUTION_PLANE_S3_SECRET_KEY" help:"Better given by the environment."`
	S3Region    string `name:"s3-region" env:"EXECUTION_PLANE_S3_REGION"`
	S3TLS       bool   `name:"s3-tls" env:"EXECUTION_PLANE_S3_TLS" default:"true" negatable:""`
	S3PathStyle bool   `name:"s3-path-style" env:"EXECUTION_PLANE_S3_PATH_STYLE" default:"true" negatable:""`

	Policy   string `env:"EXECUTION_PLANE_POLICY" help:"Folder of the policy bundle. Default: the built-in one, which allows no target; with --dev: loopback."`
	Profile  string `env:"EXECUTION_PLANE_PROFILE" enum:"default,fast" default:"default" help:"Lease timing: default or fast."`
	MaxQueue int    `env:"EXECUTION_PLANE_MAX_QUEUE" default:"10000" help:"Attempts that may wait before submits are answered 429; 0: no limit."`
	DataDir  string `env:"EXECUTION_PLANE_DATA" default:"${data_dir}" type:"path" help:"With --dev: where everything is kept."`
}

func (c *serveCmd) Run(s *session) error {
	bundle, err := c.bundle()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if c.Dev {
		return c.dev(s, bundle)
	}
	for name, v := range map[string]string{"--database-url (EXECUTION_PLANE_DATABASE_URL)": c.DatabaseURL, "--s3-endpoint (EXECUTION_PLANE_S3_ENDPOINT)": c.S3Endpoint} {
		if v == "" {
			return &exitError{exitUsage, fmt.Errorf("%s is missing; to try everything on this machine: execution-plane serve --dev", name)}
		}
	}
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	pool.Close()                                  // the service opens its own; this only tells what cannot be reached
	profile, _ := domain.ProfileByName(c.Profile) // the flag allows no other
	log := newLogger(s.err)
	p, err := plane.New(s.ctx, plane.Config{
		DatabaseURL: c.DatabaseURL, MaxConns: c.MaxConns, Migrate: c.Migrate, Policy: bundle, Profile: profile, Modules: c.Modules, Listen: c.Listen, MaxQueue: c.MaxQueue, Log: log,
		Objects: objects.Config{Endpoint: c.S3Endpoint, Bucket: c.S3Bucket, AccessKey: c.S3AccessKey, SecretKey: c.S3SecretKey, Region: c.S3Region, Secure: c.S3TLS, PathStyle: c.S3PathStyle},
	})
	if errors.Is(err, plane.ErrConfig) {
		return &exitError{exitUsage, err}
	}
	if err != nil {
		return err
	}
	defer p.Close()
	log.Info("service starts", "url", p.URL(), "modules", p.Modules, "policy", bundle.Digest(), "profile", profile.Name, "version", version)
	return p.Run(s.ctx)
}

func (c *serveCmd) bundle() (*policy.Bundle, error) {
	switch {
	case c.Policy != "":
		if _, err := os.Stat(c.Policy); err != nil {
			return nil, fmt.Errorf("load the policy bundle: %w", err)
		}
		b, err := policy.Load(os.DirFS(c.Policy))
		if err != nil {
			return nil, fmt.Errorf("load the policy bundle %s: %w", c.Policy, err)
		}
		return b, nil
	case c.Dev:
		return policy.BuiltinDev(), nil
	}
	return policy.Builtin(), nil
}

func (c *serveCmd) dev(s *session, bundle *policy.Bundle) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	stack, err := embedded.Start(s.ctx, embedded.Options{
		Dir: c.DataDir, Listen: c.Listen, Policy: bundle, Version: version, Log: newLogger(s.err),
		Runner:   &embedded.Runner{Pool: "default", Slots: 4, Executable: self},
		Progress: func(what string) { fmt.Fprintln(s.err, what+" …") },
	})
	if err != nil {
		return err
	}
	// The port may be another at each start; a file keeps the password off command lines.
	if err := os.WriteFile(filepath.Join(c.DataDir, "database-url"), []byte(stack.DatabaseURL+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("keep the database's address: %w", err), stack.Stop())
	}
	fmt.Fprintf(s.err, `
Ready at %[1]s
  export EXECUTION_PLANE_URL=%[1]s
  export EXECUTION_PLANE_TOKEN_FILE=%[2]s/token
  export EXECUTION_PLANE_DATABASE_URL="$(cat %[2]s/database-url)"
  execution-plane submit -f examples/tcp-connect.yaml
  execution-plane verify
Ctrl-C ends it; everything is kept in %[2]s
`, stack.URL, c.DataDir)
	return errors.Join(wait(s.ctx, stack), stack.Stop())
}

// wait waits for the end of ctx or of a part of the stack.
func wait(ctx context.Context, stack *embedded.Stack) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-stack.Failed():
		return err
	}
}
