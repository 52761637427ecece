package ssh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/policy"
)

// files is the host's file service, confined to the root of a grant.
type files struct {
	*sftp.Client
	ctx   context.Context // of the work; its end is no failure of the host
	host  *sshaccess.Client
	grant policy.FileGrant
	root  string // where the host says that it is
}

// stopPatience is how long a stop waits for the host before it gives the
// connection up. It is less than the runner's time to stop.
const stopPatience = 8 * time.Second

// openFiles starts the file service. What it gives must be called at the end.
func (j *job) openFiles(ctx context.Context, grant policy.FileGrant) (*files, func(), error) {
	client, err := j.client.SFTP(ctx)
	if err != nil {
		return nil, nil, err
	}
	f := &files{Client: client, ctx: ctx, host: j.client, grant: grant}
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		patience := time.NewTimer(stopPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
			j.client.Abandon()
		}
	})
	end := func() {
		close(done)
		watching.Wait()
		// The login ends it too.
		_ = client.Close()
	}
	if f.root, err = client.RealPath(grant.Root); err == nil {
		var info os.FileInfo
		if info, err = client.Stat(f.root); err == nil && !info.IsDir() {
			err = errors.New("it is no folder")
		}
	}
	if err != nil {
		end()
		return nil, nil, f.failure("the root "+grant.Root+" of file "+grant.Name, err)
	}
	return f, end, nil
}

// below says whether a path that the host resolved stands in the root.
func (f *files) below(resolved string) bool {
	return strings.HasPrefix(resolved, strings.TrimSuffix(f.root, "/")+"/")
}

// place follows the links of the folder that a relative path names, and gives where
// the file really stands. The policy has checked the text; only the host knows where
// it leads.
func (f *files) place(name string) (string, error) {
	dir, base := path.Split(path.Join(f.grant.Root, name))
	resolved, err := f.RealPath(path.Clean(dir))
	if err != nil {
		return "", f.failure("the folder of "+name, err)
	}
	if resolved != f.root && !f.below(resolved) {
		return "", deniedf("%s leads out of the root of file %s by a link", name, f.grant.Name)
	}
	info, err := f.Stat(resolved)
	if err != nil {
		return "", f.failure("the folder of "+name, err)
	}
	if !info.IsDir() {
		return "", failedf(categoryUnknown, "the folder of %s on the host is none", name)
	}
	return path.Join(resolved, base), nil
}

// failure words an error of the file service.
func (f *files) failure(what string, err error) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	lost := f.host.Err()
	if errors.Is(err, sftp.ErrSSHFxConnectionLost) {
		// The file service hears of it before the login does, or has ended alone.
		lost = f.host.Settle()
	}
	if lost != nil {
		return lost
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failedf(categoryUnknown, "%s is not on the host", what)
	case errors.Is(err, fs.ErrPermission):
		return failedf(categoryPolicy, "the host does not let this user at %s", what)
	case errors.Is(err, fs.ErrExist):
		return failedf(categoryUnknown, "%s is on the host already", what)
	}
	return failedf(categoryInfrastructure, "%s: the host's file service failed: %s", what, err)
}

// hashing adds up what is written to it, up to a number of bytes, until the context
// ends.
type hashing struct {
	ctx  context.Context
	to   io.Writer // nil: nowhere
	most int64
	n    int64
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

var errTooBig = errors.New("it has more bytes than the grant allows")

func newHashing(ctx context.Context, to io.Writer, most int64) *hashing {
	return &hashing{ctx: ctx, to: to, most: most, sum: sha256.New()}
}

func (h *hashing) Write(p []byte) (int, error) {
	if err := h.ctx.Err(); err != nil {
		return 0, err
	}
	if h.n += int64(len(p)); h.n > h.most {
		return 0, errTooBig
	}
	// A hash takes everything.
	_, _ = h.sum.Write(p)
	if h.to == nil {
		return len(p), nil
	}
	return h.to.Write(p)
}

func (h *hashing) digest() string { return hex.EncodeToString(h.sum.Sum(nil)) }

// fileState is a file on the host.
type fileState struct {
	Exists bool   `json:"exists"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // not of a file that is bigger than the grant
	Mode   string `json:"mode,omitempty"`
}

// state looks at a file without following a link at its end.
func (f *files) state(ctx context.Context, full, name string) (fileState, error) {
	info, err := f.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		return fileState{}, nil
	}
	if err != nil {
		return fileState{}, f.failure(name, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return fileState{}, deniedf("%s is a link on the host, and a link is not replaced", name)
	}
	if !info.Mode().IsRegular() {
		return fileState{}, failedf(categoryUnknown, "%s on the host is no regular file", name)
	}
	s := fileState{Exists: true, Size: info.Size(), Mode: fmt.Sprintf("%04o", info.Mode().Perm())}
	if s.Size > f.grant.MaxBytes {
		return s, nil
	}
	s.SHA256, _, err = f.hash(ctx, full, nil)
	if errors.Is(err, fs.ErrPermission) {
		return s, nil // it can be replaced all the same
	}
	return s, err
}

// hash reads a file of the host, at most the grant's bytes, and copies it to a
// writer where one is given.
func (f *files) hash(ctx context.Context, full string, to io.Writer) (string, int64, error) {
	remote, err := f.Open(full)
	if err != nil {
		return "", 0, err
	}
	defer remote.Close()
	h := newHashing(ctx, to, f.grant.MaxBytes)
	if _, err := remote.WriteTo(h); err != nil {
		return "", h.n, err
	}
	return h.digest(), h.n, nil
}
