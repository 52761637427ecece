package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/packages"
)

// hashed counts and hashes what is read.
type hashed struct {
	r    io.Reader
	hash hash.Hash
	n    int64
}

func newHashed(r io.Reader) *hashed { return &hashed{r: r, hash: sha256.New()} }

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.hash.Write(p[:n])
	h.n += int64(n)
	return n, err
}

func (h *hashed) sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }

type packagePushCmd struct {
	File string `arg:"" help:"The package's file, as package build makes it."`
}

// pushedPackage is what package push answers.
type pushedPackage struct {
	Reference string `json:"reference"`
	SHA256    string `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	// Created is false where the service had it already.
	Created bool `json:"created"`
}

func (c *packagePushCmd) Run(s *session) error {
	f, err := os.Open(c.File)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("read the package: %w", err)}
	}
	defer f.Close()
	// Looked at here first: what the service would refuse is not sent.
	whole := newHashed(f)
	contents, err := packages.Inspect(whole, packages.DefaultLimits())
	if err == nil {
		_, err = io.Copy(io.Discard, whole)
	}
	if err != nil {
		return packageError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the package: %w", err)
	}
	sum := whole.sum()
	if !s.isJSON() {
		printUnlisted(s.err, contents.Unlisted)
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	body, ended := showUpload(s.err, f, whole.n)
	p, created, err := api.PushPackage(s.ctx, domain.NewID[domain.CommandID](uuid.New()), client.File{Body: body, Bytes: whole.n, SHA256: sum})
	ended()
	if err != nil {
		return err
	}
	ref := packages.Reference{Name: p.Name, SHA256: p.SHA256}
	if s.isJSON() {
		return s.json(pushedPackage{ref.String(), p.SHA256, p.Bytes, created})
	}
	word := "pushed"
	if !created {
		word = "there already"
	}
	fmt.Fprintf(s.out, "%s  %s\n", ref, word)
	return nil
}

// showUpload shows on a terminal how far a body was read.
func showUpload(w io.Writer, body io.Reader, size int64) (io.Reader, func()) {
	if !isTerminal(w) {
		return body, func() {}
	}
	bars := mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(150*time.Millisecond))
	bar := bars.AddBar(size, mpb.PrependDecorators(decor.CountersKibiByte("% .1f / % .1f")), mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), "% .1f")))
	return io.TeeReader(body, barWriter{bar}), func() {
		bar.Abort(true)
		bars.Wait()
	}
}

// barWriter moves a bar by what is written.
type barWriter struct{ bar *mpb.Bar }

func (b barWriter) Write(p []byte) (int, error) {
	b.bar.IncrBy(len(p))
	return len(p), nil
}

type packageListCmd struct{}

func (c *packageListCmd) Run(s *session) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	all, err := api.Packages(s.ctx)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(s.err, "No package was pushed. Make one: execution-plane package build DIR")
		return nil
	}
	t := table(s.out)
	fmt.Fprintln(t, "REFERENCE\tVERSION\tBYTES\tPUSHED")
	for _, p := range all {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", packages.Reference{Name: p.Name, SHA256: p.SHA256}, printable(p.Version), p.Bytes, p.PushedAt.Format(time.RFC3339))
	}
	return t.Flush()
}
