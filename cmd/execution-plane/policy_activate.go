package main

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type policyActivateCmd struct {
	Dir    string `arg:"" help:"Folder of the bundle."`
	Reason string `short:"r" required:"" help:"Why; it is recorded."`
}

// Run puts the bundle into object storage first: no replica is told of one that
// it could not load.
func (c *policyActivateCmd) Run(s *session) error {
	b, err := loadPolicy(s, c.Dir)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	if _, err := api.PutPolicyBundle(s.ctx, domain.NewID[domain.CommandID](uuid.New()), b.Digest(), b.Bytes()); err != nil {
		return err
	}
	active, err := api.ActivatePolicy(s.ctx, domain.NewID[domain.CommandID](uuid.New()), wire.ActivatePolicyRequest{BundleDigest: b.Digest(), Reason: c.Reason})
	if err != nil {
		return err
	}
	return printActive(s, active)
}

type policyShowCmd struct{}

func (c *policyShowCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	active, err := api.ActivePolicy(s.ctx)
	if err != nil {
		return err
	}
	return printActive(s, active)
}

func printActive(s *session, p wire.ActivePolicy) error {
	if s.isJSON() {
		return s.json(p)
	}
	switch {
	case p.BundleDigest == "":
		fmt.Fprintln(s.out, "no bundle is recorded yet")
	case p.Ordered:
		fmt.Fprintf(s.out, "bundle %s, made the active one by an operator\n", p.BundleDigest)
	default:
		fmt.Fprintf(s.out, "bundle %s, with which the service was started\n", p.BundleDigest)
	}
	return nil
}
