package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/policy"
)

// bundle is the policy bundle that the service begins with.
func (c *serveCmd) bundle(ctx context.Context) (*policy.Bundle, error) {
	switch {
	case strings.HasPrefix(c.Policy, "s3://"):
		b, err := c.storedBundle(ctx)
		if err != nil {
			return nil, fmt.Errorf("load the policy bundle %s: %w", c.Policy, err)
		}
		return b, nil
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
		return policy.BuiltinLocal(), nil
	}
	return policy.Builtin(), nil
}

// storedBundle reads one object with the credentials of the artifacts' bucket.
func (c *serveCmd) storedBundle(ctx context.Context) (*policy.Bundle, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(c.Policy, "s3://"), "/")
	if bucket == "" || key == "" {
		return nil, errors.New("the form is s3://bucket/key")
	}
	config := c.objectsFlags.config()
	if config.Endpoint == "" {
		return nil, errors.New("--s3-endpoint (EXECUTION_PLANE_S3_ENDPOINT) is missing")
	}
	config.Bucket = bucket
	b, err := objects.Open(config)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	r, err := b.Get(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	archive, err := io.ReadAll(io.LimitReader(r, artifacts.MaxPolicyArchive+1))
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if len(archive) > artifacts.MaxPolicyArchive {
		return nil, fmt.Errorf("it has more than %d bytes", artifacts.MaxPolicyArchive)
	}
	return policy.Open(archive)
}
