package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

type artifactCmd struct {
	Put  artifactPutCmd  `cmd:"" help:"Put a file to an operation; its jobs name it by artifact://operation/NAME."`
	List artifactListCmd `cmd:"" help:"List what was put to an operation, the newest first."`
	Get  artifactGetCmd  `cmd:"" help:"Fetch an artifact's bytes, of an attempt that has ended or put to an operation."`
}

type artifactPutCmd struct {
	Operation   string `arg:"" help:"Id of the operation."`
	Name        string `arg:"" help:"What jobs call it: letters, digits and . _ / : @ -. Of a name the newest counts."`
	File        string `arg:"" type:"existingfile" help:"The file."`
	Sensitivity string `enum:"public,internal" default:"internal" help:"public or internal. A secret is not put here: it belongs into Vault, and its reference into inputs.secrets."`
	ContentType string `default:"application/octet-stream" help:"Media type of the file."`
}

func (c *artifactPutCmd) Run(s *session) error {
	op, err := operationID(c.Operation)
	if err != nil {
		return err
	}
	if !domain.ValidArtifactName(c.Name) {
		return &exitError{exitUsage, fmt.Errorf("%q is no name of an artifact: it begins with a letter or digit and holds letters, digits and . _ / : @ - only, at most 200", c.Name)}
	}
	file, f, err := openUpload(c.File)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	defer file.Close()
	f.ContentType = c.ContentType
	api, err := s.client()
	if err != nil {
		return err
	}
	a, created, err := api.PutArtifact(s.ctx, domain.NewID[domain.CommandID](uuid.New()), op, c.Name, c.Sensitivity, f)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(a)
	}
	if !created {
		fmt.Fprintf(s.out, "%s has these bytes already: %s\n", printable(a.Name), a.ArtifactID)
		return nil
	}
	fmt.Fprintf(s.out, "✓ %s (%d bytes) is %s\n", printable(a.Name), a.Bytes, a.ArtifactID)
	fmt.Fprintf(s.out, "Next: name it in inputs.artifacts: {\"name\": %q, \"artifact_ref\": \"artifact://operation/%s\", \"sha256\": %q}\n", printable(a.Name), printable(a.Name), a.SHA256)
	return nil
}

type artifactListCmd struct {
	Operation string `arg:"" help:"Id of the operation."`
}

func (c *artifactListCmd) Run(s *session) error {
	op, err := operationID(c.Operation)
	if err != nil {
		return err
	}
	api, err := s.client()
	if err != nil {
		return err
	}
	items, err := api.PutArtifacts(s.ctx, op)
	if err != nil {
		return err
	}
	if s.isJSON() {
		return s.json(items)
	}
	if len(items) == 0 {
		fmt.Fprintf(s.out, "Nothing was put to this operation. What its attempts left: execution-plane list, then get ATTEMPT\n")
		return nil
	}
	t := table(s.out)
	fmt.Fprintln(t, "NAME\tBYTES\tSHA256\tSENSITIVITY\tPUT AT\tID")
	for _, a := range items {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", printable(a.Name), a.Bytes, printable(a.SHA256), printable(a.Sensitivity), a.CreatedAt.Format("2006-01-02 15:04:05"), a.ArtifactID)
	}
	return t.Flush()
}

func operationID(text string) (domain.OperationID, error) {
	op, err := domain.ParseID[domain.OperationID](text)
	if err != nil {
		return op, &exitError{exitUsage, fmt.Errorf("%q is not the id of an operation; it is the operation_id of its jobs", text)}
	}
	return op, nil
}

// openUpload opens a file to be sent, with its size and digest. The caller closes it.
func openUpload(path string) (file *os.File, f client.File, err error) {
	file, err = os.Open(path)
	if err != nil {
		return nil, f, fmt.Errorf("open the file: %w", err)
	}
	whole := newHashed(file)
	n, err := io.Copy(io.Discard, whole)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, f, errors.Join(fmt.Errorf("read %s: %w", path, err), file.Close())
	}
	return file, client.File{Body: file, Bytes: n, SHA256: whole.sum()}, nil
}
