package ssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

// uploadReport is what an upload did.
type uploadReport struct {
	File    string    `json:"file"` // the policy's name
	Root    string    `json:"root"`
	Path    string    `json:"path"`
	SHA256  string    `json:"sha256"` // of the input artifact
	Size    int64     `json:"size"`
	Changed bool      `json:"changed"`
	Before  fileState `json:"before"`
	After   fileState `json:"after"` // read back from the host
	Left    string    `json:"left,omitempty"`
}

func (j *job) decideUpload() (func(context.Context) executor.Outcome, error) {
	grant, verdict := j.bundle.FileGrant(j.input)
	if err := j.rec.decided("upload of "+j.params.File+" to "+j.params.Path, verdict); err != nil {
		return nil, err
	}
	size, digest, err := j.measure(grant)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) executor.Outcome {
		r := &uploadReport{File: grant.Name, Root: grant.Root, Path: j.params.Path, SHA256: digest, Size: size}
		j.report.Upload = r
		err := j.upload(ctx, grant, r)
		if err == nil {
			j.finish(passed, r)
			word := "put on the host"
			if !r.Changed {
				word = "on the host already"
			}
			return outcome(executor.Succeeded, categorySuccess, "%s is %s, sha256 %s", r.Path, word, r.SHA256)
		}
		o := ofError(ctx, err)
		if r.Left != "" {
			o.Message += "; " + r.Left
		}
		j.finish(unseen(ctx, o), map[string]any{"reason": o.Message, "upload": r})
		return o
	}, nil
}

// measure holds the input artifact to the grant before anything is dialled.
func (j *job) measure(grant policy.FileGrant) (int64, string, error) {
	f, err := j.openInput(j.params.Input)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := newHashing(context.Background(), nil, grant.MaxBytes)
	if _, err := io.Copy(h, f); errors.Is(err, errTooBig) {
		return 0, "", deniedf("the input artifact %q has more than the %d bytes that file %s allows", j.params.Input, grant.MaxBytes, grant.Name)
	} else if err != nil {
		return 0, "", fmt.Errorf("reading the input artifact %q: %w", j.params.Input, err)
	}
	return h.n, h.digest(), nil
}

func (j *job) upload(ctx context.Context, grant policy.FileGrant, r *uploadReport) error {
	f, end, err := j.openFiles(ctx, grant)
	if err != nil {
		return err
	}
	defer end()
	full, err := f.place(r.Path)
	if err != nil {
		return err
	}
	if r.Before, err = f.state(ctx, full, r.Path); err != nil {
		return err
	}
	mode := fmt.Sprintf("%04o", grant.Mode.Perm())
	if r.Before.Exists && r.Before.SHA256 == r.SHA256 && r.Before.Mode == mode {
		r.After = r.Before
		return nil
	}
	if r.Before.Exists && !j.params.Overwrite {
		return failedf(categoryUnknown, "%s is on the host with other content or mode, and overwrite is not set", r.Path)
	}
	j.rec.progress("uploading", "putting %d bytes to %s", r.Size, r.Path)
	temp := path.Join(path.Dir(full), "."+path.Base(full)+"."+rand.Text()[:10]+".part")
	after, err := f.put(ctx, j, temp, r, mode)
	if err != nil {
		f.discard(temp, r)
		return err
	}
	if err := f.publish(temp, full, j.params.Overwrite); err != nil {
		f.discard(temp, r)
		// What cannot be seen is not told.
		r.After, _ = f.state(ctx, full, r.Path)
		if _, there := f.Lstat(full); there == nil && !j.params.Overwrite {
			return failedf(categoryUnknown, "%s came to be on the host meanwhile, and overwrite is not set", r.Path)
		}
		return f.failure(r.Path, err)
	}
	r.Changed, r.After = true, after
	return nil
}

// discard removes the temporary file, whatever stopped the upload.
func (f *files) discard(temp string, r *uploadReport) {
	if err := f.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Left = "a part of it may be left on the host as " + temp
	}
}

// put writes the temporary file, and gives what it reads back.
func (f *files) put(ctx context.Context, j *job, temp string, r *uploadReport, mode string) (fileState, error) {
	in, err := j.openInput(j.params.Input)
	if err != nil {
		return fileState{}, err
	}
	defer in.Close()
	out, err := f.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fileState{}, f.failure(r.Path, err)
	}
	err = f.fill(ctx, out, in, r)
	if closed := out.Close(); err == nil && closed != nil {
		err = f.writeFailure(r, closed)
	}
	if err != nil {
		return fileState{}, err
	}
	digest, size, err := f.hash(ctx, temp, nil)
	if err != nil {
		return fileState{}, f.failure(r.Path, err)
	}
	if digest != r.SHA256 {
		return fileState{}, failedf(categoryInfrastructure, "%s read back from the host has sha256 %s, and %s was sent", r.Path, digest, r.SHA256)
	}
	// Only now: before, nobody but the user may read it.
	if err := f.Chmod(temp, f.grant.Mode.Perm()); err != nil {
		return fileState{}, f.failure(r.Path, err)
	}
	return fileState{Exists: true, Size: size, SHA256: digest, Mode: mode}, ctx.Err()
}

func (f *files) fill(ctx context.Context, out interface {
	Chmod(os.FileMode) error
	ReadFrom(io.Reader) (int64, error)
	Sync() error
}, in io.Reader, r *uploadReport) error {
	if err := out.Chmod(0o600); err != nil {
		return f.failure(r.Path, err)
	}
	h := newHashing(ctx, nil, f.grant.MaxBytes)
	if _, err := out.ReadFrom(io.TeeReader(in, h)); err != nil {
		return f.writeFailure(r, err)
	}
	if h.digest() != r.SHA256 {
		return failedf(categoryInfrastructure, "the input artifact changed while it was sent")
	}
	if _, ok := f.HasExtension("fsync@openssh.com"); ok {
		if err := out.Sync(); err != nil {
			return f.writeFailure(r, err)
		}
	}
	return nil
}

// writeFailure asks for the room that is left: the protocol has no word for a full
// disk.
func (f *files) writeFailure(r *uploadReport, err error) error {
	if f.host.Err() == nil && f.ctx.Err() == nil {
		if s, statErr := f.StatVFS(f.root); statErr == nil && s.Bavail*s.Frsize < uint64(r.Size) {
			return failedf(categoryInfrastructure, "the disk of the host is full: %d bytes are left at %s and %s has %d", s.Bavail*s.Frsize, f.grant.Root, r.Path, r.Size)
		}
	}
	return f.failure(r.Path, err)
}

// publish gives the file its name in one step, over another file only where that
// is wanted.
func (f *files) publish(temp, full string, overwrite bool) error {
	if !overwrite {
		// OpenSSH's plain rename never replaces.
		return f.Rename(temp, full)
	}
	if _, ok := f.HasExtension("posix-rename@openssh.com"); !ok {
		return errors.New("it cannot replace a file in one step (posix-rename@openssh.com)")
	}
	return f.PosixRename(temp, full)
}
