package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/api/wire"
)

// maxArtifact is the greatest object that one PUT may carry, in bytes.
const maxArtifact = 5 << 30

// announced is a file or value that the executor called finished.
type announced struct {
	name, kind, path, mediaType string
	sensitivity                 executor.Sensitivity
	inline                      json.RawMessage
	output                      bool
}

// artifactQueue sends artifacts one by one until each is registered. A file is
// copied first: what is hashed, masked and sent is then out of the executor's
// reach, and survives a crash of the agent.
type artifactQueue struct {
	at   *attempt
	dir  string
	done chan struct{}
	wake chan struct{}

	mu     sync.Mutex
	queue  []string // paths of queued ones: their values wait on disk
	count  int      // announced and not refused
	serial int
	closed bool
}

// queued is one artifact on disk: NNNN.json, and NNNN.data unless its bytes are in
// the request or in Vault. Of a secret artifact only the encryption is on disk.
type queued struct {
	Request wire.ArtifactRequest `json:"request"`
	// Put: the bytes were put, so that only the registration is left.
	Put    bool `json:"put"`
	Stored bool `json:"stored"`
	// The keys of the announcement and of the registration.
	AnnounceKey uuid.UUID `json:"announce_key"`
	RegisterKey uuid.UUID `json:"register_key"`
	path        string    // without suffix
}

// uploads says whether bytes lie in NNNN.data to be put.
func (q *queued) uploads() bool {
	if v := q.Request.Vault; v != nil {
		return v.ObjectBytes > 0
	}
	return len(q.Request.Inline) == 0
}

func (q *queued) save() error {
	b, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return writeDurable(q.path+".json", b)
}

func loadQueued(path string) (*queued, error) {
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, fmt.Errorf("read a queued artifact: %w", err)
	}
	x := &queued{path: path}
	if err := json.Unmarshal(b, x); err != nil {
		return nil, fmt.Errorf("read a queued artifact: %s.json: %w", path, err)
	}
	return x, nil
}

// openArtifacts begins with what an earlier agent left.
func openArtifacts(at *attempt) (*artifactQueue, error) {
	q := &artifactQueue{at: at, dir: filepath.Join(at.dir, "artifacts"), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of artifacts: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(q.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		x, err := loadQueued(strings.TrimSuffix(name, ".json"))
		if err != nil {
			return nil, err
		}
		q.count++
		if !x.Stored {
			q.queue = append(q.queue, x.path)
		}
	}
	q.serial = len(names)
	at.agent.tasks.Go(q.run)
	return q, nil
}

// take copies an announced artifact and queues it. One that cannot be had is
// named in the log and is missing from the result; one that the disk has no room
// for ends the job.
func (q *artifactQueue) take(a announced) {
	x, err := q.keep(a)
	switch {
	case errors.Is(err, errDisk):
		q.at.failStorage(err)
	case err != nil:
		q.refused(a.name, err)
	default:
		q.mu.Lock()
		q.queue = append(q.queue, x.path)
		q.count++
		q.mu.Unlock()
		poke(q.wake)
	}
}

// errDisk marks a failure of the runner's own disk.
var errDisk = errors.New("keep an artifact")

func (q *artifactQueue) keep(a announced) (*queued, error) {
	if a.sensitivity == executor.Secret {
		return q.keepSecret(a)
	}
	q.serial++
	mask := q.at.mask
	x := &queued{
		AnnounceKey: uuid.New(), RegisterKey: uuid.New(),
		path: filepath.Join(q.dir, fmt.Sprintf("%06d", q.serial)),
		Request: wire.ArtifactRequest{
			Name: mask.String(a.name), Type: mask.String(a.kind), Output: a.output,
			Sensitivity: string(a.sensitivity), MediaType: mask.String(a.mediaType),
		},
	}
	if len(a.inline) > 0 {
		value := maskJSON(mask, a.inline)
		x.Request.Inline, x.Request.Bytes, x.Request.SHA256 = value, int64(len(value)), hexSum(value)
	} else if err := q.copyFile(a.path, x); err != nil {
		_ = os.Remove(x.path + ".data")
		return nil, err
	}
	if err := x.save(); err != nil {
		return nil, fmt.Errorf("%w: %w", errDisk, err)
	}
	return x, nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// copyFile copies the file to the agent's own folder, a text through the masker.
func (q *artifactQueue) copyFile(path string, x *queued) error {
	src, err := executor.OpenOutput(shim.Layout(q.at.dir).Output, path)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(x.path+".data", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	defer dst.Close()
	sum, size := sha256.New(), new(counter)
	disk := &diskWriter{w: io.MultiWriter(dst, sum, size)}
	n, err := q.copyMasked(x.Request.Name, disk, io.LimitReader(src, maxArtifact+1))
	switch {
	case disk.err != nil:
		return fmt.Errorf("%w: %w", errDisk, disk.err)
	case err != nil:
		return fmt.Errorf("read an output: %w", err)
	case n > maxArtifact:
		return fmt.Errorf("it is larger than %d bytes", int64(maxArtifact))
	}
	if err := dst.Sync(); err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	x.Request.Bytes, x.Request.SHA256 = int64(*size), hex.EncodeToString(sum.Sum(nil))
	return nil
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// diskWriter remembers that writing, not reading, failed.
type diskWriter struct {
	w   io.Writer
	err error
}

func (d *diskWriter) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	if err != nil {
		d.err = err
	}
	return n, err
}

func (q *artifactQueue) refused(name string, err error) {
	q.at.log.Warn("an artifact is not kept", "name", name, "error", err)
	fields := map[string]any{"name": name, "error": err.Error()}
	if r := (*refusedSecret)(nil); errors.As(err, &r) {
		fields["code"] = r.code
	} else if f := (*secretFailure)(nil); errors.As(err, &f) {
		fields["code"] = f.code
	}
	q.at.note("artifact_refused", fields)
}

// close says that no more come; announced is how many there are.
func (q *artifactQueue) close() (announced int) {
	q.mu.Lock()
	q.closed = true
	n := q.count
	q.mu.Unlock()
	poke(q.wake)
	return n
}

// wait returns when all are stored or given up.
func (q *artifactQueue) wait() {
	q.close()
	<-q.done
}

func (q *artifactQueue) run() {
	defer close(q.done)
	for {
		q.mu.Lock()
		path := ""
		if len(q.queue) > 0 {
			path = q.queue[0]
			q.queue = q.queue[1:]
		}
		closed := q.closed
		q.mu.Unlock()
		switch {
		case path != "":
			x, err := loadQueued(path)
			if err != nil {
				q.giveUp(&queued{path: path, Request: wire.ArtifactRequest{Name: filepath.Base(path)}}, err)
			} else if !q.deliver(x) {
				return
			}
		case closed:
			return
		default:
			select {
			case <-q.wake:
			case <-q.at.sending.Done():
				return
			}
		}
	}
}

// deliver returns false when nothing more is taken.
func (q *artifactQueue) deliver(x *queued) bool {
	at := q.at
	for failures := 0; ; failures++ {
		err := q.register(x)
		if err != nil {
			at.agent.meters.failed.WithLabelValues("artifact").Inc()
		}
		switch {
		case err == nil:
			x.Stored = true
			if err := x.save(); err != nil {
				at.log.Warn("a stored artifact could not be noted as such", "error", err)
			}
			_ = os.Remove(x.path + ".data")
			return true
		case at.sending.Err() != nil:
			return false
		case errors.Is(err, errDisk):
			q.giveUp(x, err)
			return true
		case definite(err) && lossOf(err) != lossNone:
			if !at.refusedUpload(err) {
				return false
			}
		case definite(err):
			q.giveUp(x, err)
			return true
		}
		if sleep(at.sending, pause(failures, err)) != nil {
			return false
		}
	}
}

// giveUp drops an artifact that the service will never take.
func (q *artifactQueue) giveUp(x *queued, err error) {
	q.mu.Lock()
	q.count--
	q.mu.Unlock()
	_ = os.Remove(x.path + ".json")
	_ = os.Remove(x.path + ".data")
	q.refused(x.Request.Name, err)
}

// errNotStored says that the service does not find what was put.
var errNotStored = errors.New("the object is not found where it was put")

// register announces, puts, and registers. Whatever is cut off, by a lost answer
// or by a crash, is taken up where it was: an artifact is registered once.
func (q *artifactQueue) register(x *queued) error {
	if x.uploads() && !x.Put {
		answer, err := q.announce(x, x.AnnounceKey)
		if err != nil || answer.Stored {
			return err
		}
		if answer.Upload == nil {
			return errNotStored
		}
		if err := q.put(*answer.Upload, x); err != nil {
			// The address has a short life: ask for another.
			x.AnnounceKey = uuid.New()
			return err
		}
		x.Put = true
		if err := x.save(); err != nil {
			return fmt.Errorf("%w: %w", errDisk, err)
		}
	}
	answer, err := q.announce(x, x.RegisterKey)
	if err == nil && !answer.Stored {
		x.Put, x.AnnounceKey, x.RegisterKey = false, uuid.New(), uuid.New()
		return errNotStored
	}
	return err
}

func (q *artifactQueue) announce(x *queued, key uuid.UUID) (answer wire.ArtifactAnswer, err error) {
	err = insist(q.at.sending, callTimeout, func(ctx context.Context) (err error) {
		answer, err = q.at.agent.plane().Artifact(ctx, q.at.lease, key, x.Request)
		return err
	})
	return answer, err
}

func (q *artifactQueue) put(up wire.Upload, x *queued) error {
	f, err := os.Open(x.path + ".data")
	if err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	defer f.Close()
	size := x.Request.Bytes
	if v := x.Request.Vault; v != nil {
		size = v.ObjectBytes
	}
	// At 1 MB/s at least, beside the usual time.
	timeout := byteTimeout + time.Duration(size/1e6)*time.Second
	return once(q.at.sending, timeout, func(ctx context.Context) error {
		return q.at.agent.plane().Put(ctx, up, f, size)
	})
}
