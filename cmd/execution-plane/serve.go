package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/internal/plane"
	"github.com/platform-core/execution-plane-service/policy"
)

type serveCmd struct {
	Dev     bool     `help:"Run everything on this machine: a private PostgreSQL, object storage and a runner."`
	Modules []string `help:"Run only these modules: api, dispatcher, artifact-worker, forwarder, callbacks. Default: all."`
	Listen  string   `env:"EXECUTION_PLANE_LISTEN" default:"127.0.0.1:8080" help:"Address of the API."`

	DatabaseURL string `name:"database-url" env:"EXECUTION_PLANE_DATABASE_URL" help:"PostgreSQL connection URL."`
	MaxConns    int32  `env:"EXECUTION_PLANE_DATABASE_CONNS" default:"0" help:"Database connections at most; 0: by the number of cores."`
	Migrate     bool   `env:"EXECUTION_PLANE_MIGRATE" help:"Apply pending migrations at start."`

	objectsFlags

	Policy   string `env:"EXECUTION_PLANE_POLICY" help:"The policy bundle to begin with: a folder, or s3://bucket/key of an archive that policy build wrote. Default: what an operator made the active one last, else the built-in one, which allows no target; with --dev: loopback."`
	Profile  string `env:"EXECUTION_PLANE_PROFILE" enum:"default,fast" default:"default" help:"Lease timing: default or fast."`
	MaxQueue int    `env:"EXECUTION_PLANE_MAX_QUEUE" default:"10000" help:"Attempts that may wait before submits are answered 429; 0: no limit."`
	// The slice's separator is a comma, which no bucket's name holds.
	InputPlaces []string `name:"input-place" env:"EXECUTION_PLANE_INPUT_PLACES" help:"Where jobs may name objects by s3://, such as s3://bucket/folder/; again for more. Default: the folder inputs/ of the service's bucket."`

	ScrubRound time.Duration `env:"EXECUTION_PLANE_SCRUB_ROUND" default:"168h" help:"How often every stored object is read and compared; negative: never."`
	ScrubBytes int64         `name:"scrub-bytes-per-second" env:"EXECUTION_PLANE_SCRUB_BYTES_PER_SECOND" default:"16777216" help:"What is read for that, a second at most."`

	FingerprintKeyFile string        `env:"EXECUTION_PLANE_FINGERPRINT_KEY_FILE" type:"path" help:"File of at least 32 random bytes, the same for all replicas: what bundles are scanned for secrets with. Default: a key that ends with the process."`
	ScanLimit          time.Duration `env:"EXECUTION_PLANE_SCAN_LIMIT" default:"10m" help:"How long one bundle may be scanned; past it the bundle is quarantined."`

	kafkaFlags
	Callbacks string `env:"EXECUTION_PLANE_CALLBACKS" type:"path" help:"File that names the endpoints which results are delivered to."`

	DataDir string `env:"EXECUTION_PLANE_DATA" default:"${data_dir}" type:"path" help:"With --dev: where everything is kept."`

	Vault vaultFlags `embed:"" prefix:"vault-" group:"With --dev, for its runner:"`
}

func (c *serveCmd) Run(s *session) error {
	bundle, err := c.bundle(s.ctx)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	delivery, err := c.delivery()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if c.Dev {
		return c.dev(s, bundle, delivery)
	}
	for name, v := range map[string]string{"--database-url (EXECUTION_PLANE_DATABASE_URL)": c.DatabaseURL, "--s3-endpoint (EXECUTION_PLANE_S3_ENDPOINT)": c.S3Endpoint} {
		if v == "" {
			return &exitError{exitUsage, fmt.Errorf("%s is missing; to try everything on this machine: execution-plane serve --dev", name)}
		}
	}
	keys, err := c.fingerprintKeys()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	pool.Close()                                  // the service opens its own; this only tells what cannot be reached
	profile, _ := domain.ProfileByName(c.Profile) // the flag allows no other
	log := newLogger(s.err)
	p, err := plane.New(s.ctx, plane.Config{
		DatabaseURL: c.DatabaseURL, MaxConns: c.MaxConns, Migrate: c.Migrate, Policy: bundle, PolicyIsDefault: c.Policy == "", Profile: profile, Modules: c.Modules, Listen: c.Listen, MaxQueue: c.MaxQueue, Log: log,
		Objects: c.objectsFlags.config(), InputPlaces: c.InputPlaces, ScrubRound: c.ScrubRound, ScrubBytes: c.ScrubBytes,
		Keys: keys, ScanLimit: c.ScanLimit, Delivery: delivery,
	})
	if errors.Is(err, plane.ErrConfig) {
		return &exitError{exitUsage, err}
	}
	if err != nil {
		return err
	}
	// Until everything is closed: closing may wait for a database that is away.
	defer onSecondSignal(s.ctx, func() {
		log.Warn("second signal: ending at once; requests in flight are cut off")
		os.Exit(exitFailed)
	})()
	defer p.Close()
	log.Info("service starts", "url", p.URL(), "modules", p.Modules, "policy", bundle.Digest(), "profile", profile.Name, "version", version)
	return p.Run(s.ctx)
}

// delivery is where facts and results go.
func (c *serveCmd) delivery() (d plane.Delivery, err error) {
	d = plane.Delivery{Topics: c.topics(), Source: c.EventSource, Version: version}
	if d.Kafka, err = c.kafkaFlags.config(); err != nil {
		return d, err
	}
	if c.Callbacks != "" {
		if d.Endpoints, err = callbacks.Load(c.Callbacks); err != nil {
			return d, fmt.Errorf("load the callback endpoints: %w", err)
		}
	}
	return d, nil
}

// fingerprintKeys reads the secret that replicas share; nil where there is none.
func (c *serveCmd) fingerprintKeys() (*commands.FingerprintKeys, error) {
	if c.FingerprintKeyFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(c.FingerprintKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the fingerprint key: %w", err)
	}
	keys, err := commands.SharedFingerprintKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.FingerprintKeyFile, err)
	}
	return keys, nil
}

func (c *serveCmd) dev(s *session, bundle *policy.Bundle, delivery plane.Delivery) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	access, err := c.Vault.config()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	stack, err := embedded.Start(s.ctx, embedded.Options{
		Dir: c.DataDir, Listen: c.Listen, Policy: bundle, PolicyIsDefault: c.Policy == "", InputPlaces: c.InputPlaces, Version: version, Log: newLogger(s.err), Delivery: delivery,
		Runner:   &embedded.Runner{Pool: "default", Slots: 4, JobTypes: embedded.RunnerTypes(), Executable: self, Vault: access},
		Progress: func(what string) { fmt.Fprintln(s.err, what+" …") },
	})
	if errors.Is(err, plane.ErrConfig) {
		return &exitError{exitUsage, err}
	}
	if err != nil {
		return err
	}
	// Ports may be others at each start; a file keeps secrets off command lines.
	env := filepath.Join(c.DataDir, "env")
	if err := os.WriteFile(env, []byte(devEnv(stack, c.DataDir)), 0o600); err != nil {
		return errors.Join(fmt.Errorf("keep the addresses: %w", err), stack.Stop())
	}
	fmt.Fprintf(s.err, `
Ready at %[1]s
  . %[3]s
  execution-plane submit -f examples/tcp-connect.yaml
  execution-plane verify
As an operator: export EXECUTION_PLANE_TOKEN_FILE=%[2]s/operator-token
Ctrl-C ends it; everything is kept in %[2]s
`, stack.URL, c.DataDir, quoteForShell(env))
	return errors.Join(wait(s.ctx, stack), stack.Stop())
}

// devEnv is what a shell on this machine needs to reach the stack.
func devEnv(stack *embedded.Stack, dir string) string {
	var b strings.Builder
	for _, v := range [][2]string{
		{"URL", stack.URL}, {"TOKEN_FILE", filepath.Join(dir, "token")}, {"DATABASE_URL", stack.DatabaseURL},
		{"S3_ENDPOINT", stack.S3.Endpoint}, {"S3_BUCKET", stack.S3.Bucket}, {"S3_ACCESS_KEY", stack.S3.AccessKey},
		{"S3_SECRET_KEY", stack.S3.SecretKey}, {"S3_TLS", "false"},
	} {
		fmt.Fprintf(&b, "export EXECUTION_PLANE_%s=%s\n", v[0], quoteForShell(v[1]))
	}
	return b.String()
}

func quoteForShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// wait waits for the end of ctx or of a part of the stack.
func wait(ctx context.Context, stack *embedded.Stack) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-stack.Failed():
		return err
	}
}
