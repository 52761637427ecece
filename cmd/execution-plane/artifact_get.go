package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

type artifactGetCmd struct {
	Of   string `arg:"" help:"Attempt id, a prefix of it, or @latest; without NAME the artifact's own id, or artifact://<id>."`
	Name string `arg:"" optional:"" help:"Name of the attempt's artifact."`
	File string `short:"f" help:"Where to write it; the file must not exist. Standard output if not given."`
}

// gotArtifact is what artifact get answers with -o json where it wrote a file.
type gotArtifact struct {
	ArtifactID domain.ArtifactID `json:"artifact_id"`
	File       string            `json:"file"`
	Bytes      int64             `json:"bytes"`
	SHA256     string            `json:"sha256"`
}

func (c *artifactGetCmd) Run(s *session) error {
	if s.isJSON() && c.File == "" {
		return &exitError{exitUsage, errors.New("the bytes and a JSON answer do not go to one output; name a file: --file FILE")}
	}
	api, id, err := c.find(s)
	if err != nil {
		return err
	}
	at, err := api.ArtifactLocation(s.ctx, id)
	if err != nil {
		return err
	}
	if c.File == "" {
		return showObject(s, api, at)
	}
	n, err := saveObject(s, api, at, c.File)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(gotArtifact{id, c.File, n, at.SHA256})
	}
	fmt.Fprintf(s.out, "✓ %s: %d bytes, sha256 %s as the ledger has it\n", c.File, n, printable(at.SHA256))
	return nil
}

// find says which artifact is meant.
func (c *artifactGetCmd) find(s *session) (*client.Client, domain.ArtifactID, error) {
	if c.Name == "" {
		id, err := domain.ParseID[domain.ArtifactID](strings.TrimPrefix(c.Of, "artifact://"))
		if err != nil {
			return nil, id, &exitError{exitUsage, fmt.Errorf("%q is no artifact's id; name an attempt and its artifact: execution-plane artifact get ATTEMPT NAME", c.Of)}
		}
		api, err := s.client()
		return api, id, err
	}
	api, attempt, err := s.target(c.Of)
	if err != nil {
		return nil, domain.ArtifactID{}, err
	}
	all, err := api.Artifacts(s.ctx, attempt)
	if err != nil {
		return nil, domain.ArtifactID{}, err
	}
	a, ok := artifactNamed(all, c.Name)
	if !ok {
		names := []string{"it has none"}
		if len(all) > 0 {
			names = []string{"it has"}
			for _, a := range all {
				names = append(names, printable(a.Name))
			}
		}
		return nil, a.ID, &exitError{exitUsage, fmt.Errorf("attempt %s has no artifact %q: %s", short(attempt), c.Name, strings.Join(names, " "))}
	}
	return api, a.ID, nil
}

func artifactNamed(all []wire.Artifact, name string) (wire.Artifact, bool) {
	for _, a := range all {
		if a.Name == name {
			return a, true
		}
	}
	return wire.Artifact{}, false
}

// checkedObject reads an object and compares it with what the ledger says at its end.
type checkedObject struct {
	*hashed
	body   io.Closer
	sha256 string // that it must have
}

func openObject(s *session, api *client.Client, at client.ObjectLocation) (*checkedObject, error) {
	body, _, err := api.GetObject(s.ctx, at.URL)
	if err != nil {
		return nil, err
	}
	return &checkedObject{newHashed(body), body, at.SHA256}, nil
}

func (o *checkedObject) Read(p []byte) (int, error) {
	n, err := o.hashed.Read(p)
	if errors.Is(err, io.EOF) && o.sum() != o.sha256 {
		return n, &exitError{exitInfra, fmt.Errorf("the bytes in object storage are not those that the ledger names (%d bytes came); do not use them: execution-plane scrub finds what else differs", o.n)}
	}
	return n, err
}

func (o *checkedObject) Close() error { return o.body.Close() }

// showObject writes an object to standard output. A terminal gets text without
// escape sequences, and nothing that is no text.
func showObject(s *session, api *client.Client, at client.ObjectLocation) error {
	o, err := openObject(s, api, at)
	if err != nil {
		return err
	}
	defer o.Close()
	if !isTerminal(s.out) {
		_, err := io.Copy(s.out, o)
		return err
	}
	var filter colourOnly
	buf := make([]byte, 32<<10)
	for first := true; ; first = false {
		n, err := o.Read(buf)
		if first && strings.ContainsRune(string(buf[:n]), 0) {
			return &exitError{exitUsage, errors.New("the artifact is no text; write it to a file: --file FILE")}
		}
		if _, err := s.out.Write(filter.next(nil, buf[:n])); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// saveObject writes an object to a file that appears only whole and checked.
func saveObject(s *session, api *client.Client, at client.ObjectLocation, file string) (n int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, &exitError{exitUsage, fmt.Errorf("%s is there already; name another file", file)}
	}
	o, err := openObject(s, api, at)
	if err != nil {
		return 0, err
	}
	defer o.Close()
	part, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".part-*")
	if err != nil {
		return 0, &exitError{exitUsage, fmt.Errorf("make the file: %w", err)}
	}
	defer os.Remove(part.Name())
	n, err = io.Copy(part, o)
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return n, fmt.Errorf("write %s: %w", file, err)
	}
	// A link, unlike a rename, replaces nothing that came in between.
	if err := os.Link(part.Name(), file); err != nil {
		return n, &exitError{exitUsage, fmt.Errorf("write %s: %w", file, err)}
	}
	return n, nil
}
