package s3embed

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"

	"github.com/platform-core/execution-plane-service/bundle"
)

// folder is the backend: buckets/<bucket>/d-<segment>/…/o-<segment>. The two
// prefixes keep the objects "a" and "a/b" apart; segments are escaped as in the
// bundle's keys.
type folder struct {
	root string

	// publish orders the moments in which names appear and vanish, so that a
	// condition holds until the write that depends on it is done. It is never
	// held while bytes come from the network.
	publish sync.Mutex
}

var bucketName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{1,61})[a-z0-9]$`)

func openFolder(root string) (*folder, error) {
	f := &folder{root: root}
	// What a killed process left half written.
	if err := os.RemoveAll(f.incoming()); err != nil {
		return nil, err
	}
	for _, dir := range []string{f.incoming(), filepath.Join(root, "buckets")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return f, syncFolder(root)
}

func (f *folder) incoming() string { return filepath.Join(f.root, "incoming") }

// bucket returns the bucket's folder; a name that is none has no bucket.
func (f *folder) bucket(name string) (string, error) {
	if !bucketName.MatchString(name) || strings.Contains(name, "..") {
		return "", gofakes3.BucketNotFound(name)
	}
	return filepath.Join(f.root, "buckets", name), nil
}

func (f *folder) existing(name string) (string, error) {
	dir, err := f.bucket(name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return "", gofakes3.BucketNotFound(name)
	} else if err != nil {
		return "", err
	}
	return dir, nil
}

func (f *folder) path(bucket, key string) (string, error) {
	dir, err := f.existing(bucket)
	if err != nil {
		return "", err
	}
	segments := strings.Split(key, "/")
	last := len(segments) - 1
	for _, s := range segments[:last] {
		dir = filepath.Join(dir, "d-"+bundle.EscapeSegment(s))
	}
	return filepath.Join(dir, "o-"+bundle.EscapeSegment(segments[last])), nil
}

func (f *folder) open(bucket, key string) (*os.File, description, error) {
	path, err := f.path(bucket, key)
	if err != nil {
		return nil, description{}, err
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, description{}, gofakes3.KeyNotFound(key)
	}
	if err != nil {
		return nil, description{}, err
	}
	d, err := readDescription(file)
	if err != nil {
		return nil, description{}, errors.Join(err, file.Close())
	}
	return file, d, nil
}

// GetObject opens the object; the file stays readable even if it is deleted.
func (f *folder) GetObject(bucket, key string, want *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	file, d, err := f.open(bucket, key)
	if err != nil {
		return nil, err
	}
	part, err := want.Range(d.Size)
	if err != nil {
		file.Close()
		return nil, err
	}
	from, n := int64(0), d.Size
	if part != nil {
		from, n = part.Start, part.Length
	}
	o := d.object()
	o.Range = part
	o.Contents = section{io.NewSectionReader(file, from, n), file}
	return o, nil
}

// HeadObject describes the object.
func (f *folder) HeadObject(bucket, key string) (*gofakes3.Object, error) {
	file, d, err := f.open(bucket, key)
	if err != nil {
		return nil, err
	}
	o := d.object()
	o.Contents = io.NopCloser(strings.NewReader(""))
	return o, file.Close()
}

type section struct {
	io.Reader
	io.Closer
}

func (d description) object() *gofakes3.Object {
	return &gofakes3.Object{Name: d.Key, Metadata: d.Metadata, Size: d.Size, Hash: d.MD5}
}

// PutObject takes the bytes to a file of their own and publishes it if the
// conditions hold then. An error of input, which is where the gate reports a
// wrong digest, leaves nothing behind.
func (f *folder) PutObject(bucket, key string, meta map[string]string, input io.Reader, size int64, when *gofakes3.PutConditions) (result gofakes3.PutObjectResult, err error) {
	path, err := f.path(bucket, key)
	if err != nil {
		return result, err
	}
	file, err := os.CreateTemp(f.incoming(), "put-*")
	if err != nil {
		return result, err
	}
	published := false
	defer func() {
		if !published {
			err = errorFirst(err, os.Remove(file.Name()))
		}
	}()
	err = errorFirst(fill(file, key, meta, input, size), file.Close())
	if err != nil {
		return result, err
	}
	f.publish.Lock()
	defer f.publish.Unlock()
	if err := f.allowed(bucket, key, when); err != nil {
		return result, err
	}
	dir, err := f.existing(bucket) // it may have been deleted meanwhile
	if err != nil {
		return result, err
	}
	if err := makeFolders(dir, filepath.Dir(path)); err != nil {
		return result, err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return result, err
	}
	published = true
	return result, syncFolder(filepath.Dir(path))
}

// errorFirst keeps the type of the first error, by which gofakes3 picks a status.
func errorFirst(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func fill(file *os.File, key string, meta map[string]string, input io.Reader, size int64) error {
	md5sum, sum := md5.New(), sha256.New()
	n, err := io.Copy(io.MultiWriter(file, md5sum, sum), input)
	if err != nil {
		return err
	}
	if n != size {
		return gofakes3.ErrorMessage(gofakes3.ErrIncompleteBody, fmt.Sprintf("got %d bytes, announced were %d", n, size))
	}
	d := description{Key: key, Size: n, MD5: md5sum.Sum(nil), Metadata: kept(meta), Stored: time.Now().UTC()}
	d.Metadata[headerSHA256] = base64.StdEncoding.EncodeToString(sum.Sum(nil))
	if err := appendDescription(file, d); err != nil {
		return err
	}
	return file.Sync()
}

// kept is what a reader of the object gets back; the rest of the headers was for
// the server.
func kept(meta map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range meta {
		if strings.HasPrefix(name, "X-Amz-Meta-") || !strings.HasPrefix(name, "X-Amz-") {
			out[name] = value
		}
	}
	return out
}

func (f *folder) allowed(bucket, key string, when *gofakes3.PutConditions) error {
	if when == nil {
		return nil
	}
	var now gofakes3.ConditionalObjectInfo
	file, d, err := f.open(bucket, key)
	switch {
	case err == nil:
		now = gofakes3.ConditionalObjectInfo{Exists: true, Hash: d.MD5}
		if err := file.Close(); err != nil {
			return err
		}
	case !gofakes3.HasErrorCode(err, gofakes3.ErrNoSuchKey):
		return err
	}
	return gofakes3.CheckPutConditions(when, &now)
}

// makeFolders makes dir durable below an existing base.
func makeFolders(base, dir string) error {
	rel, err := filepath.Rel(base, dir)
	if err != nil || rel == "." {
		return err
	}
	at := base
	for _, name := range strings.Split(rel, string(filepath.Separator)) {
		parent := at
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o700); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := syncFolder(parent); err != nil {
			return err
		}
	}
	return nil
}

// DeleteObject removes the object and the folders that are empty then.
func (f *folder) DeleteObject(bucket, key string) (gofakes3.ObjectDeleteResult, error) {
	path, err := f.path(bucket, key)
	if err != nil {
		return gofakes3.ObjectDeleteResult{}, err
	}
	f.publish.Lock()
	defer f.publish.Unlock()
	if err := os.Remove(path); errors.Is(err, os.ErrNotExist) {
		return gofakes3.ObjectDeleteResult{}, nil
	} else if err != nil {
		return gofakes3.ObjectDeleteResult{}, err
	}
	dir := filepath.Dir(path)
	for strings.HasPrefix(filepath.Base(dir), "d-") && os.Remove(dir) == nil {
		dir = filepath.Dir(dir)
	}
	return gofakes3.ObjectDeleteResult{}, syncFolder(dir)
}

// DeleteMulti deletes one by one and reports each.
func (f *folder) DeleteMulti(bucket string, keys ...string) (gofakes3.MultiDeleteResult, error) {
	var result gofakes3.MultiDeleteResult
	for _, key := range keys {
		if _, err := f.DeleteObject(bucket, key); err != nil {
			result.Error = append(result.Error, gofakes3.ErrorResultFromError(err))
			continue
		}
		result.Deleted = append(result.Deleted, gofakes3.ObjectID{Key: key})
	}
	return result, nil
}

// CopyObject is part of the interface; the gate lets no copy through.
func (f *folder) CopyObject(_, _, _, _ string, _ map[string]string) (gofakes3.CopyObjectResult, error) {
	return gofakes3.CopyObjectResult{}, gofakes3.ErrNotImplemented
}
