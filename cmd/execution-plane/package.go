package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/platform-core/execution-plane-service/packages"
)

type packageCmd struct {
	Build   packageBuildCmd   `cmd:"" help:"Make a package of a folder that has a package.yaml."`
	Inspect packageInspectCmd `cmd:"" help:"Say what is in a package."`
	Push    packagePushCmd    `cmd:"" help:"Bring a package to the service (operator)."`
	List    packageListCmd    `cmd:"" help:"List the packages that were pushed."`
}

// packageError gives a package that is refused the exit code of a wrong input.
func packageError(err error) error {
	if packages.CodeOf(err) != "" {
		return &exitError{exitUsage, err}
	}
	return err
}

type packageBuildCmd struct {
	Dir  string `arg:"" help:"The folder; package.yaml is at its top."`
	File string `short:"f" help:"Where to write the package; <name>-<version>.tar.zst here if not given."`
}

// builtPackage is what package build answers.
type builtPackage struct {
	File      string `json:"file"`
	Reference string `json:"reference"`
	*packages.Built
	Policy string `json:"policy"` // lines for a policy bundle
}

func (c *packageBuildCmd) Run(s *session) error {
	file := c.File
	if file == "" {
		file = "package.tar.zst"
		// What is wrong with it is told by the build.
		if text, err := os.ReadFile(filepath.Join(c.Dir, packages.ManifestName)); err == nil {
			if m, err := packages.ParseManifest(text); err == nil {
				file = m.Name + "-" + m.Version + ".tar.zst"
			}
		}
	}
	b, err := packages.BuildFile(c.Dir, file, packages.DefaultLimits())
	if err != nil {
		return packageError(err)
	}
	out := builtPackage{file, b.Reference.String(), b, policyLines(b.Manifest, b.SHA256)}
	if s.isJSON() {
		return s.json(out)
	}
	printUnlisted(s.err, b.Unlisted)
	if len(b.LeftOut) > 0 {
		fmt.Fprintf(s.err, "Left out: %s\n", printable(strings.Join(b.LeftOut, ", ")))
	}
	t := table(s.out)
	fmt.Fprintf(t, "file\t%s (%d bytes)\nreference\t%s\n", printable(file), b.Compressed, out.Reference)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nBring it to the service:\n\n  execution-plane package push %s\n\nApprove it, in a file of the policy bundle:\n\n%s", printable(file), out.Policy)
	return nil
}

func printUnlisted(w io.Writer, names []string) {
	const most = 20
	for i, name := range names {
		if i == most {
			fmt.Fprintf(w, "! and %d more that %s does not list\n", len(names)-most, packages.ManifestName)
			return
		}
		fmt.Fprintf(w, "! %s does not list %s\n", packages.ManifestName, printable(name))
	}
}

// policyLines are a rule that approves all that a package lists, in one environment.
func policyLines(m packages.Manifest, sha256 string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "packages:\n  - name: %s\n    sha256: [%s] # %s\n    actions: [\"ansible.*\"]\n    environments: [dev]\n", m.Name, sha256, m.Version)
	list := func(key string, values []string) {
		if len(values) == 0 {
			return
		}
		fmt.Fprintf(&b, "    %s:\n", key)
		for _, v := range values {
			fmt.Fprintf(&b, "      - %q\n", v)
		}
	}
	list("playbooks", m.Playbooks)
	list("roles", m.Roles)
	return b.String()
}

type packageInspectCmd struct {
	Package string `arg:"" help:"A file, or the reference <name>@sha256:<hex> of a package that was pushed."`
}

// inspectedPackage is what package inspect answers.
type inspectedPackage struct {
	Reference string `json:"reference"`
	SHA256    string `json:"sha256"`
	*packages.Contents
	Policy string `json:"policy"`
}

func (c *packageInspectCmd) Run(s *session) error {
	body, want, err := c.open(s)
	if err != nil {
		return err
	}
	defer body.Close()
	hashed := newHashed(body)
	contents, err := packages.Inspect(hashed, packages.DefaultLimits())
	if err == nil {
		_, err = io.Copy(io.Discard, hashed)
	}
	if err != nil {
		return packageError(err)
	}
	sum := hashed.sum()
	if want.SHA256 != "" && (sum != want.SHA256 || contents.Manifest.Name != want.Name) {
		return fmt.Errorf("the service gave the package %s@sha256:%s for %s", contents.Manifest.Name, sum, want)
	}
	ref := packages.Reference{Name: contents.Manifest.Name, SHA256: sum}
	if s.isJSON() {
		return s.json(inspectedPackage{ref.String(), sum, contents, policyLines(contents.Manifest, sum)})
	}
	return printPackage(s.out, ref, contents)
}

// open gives the bytes of a file, or of a package that the service has.
func (c *packageInspectCmd) open(s *session) (io.ReadCloser, packages.Reference, error) {
	ref, err := packages.ParseReference(c.Package)
	if err != nil {
		if strings.Contains(c.Package, "@sha256:") {
			return nil, ref, &exitError{exitUsage, err}
		}
		f, err := os.Open(c.Package)
		if errors.Is(err, os.ErrNotExist) {
			err = &exitError{exitUsage, fmt.Errorf("%w; a package that was pushed is named <name>@sha256:<hex>", err)}
		}
		return f, packages.Reference{}, err
	}
	api, err := s.client()
	if err != nil {
		return nil, ref, err
	}
	at, err := api.PackageLocation(s.ctx, ref.SHA256)
	if err != nil {
		return nil, ref, err
	}
	body, _, err := api.GetObject(s.ctx, at.URL)
	return body, ref, err
}

func printPackage(w io.Writer, ref packages.Reference, c *packages.Contents) error {
	m := c.Manifest
	fmt.Fprintf(w, "%s %s\n", m.Name, m.Version)
	if m.Description != "" {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(printable(m.Description), "\n", "\n  "))
	}
	t := table(w)
	row := func(k string, values ...string) {
		if len(values) > 0 {
			fmt.Fprintf(t, "  %s\t%s\n", k, printable(strings.Join(values, ", ")))
		}
	}
	row("reference", ref.String())
	row("playbooks", m.Playbooks...)
	row("roles", m.Roles...)
	row("collections", m.Collections...)
	row("files", m.Files...)
	row("not listed", c.Unlisted...)
	fmt.Fprintf(t, "  bytes\t%d\n", c.Bytes)
	if err := t.Flush(); err != nil {
		return err
	}
	t = table(w)
	fmt.Fprintln(t, "KIND\tBYTES\tNAME")
	for _, e := range c.Entries {
		switch {
		case e.Kind == packages.Folder:
			fmt.Fprintf(t, "folder\t\t%s/\n", printable(e.Name))
		case e.Kind == packages.Link:
			fmt.Fprintf(t, "link\t\t%s -> %s\n", printable(e.Name), printable(e.Target))
		case e.Executable:
			fmt.Fprintf(t, "program\t%d\t%s\n", e.Bytes, printable(e.Name))
		default:
			fmt.Fprintf(t, "file\t%d\t%s\n", e.Bytes, printable(e.Name))
		}
	}
	return t.Flush()
}
