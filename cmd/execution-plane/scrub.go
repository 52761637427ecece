package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// objectsFlags say where object storage is.
type objectsFlags struct {
	S3Endpoint  string `name:"s3-endpoint" env:"EXECUTION_PLANE_S3_ENDPOINT" help:"Object storage, host:port."`
	S3Bucket    string `name:"s3-bucket" env:"EXECUTION_PLANE_S3_BUCKET" default:"execution-plane"`
	S3AccessKey string `name:"s3-access-key" env:"EXECUTION_PLANE_S3_ACCESS_KEY"`
	S3SecretKey string `name:"s3-secret-key" env:"EXECUTION_PLANE_S3_SECRET_KEY" help:"Better given by the environment."`
	S3Region    string `name:"s3-region" env:"EXECUTION_PLANE_S3_REGION"`
	S3TLS       bool   `name:"s3-tls" env:"EXECUTION_PLANE_S3_TLS" default:"true" negatable:""`
	S3PathStyle bool   `name:"s3-path-style" env:"EXECUTION_PLANE_S3_PATH_STYLE" default:"true" negatable:""`
}

func (f objectsFlags) config() objects.Config {
	return objects.Config{Endpoint: f.S3Endpoint, Bucket: f.S3Bucket, AccessKey: f.S3AccessKey, SecretKey: f.S3SecretKey,
		Region: f.S3Region, Secure: f.S3TLS, PathStyle: f.S3PathStyle}
}

type scrubCmd struct {
	databaseFlag
	objectsFlags
	Attempt string `help:"Only this attempt's objects: its whole id."`
	Bytes   int64  `name:"bytes-per-second" default:"67108864" help:"What is read, a second at most."`
}

func (c *scrubCmd) Run(s *session) error {
	if c.S3Endpoint == "" {
		return &exitError{exitUsage, errors.New("--s3-endpoint (EXECUTION_PLANE_S3_ENDPOINT) is missing: where the objects are")}
	}
	var only *domain.AttemptID
	if c.Attempt != "" {
		id, err := domain.ParseID[domain.AttemptID](c.Attempt)
		if err != nil {
			return &exitError{exitUsage, fmt.Errorf("--attempt: %w", err)}
		}
		only = &id
	}
	bucket, err := objects.Open(c.config())
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer bucket.Close()
	pool, err := database(s.ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	store := postgres.Open(pool, projections.Tables(), postgres.Options{})
	defer store.Close()
	reads := projections.NewReader(pool)
	scrubber := &artifacts.Scrubber{Store: store, Reads: reads, Objects: bucket, Log: newLogger(io.Discard), BytesPerSecond: c.Bytes,
		Commands: commands.New(commands.Config{Store: store, Index: commands.NewIndex(reads), Policy: policy.Builtin, Actions: runners.Catalogue(), Profile: domain.DefaultProfile()})}
	r, err := scrubber.Pass(s.ctx, only, byHand, scrubProgress(s))
	switch {
	case domain.KindOf(err) == domain.KindNotFound:
		return &exitError{exitUsage, err}
	case err != nil && (domain.KindOf(err) == domain.KindUnavailable || errors.Is(err, eventstore.ErrUnavailable)):
		err = &exitError{exitUnreachable, err}
	}
	// Also a pass that could not go on says what it had found.
	if s.isJSON() {
		err = errors.Join(err, s.json(r))
	} else {
		printScrub(s.out, r, err == nil)
	}
	if !r.OK() {
		return &exitError{exitVerification, err}
	}
	return err
}

// byHand is the meta of a finding by somebody who has the database's credentials.
func byHand() commands.Meta {
	m := commands.Scrubber()
	m.CommandID = domain.NewID[domain.CommandID](uuid.New())
	m.Actor = eventstore.Actor{Kind: "operator", ID: "local", Role: domain.RoleOperator, Auth: "database"}
	return m
}

func scrubProgress(s *session) func(artifacts.ScrubReport) {
	if !isTerminal(s.err) || s.isJSON() {
		return nil
	}
	var last time.Time
	return func(r artifacts.ScrubReport) {
		if time.Since(last) < 200*time.Millisecond {
			return
		}
		last = time.Now()
		fmt.Fprintf(s.err, "\r%d attempts, %d objects, %.1f MiB, %d wrong \x1b[K", r.Attempts, r.Objects, float64(r.Bytes)/(1<<20), len(r.Findings))
	}
}

func printScrub(w io.Writer, r artifacts.ScrubReport, whole bool) {
	for _, h := range r.Healed {
		fmt.Fprintf(w, "  right again: %s (was %s)\n", printable(h.Key), h.Problem)
	}
	what := "so far"
	if whole {
		what = "in all"
	}
	if r.OK() {
		mark := "✓"
		if !whole {
			mark = "…"
		}
		fmt.Fprintf(w, "%s %d attempts, %d objects, %d bytes %s: each is what the ledger says\n", mark, r.Attempts, r.Objects, r.Bytes, what)
		return
	}
	fmt.Fprintf(w, "✗ %d of %d objects of %d attempts %s are not what the ledger says\n", int64(len(r.Findings))+r.Omitted, r.Objects, r.Attempts, what)
	for _, f := range r.Findings {
		fmt.Fprintf(w, "  %s: %s, the ledger says %s", printable(f.Key), f.Problem, f.SHA256)
		if f.Bytes != nil {
			fmt.Fprintf(w, " and %d bytes", *f.Bytes)
		}
		if f.FoundBytes != nil {
			fmt.Fprintf(w, ", found %s and %d bytes", f.FoundSHA256, *f.FoundBytes)
		}
		fmt.Fprintln(w)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "  and %d more\n", r.Omitted)
	}
	fmt.Fprintln(w, "  Next: put each object back under its key from a copy of the bucket, and run this again")
}
