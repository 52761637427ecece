package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/packages"
)

// Defaults of FetchLimits.
const (
	DefaultInputBytes    = 1 << 30
	DefaultInputTotal    = 4 << 30
	DefaultCacheBytes    = 4 << 30
	DefaultFetchPatience = time.Minute
)

// stallTimeout ends a download of which nothing comes.
const stallTimeout = 30 * time.Second

// FetchLimits bound what attempts are given before their executors are started. A
// value of 0 is the default.
type FetchLimits struct {
	InputBytes int64           // of one input artifact
	InputTotal int64           // of all input artifacts of an attempt
	Package    packages.Limits // of one package; all zero is packages.DefaultLimits
	// CacheBytes is how much of unpacked packages is kept that nobody uses.
	CacheBytes int64
	// Patience is how long the service and the object store may be away, counted from
	// the first try that failed.
	Patience time.Duration
}

func (l *FetchLimits) check() error {
	p := l.Package
	if min(l.InputBytes, l.InputTotal, l.CacheBytes, int64(l.Patience), p.Compressed, p.Size, p.File, int64(p.Entries), int64(p.Depth), int64(p.Name), p.Ratio) < 0 {
		return errors.New("a negative limit of what is fetched is given")
	}
	if p != (packages.Limits{}) && min(p.Compressed, p.Size, p.File, int64(p.Entries), int64(p.Depth), int64(p.Name), p.Ratio) == 0 {
		return errors.New("a limit of packages is 0: give all of them or none")
	}
	return nil
}

func (l *FetchLimits) fill() {
	fill := func(v *int64, to int64) {
		if *v == 0 {
			*v = to
		}
	}
	fill(&l.InputBytes, DefaultInputBytes)
	fill(&l.InputTotal, DefaultInputTotal)
	fill(&l.CacheBytes, DefaultCacheBytes)
	if l.Patience == 0 {
		l.Patience = DefaultFetchPatience
	}
	if l.Package == (packages.Limits{}) {
		l.Package = packages.DefaultLimits()
	}
}

// InputLocation is where an attempt's input can be fetched for a short while.
type InputLocation struct {
	URL    string // the right to fetch; it stands in no log line
	SHA256 string // of the bytes, in hex
	Size   int64  // in bytes; -1 where the service does not say
}

// given is what an attempt got: files and folders by the names that its executor
// knows. It belongs to the attempt's own sequence.
type given struct {
	inputs   map[string]string
	packages map[string]string // SHA-256 to folder
	// For the attempt's environment.
	digests, pinned []givenFile
	held            []*cachedPackage
}

type givenFile struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// inputFailure ends an attempt before its executor was started.
type inputFailure struct {
	code domain.FailureCode
	err  error
}

func (f *inputFailure) Error() string { return f.err.Error() }
func (f *inputFailure) Unwrap() error { return f.err }

func rejected(format string, args ...any) error {
	return &inputFailure{domain.CodeInputsRejected, fmt.Errorf(format, args...)}
}

// prepareInputs fetches what the job names: input artifacts, and approved packages.
// It does all or nothing of it; the executor is started only after nil. A stop, a
// fence or a lost lease ends it promptly.
func (at *attempt) prepareInputs() error {
	left := at.agent.config.Fetch.InputTotal
	at.given.inputs = map[string]string{}
	for i, in := range at.spec.Inputs.Artifacts {
		if in.Name == "" {
			continue // the executor could not ask for it
		}
		size, err := at.fetchInput(i, in, left)
		if err != nil {
			return fmt.Errorf("input %s: %w", in.Name, err)
		}
		left -= size
	}
	if len(at.given.inputs) > 0 {
		if err := at.closeInputs(); err != nil {
			return fmt.Errorf("%w: %w", errInputDisk, err)
		}
	}
	return at.preparePackages()
}

// fetchInput fetches one input artifact to a file that the executor can read and
// not write.
func (at *attempt) fetchInput(i int, in domain.ArtifactInput, left int64) (size int64, err error) {
	if err := os.MkdirAll(at.inputDir(), 0o700); err != nil {
		return 0, fmt.Errorf("%w: %w", errInputDisk, err)
	}
	w := wanted{name: in.Name, sha256: in.SHA256, most: at.agent.config.Fetch.InputBytes, path: filepath.Join(at.inputDir(), inputFile(i, in.Name))}
	if left < w.most {
		w.most, w.inAll = left, true
	}
	got, err := at.fetch(at.launching, w)
	if err != nil {
		return 0, err
	}
	if err := at.handOver(w.path); err != nil {
		return 0, fmt.Errorf("%w: %w", errInputDisk, err)
	}
	at.given.inputs[in.Name] = w.path
	at.given.digests = append(at.given.digests, givenFile{in.Name, got.sha256})
	at.note("input_fetched", map[string]any{"name": in.Name, "sha256": got.sha256, "bytes": got.size})
	return got.size, nil
}

func (at *attempt) inputDir() string { return filepath.Join(at.dir, "inputs") }

// inputFile names the file of an input. It keeps the ending, by which tools know
// what is in a file.
func inputFile(i int, name string) string {
	base := strings.Map(func(r rune) rune {
		if r == ':' || r == '@' {
			return '_'
		}
		return r
	}, path.Base(name))
	return fmt.Sprintf("%03d-%s", i, base)
}

// handOver makes a file readable for the executor's user, who may not change that.
func (at *attempt) handOver(file string) error {
	c := at.agent.config.Credential
	if c == nil {
		return os.Chmod(file, 0o400)
	}
	return errors.Join(os.Lchown(file, -1, int(c.GID)), os.Chmod(file, 0o440))
}

// closeInputs lets the executor's user into the folder, and nobody write to it.
func (at *attempt) closeInputs() error {
	c := at.agent.config.Credential
	if c == nil {
		return os.Chmod(at.inputDir(), 0o500)
	}
	return errors.Join(os.Lchown(at.inputDir(), -1, int(c.GID)), os.Chmod(at.inputDir(), 0o550))
}

// errInputDisk marks a failure of the runner's own disk.
var errInputDisk = errors.New("keep what the job is given")

// removeInputs frees the disk, and lets the packages go. Nothing of the job runs.
func (at *attempt) removeInputs() {
	if err := removeTree(at.inputDir()); err != nil {
		at.log.Warn("the folder of inputs does not go yet", "error", err)
	}
	for _, p := range at.given.held {
		at.agent.cache.release(p)
	}
	at.given.held = nil
}

// notGiven is the end of an attempt whose inputs could not be had.
func (at *attempt) notGiven(err error) ending {
	if errors.Is(err, errInputDisk) {
		at.failStorage(err)
	}
	e := at.notLaunched(err)
	if f := (*inputFailure)(nil); errors.As(err, &f) && e.result == string(domain.CodeStartAbandoned) {
		e.result = string(f.code)
	}
	e.text = "the executor was not started: " + err.Error()
	return e
}

// wanted is a file to be fetched; fetched is what came.
type wanted struct {
	name   string // as the service knows it
	sha256 string // "" if only the service knows
	most   int64  // bytes
	inAll  bool   // most is what is left of the limit of all inputs
	path   string
}

type fetched struct {
	sha256 string
	size   int64
}

func (w *wanted) tooLarge() error {
	if w.inAll {
		return rejected("with it the job's inputs exceed the runner's limit for all of them; %d bytes are left", w.most)
	}
	return rejected("it exceeds the runner's limit of %d bytes", w.most)
}

// fetch brings a file, checked by its digest. It tries again until the patience with
// service and store is used up.
func (at *attempt) fetch(ctx context.Context, w wanted) (fetched, error) {
	var failing time.Time
	for n := 0; ; n++ {
		got, err := at.fetchOnce(ctx, w)
		var final *inputFailure
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return got, context.Cause(ctx)
		case errors.As(err, &final):
			return got, err
		case noRoom(err) && at.agent.cache.dropIdle():
			continue
		case errors.Is(err, errInputDisk):
			return got, err
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		if time.Since(failing) >= at.agent.config.Fetch.Patience {
			return got, &inputFailure{domain.CodeStorageUnavailable, fmt.Errorf("it cannot be fetched: %w", err)}
		}
		at.log.Info("an input is fetched again", "name", w.name, "error", err)
		if err := sleep(ctx, pause(n, err)); err != nil {
			return got, err
		}
	}
}

// fetchOnce asks for a place anew each time: it is good for a short while only.
func (at *attempt) fetchOnce(ctx context.Context, w wanted) (fetched, error) {
	var place InputLocation
	err := once(ctx, callTimeout, func(ctx context.Context) (err error) {
		place, err = at.agent.plane().Input(ctx, at.lease, w.name)
		return err
	})
	switch l := lossOfInput(err); {
	case l != lossNone:
		at.lose(l) // which ends ctx
		return fetched{}, err
	case err != nil && definite(err):
		return fetched{}, rejected("the service does not give it: %w", err)
	case err != nil:
		return fetched{}, err
	}
	if w.sha256 == "" {
		w.sha256 = place.SHA256
	}
	switch {
	case !sha256Text(w.sha256):
		return fetched{}, rejected("the service names no SHA-256 of it")
	case place.SHA256 != w.sha256:
		return fetched{}, rejected("the job is for the bytes with SHA-256 %s, and the service has others (%.64q)", w.sha256, place.SHA256)
	case place.Size > w.most:
		return fetched{}, w.tooLarge()
	}
	return at.download(ctx, w, place)
}

// lossOfInput is lossOf for a call that may also be refused because of the input.
func lossOfInput(err error) loss {
	var e *domain.Error
	if errors.As(err, &e) && e.Kind == domain.KindNotFound {
		for _, about := range []string{"input_", "package_", "artifact_", "object_"} {
			if strings.HasPrefix(e.Code, about) {
				return lossNone
			}
		}
	}
	return lossOf(err)
}

// errStalled says that a download was ended because nothing came of it.
var errStalled = fmt.Errorf("nothing came for %s", stallTimeout)

// download streams an object to its file and checks it on the way.
func (at *attempt) download(ctx context.Context, w wanted, place InputLocation) (got fetched, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	body, size, err := at.agent.plane().Get(ctx, place.URL)
	switch {
	case errors.Is(err, ErrNoObject):
		return got, rejected("the store does not have it any more: %w", err)
	case err != nil:
		return got, stalled(ctx, err)
	}
	defer body.Close()
	if size > w.most {
		return got, w.tooLarge()
	}
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return got, fmt.Errorf("%w: %w", errInputDisk, err)
	}
	defer func() {
		if cerr := f.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("%w: %w", errInputDisk, cerr)
		}
		if err != nil {
			_ = os.Remove(w.path)
		}
	}()
	sum := sha256.New()
	disk := &diskWriter{w: io.MultiWriter(f, sum)}
	n, err := io.Copy(disk, io.LimitReader(readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		if n > 0 {
			stall.Reset(stallTimeout)
		}
		return n, err
	}), w.most+1))
	switch {
	case disk.err != nil:
		return got, fmt.Errorf("%w: %w", errInputDisk, disk.err)
	case err != nil:
		return got, stalled(ctx, err)
	case n > w.most:
		return got, w.tooLarge()
	case size >= 0 && n < size:
		return got, io.ErrUnexpectedEOF
	}
	got = fetched{hex.EncodeToString(sum.Sum(nil)), n}
	if got.sha256 != w.sha256 {
		return got, rejected("its bytes have SHA-256 %s; those of %s are wanted", got.sha256, w.sha256)
	}
	return got, nil
}

// stalled names the cause where a download was ended from here.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
