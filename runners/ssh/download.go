package ssh

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

// downloadReport is what a download got.
type downloadReport struct {
	File     string    `json:"file"` // the policy's name
	Root     string    `json:"root"`
	Path     string    `json:"path"`
	Artifact string    `json:"artifact"`
	SHA256   string    `json:"sha256,omitempty"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func (j *job) decideDownload() (func(context.Context) executor.Outcome, error) {
	grant, verdict := j.bundle.FileGrant(j.input)
	if err := j.rec.decided("download of "+j.params.Path+" from "+j.params.File, verdict); err != nil {
		return nil, err
	}
	dir := j.task.OutputDir
	if j.params.Sensitivity == executor.Secret {
		dir = j.task.SecretOutputDir
		if dir == "" {
			return nil, rejectedf("a file of sensitivity secret cannot be taken here: this runner has no place for secret artifacts, or policy maps none")
		}
	}
	if j.params.Artifact == ResultName {
		return nil, rejectedf("the artifact name %s is the result's", ResultName)
	}
	return func(ctx context.Context) executor.Outcome {
		r := &downloadReport{File: grant.Name, Root: grant.Root, Path: j.params.Path, Artifact: j.params.Artifact}
		j.report.Got = r
		if err := j.download(ctx, grant, dir, r); err != nil {
			o := ofError(ctx, err)
			j.finish(unseen(ctx, o), map[string]any{"reason": o.Message, "download": r})
			return o
		}
		j.rec.keep(j.rec.control.Artifact(executor.Artifact{Name: r.Artifact, ArtifactType: "file", Path: r.Artifact,
			Sensitivity: j.params.Sensitivity, MediaType: "application/octet-stream"}))
		j.finish(passed, r)
		return outcome(executor.Succeeded, categorySuccess, "%s was got from the host, %d bytes", r.Path, r.Size)
	}, nil
}

func (j *job) download(ctx context.Context, grant policy.FileGrant, dir string, r *downloadReport) error {
	f, end, err := j.openFiles(ctx, grant)
	if err != nil {
		return err
	}
	defer end()
	full, err := f.RealPath(path.Join(grant.Root, r.Path))
	if err != nil {
		return f.failure(r.Path, err)
	}
	if !f.below(full) {
		return deniedf("%s leads out of the root of file %s by a link", r.Path, grant.Name)
	}
	before, err := f.regular(full, r.Path)
	if err != nil {
		return err
	}
	if before.Size() > grant.MaxBytes {
		return deniedf("%s has %d bytes, and file %s allows %d", r.Path, before.Size(), grant.Name, grant.MaxBytes)
	}
	j.rec.progress("downloading", "getting %d bytes of %s", before.Size(), r.Path)
	local := filepath.Join(dir, r.Artifact)
	if err := f.fetch(ctx, full, local, r); err != nil {
		return errors.Join(err, removeLocal(local))
	}
	after, err := f.regular(full, r.Path)
	if err == nil && (!after.ModTime().Equal(before.ModTime()) || after.Size() != before.Size() || r.Size != before.Size()) {
		err = failedf(categoryUnknown, "%s changed while it was read: try again when nothing writes it", r.Path)
	}
	if err != nil {
		return errors.Join(err, removeLocal(local))
	}
	r.Modified = after.ModTime().UTC()
	return nil
}

// regular refuses what would block a reader, or is no file.
func (f *files) regular(full, name string) (fs.FileInfo, error) {
	info, err := f.Lstat(full)
	if err != nil {
		return nil, f.failure(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, failedf(categoryUnknown, "%s on the host is no regular file", name)
	}
	return info, nil
}

func (f *files) fetch(ctx context.Context, full, local string, r *downloadReport) error {
	out, err := os.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	r.SHA256, r.Size, err = f.hash(ctx, full, out)
	closed := out.Close()
	switch {
	case errors.Is(err, errTooBig):
		return deniedf("%s grew while it was read, and file %s allows %d bytes", r.Path, f.grant.Name, f.grant.MaxBytes)
	case err != nil:
		return f.failure(r.Path, err)
	}
	return closed
}

func removeLocal(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
