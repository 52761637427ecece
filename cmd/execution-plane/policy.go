package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/platform-core/execution-plane-service/policy"
)

type policyCmd struct {
	Check    policyCheckCmd    `cmd:"" help:"Say every mistake of a bundle with its file and line."`
	Explain  policyExplainCmd  `cmd:"" help:"Say what a bundle decides on a JobSpec, and what each rule had to do with it; needs no service."`
	Digest   policyDigestCmd   `cmd:"" help:"Print the digest of a bundle."`
	Build    policyBuildCmd    `cmd:"" help:"Write a bundle as one archive, as it is kept in object storage."`
	Activate policyActivateCmd `cmd:"" help:"Make a bundle the one that every replica decides with (operator)."`
	Show     policyShowCmd     `cmd:"" help:"Say which bundle is the active one."`
}

// checked is what policy check and policy digest print as JSON.
type checked struct {
	OK       bool             `json:"ok"`
	Digest   string           `json:"bundle_digest,omitempty"`
	Rules    int              `json:"rules,omitempty"`
	Mistakes []policy.Mistake `json:"mistakes,omitempty"`
}

type policyCheckCmd struct {
	Dir string `arg:"" help:"Folder of the bundle."`
}

func (c *policyCheckCmd) Run(s *session) error {
	b, err := loadPolicy(s, c.Dir)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(checked{OK: true, Digest: b.Digest(), Rules: b.Size()})
	}
	fmt.Fprintf(s.out, "✓ %d rules, no mistakes (bundle %.12s)\n", b.Size(), b.Digest())
	return nil
}

func printMistakes(s *session, wrong *policy.LoadError) error {
	if s.isJSON() {
		return s.json(checked{Mistakes: wrong.Mistakes})
	}
	for _, m := range wrong.Mistakes {
		fmt.Fprintln(s.out, "✗ "+printable(m.String()))
	}
	word := "mistakes"
	if len(wrong.Mistakes) == 1 {
		word = "mistake"
	}
	fmt.Fprintf(s.err, "%d %s: no part of the bundle would be loaded\n", len(wrong.Mistakes), word)
	return nil
}

type policyDigestCmd struct {
	Dir string `arg:"" help:"Folder of the bundle."`
}

func (c *policyDigestCmd) Run(s *session) error {
	b, err := loadPolicy(s, c.Dir)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(checked{OK: true, Digest: b.Digest(), Rules: b.Size()})
	}
	fmt.Fprintln(s.out, b.Digest())
	return nil
}

type policyBuildCmd struct {
	Dir string `arg:"" help:"Folder of the bundle."`
	To  string `short:"t" required:"" help:"File to write; it must not exist."`
}

func (c *policyBuildCmd) Run(s *session) error {
	b, err := loadPolicy(s, c.Dir)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.To, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("write the archive: %w", err)}
	}
	_, err = f.Write(b.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	if s.isJSON() {
		return s.json(checked{OK: true, Digest: b.Digest(), Rules: b.Size()})
	}
	fmt.Fprintf(s.out, "%s  %s\n", b.Digest(), printable(c.To))
	return nil
}

// loadPolicy loads a folder; its mistakes are printed and end the program with
// exitUsage.
func loadPolicy(s *session, dir string) (*policy.Bundle, error) {
	b, err := policy.Load(os.DirFS(dir))
	var wrong *policy.LoadError
	switch {
	case errors.As(err, &wrong):
		return nil, errors.Join(printMistakes(s, wrong), &exitError{code: exitUsage})
	case err != nil:
		return nil, &exitError{exitUsage, fmt.Errorf("%s: %w", dir, err)}
	case b.Size() == 0:
		// As the active one it would refuse every job.
		return nil, &exitError{exitUsage, fmt.Errorf("%s holds no rule: a policy bundle is a folder of .yaml files", dir)}
	}
	return b, nil
}
