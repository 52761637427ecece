package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/runners"
)

type runnerCmd struct {
	Run    runnerRunCmd    `cmd:"" default:"withargs" help:"Run a runner of one type on this machine."`
	Enroll runnerEnrollCmd `cmd:"" help:"Make a one-time token that lets one runner in (operator)."`
}

type runnerRunCmd struct {
	Type         string            `default:"verification" enum:"verification,ansible,ssh" help:"Which jobs it does: verification, ansible or ssh."`
	Enrolment    string            `env:"EXECUTION_PLANE_ENROLMENT" help:"One-time enrolment token; needed once."`
	StateDir     string            `env:"EXECUTION_PLANE_RUNNER_DIR" type:"path" help:"Folder of its credential and of the work at hand; default ${data_dir}/runner, with the type behind it unless that is verification."`
	Slots        int               `default:"0" help:"Attempts at a time; 0: two for each core."`
	Environments []string          `help:"Serve only these environments."`
	Labels       map[string]string `help:"Labels, such as zone=a."`
	Drain        time.Duration     `default:"10m" help:"How long running attempts may go on after SIGTERM."`
	Metrics      string            `env:"EXECUTION_PLANE_RUNNER_METRICS" help:"Serve Prometheus metrics on this address, such as 127.0.0.1:9465."`
	Vault        vaultFlags        `embed:"" prefix:"vault-"`

	isolationFlags
}

func (c *runnerRunCmd) Run(s *session) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	connect, err := agent.Dial(s.URL, "execution-plane/"+version)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	digest, err := fileDigest(self)
	if err != nil {
		return err
	}
	if c.Slots == 0 {
		c.Slots = 2 * runtime.NumCPU()
	}
	if c.StateDir == "" {
		c.StateDir = filepath.Join(defaultDataDir(), "runner")
		if c.Type != runners.TypeVerification {
			c.StateDir += "-" + c.Type
		}
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return &exitError{exitUsage, fmt.Errorf("make the runner's folder: %w; choose another with --state-dir", err)}
	}
	access, err := c.Vault.config()
	if err != nil {
		return &exitError{exitUsage, err}
	}
	log := newLogger(s.err)
	settings := agent.Config{
		Connect: connect, EnrolmentToken: c.Enrolment, StateDir: c.StateDir, BinarySHA256: digest, Slots: c.Slots,
		Environments: c.Environments, Labels: c.Labels, DrainLimit: c.Drain, Metrics: c.Metrics, Log: log, Vault: access,
	}
	if err := c.apply(&settings); err != nil {
		return &exitError{exitUsage, err}
	}
	config, err := embedded.RunnerConfig(s.ctx, c.Type, self, version, settings)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	a, err := agent.New(config)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer onSecondSignal(s.ctx, func() {
		log.Warn("second signal: ending every job at once")
		a.Kill()
	})()
	log.Info("runner starts", "type", c.Type, "url", s.URL, "slots", c.Slots, "state_dir", c.StateDir)
	err = a.Run(s.ctx)
	if s.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

// onSecondSignal calls act at the first signal after ctx ended, which the first
// signal did. The result takes the watch away.
func onSecondSignal(ctx context.Context, act func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		select {
		case <-done:
		case <-signals:
			act()
		}
	}()
	return func() {
		close(done)
		signal.Stop(signals)
	}
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

type runnerEnrollCmd struct {
	Pool    string        `default:"default" help:"Pool of the policy bundle."`
	Expires time.Duration `default:"1h" help:"How long the token is good."`
}

func (c *runnerEnrollCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	e, err := api.CreateEnrolment(s.ctx, domain.NewID[domain.CommandID](uuid.New()), wire.EnrolmentRequest{Pool: c.Pool, ExpiresSeconds: int(c.Expires / time.Second)})
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(e)
	}
	fmt.Fprintln(s.out, e.Token)
	fmt.Fprintf(s.err, "Good for one runner until %s. On its machine:\n  EXECUTION_PLANE_ENROLMENT=… execution-plane runner --url %s\n", e.ExpiresAt.Format(time.RFC3339), s.URL)
	return nil
}

// defaultDataDir is where this user's data lies.
func defaultDataDir() string { return filepath.Clean(strings.TrimSpace(embedded.DefaultDir())) }
