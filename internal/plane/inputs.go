package plane

import (
	"errors"
	"fmt"
	"io"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/packages"
)

// openInputs finds out which objects jobs may name by s3://.
func (p *Plane) openInputs() (err error) {
	if p.places, err = artifacts.OpenInputPlaces(p.Objects, p.InputPlaces); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// inputsAPI adds what gives files to jobs.
func (p *Plane) inputsAPI(c *api.Config) {
	c.Inputs = &artifacts.Inputs{Commands: p.Commands, Reads: p.Reads, Objects: p.Bucket, Places: p.places}
	c.Packages = &artifacts.Packages{Commands: p.Commands, Reads: p.Reads, Objects: p.Bucket, Inspect: inspectPackage}
}

// inspectPackage opens a package within the limits that runners have, and gives the
// name and version of its package.yaml.
func inspectPackage(r io.Reader) (name, version string, err error) {
	p, err := packages.Inspect(r, packages.DefaultLimits())
	var refused *packages.Refused
	if errors.As(err, &refused) {
		return "", "", (&domain.Error{Kind: domain.KindInvalid, Code: "package_refused", Message: "the file is no package that runners take: " + refused.Text,
			Next: "make it with execution-plane package build, and look at it with execution-plane package inspect"}).With("reason", string(refused.Code))
	}
	if err != nil {
		return "", "", fmt.Errorf("look at a package: %w", err)
	}
	return p.Manifest.Name, p.Manifest.Version, nil
}
