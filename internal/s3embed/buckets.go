package s3embed

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/johannesboyne/gofakes3"

	"github.com/platform-core/execution-plane-service/bundle"
)

// ListBuckets lists all buckets by name.
func (f *folder) ListBuckets() ([]gofakes3.BucketInfo, error) {
	entries, err := os.ReadDir(filepath.Join(f.root, "buckets"))
	if err != nil {
		return nil, err
	}
	var out []gofakes3.BucketInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		out = append(out, gofakes3.BucketInfo{Name: e.Name(), CreationDate: gofakes3.NewContentTime(info.ModTime())})
	}
	return out, nil
}

// BucketExists reports whether the bucket is there.
func (f *folder) BucketExists(name string) (bool, error) {
	_, err := f.existing(name)
	if gofakes3.HasErrorCode(err, gofakes3.ErrNoSuchBucket) {
		return false, nil
	}
	return err == nil, err
}

// CreateBucket makes the bucket durable.
func (f *folder) CreateBucket(name string) error {
	dir, err := f.bucket(name)
	if err != nil {
		return gofakes3.ResourceError(gofakes3.ErrInvalidBucketName, name)
	}
	f.publish.Lock()
	defer f.publish.Unlock()
	if err := os.Mkdir(dir, 0o700); errors.Is(err, os.ErrExist) {
		return gofakes3.ResourceError(gofakes3.ErrBucketAlreadyExists, name)
	} else if err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// DeleteBucket removes an empty bucket.
func (f *folder) DeleteBucket(name string) error {
	dir, err := f.existing(name)
	if err != nil {
		return err
	}
	f.publish.Lock()
	defer f.publish.Unlock()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return gofakes3.ResourceError(gofakes3.ErrBucketNotEmpty, name)
	}
	return errors.Join(os.Remove(dir), syncFolder(filepath.Dir(dir)))
}

// ForceDeleteBucket is part of the interface and reached by no request.
func (f *folder) ForceDeleteBucket(string) error { return gofakes3.ErrNotImplemented }

// ListBucket reads the description of every object below the prefix: fine for one
// machine, not for millions of objects.
func (f *folder) ListBucket(name string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	dir, err := f.existing(name)
	if err != nil {
		return nil, err
	}
	if prefix == nil {
		prefix = &gofakes3.Prefix{}
	}
	all, err := describe(belowPrefix(dir, prefix.Prefix), prefix.Prefix)
	if err != nil {
		return nil, err
	}
	list := gofakes3.NewObjectList()
	var count int64
	group, last := "", ""
	for _, d := range all {
		common := commonPrefix(d.Key, prefix)
		if page.HasMarker && d.Key <= page.Marker || common != "" && common == group {
			last = d.Key
			continue
		}
		if page.MaxKeys > 0 && count == page.MaxKeys {
			list.IsTruncated, list.NextMarker = true, last
			break
		}
		count++
		group, last = common, d.Key
		if common != "" {
			list.AddPrefix(common)
			continue
		}
		list.Add(&gofakes3.Content{
			Key: d.Key, Size: d.Size, ETag: `"` + hex.EncodeToString(d.MD5) + `"`,
			LastModified: gofakes3.NewContentTime(d.Stored),
		})
	}
	return list, nil
}

// commonPrefix is the group into which a delimiter rolls key up, or "".
func commonPrefix(key string, p *gofakes3.Prefix) string {
	if !p.HasDelimiter {
		return ""
	}
	rest := key[len(p.Prefix):]
	if i := strings.Index(rest, p.Delimiter); i >= 0 {
		return key[:len(p.Prefix)+i+len(p.Delimiter)]
	}
	return ""
}

// belowPrefix goes down the folders that the prefix names in full.
func belowPrefix(dir, prefix string) string {
	segments := strings.Split(prefix, "/")
	for _, s := range segments[:len(segments)-1] {
		dir = filepath.Join(dir, "d-"+bundle.EscapeSegment(s))
	}
	return dir
}

func describe(dir, prefix string) ([]description, error) {
	var all []description
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // never there, or deleted while we look
		}
		if err != nil || e.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		d, err := readDescription(file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		if strings.HasPrefix(d.Key, prefix) {
			all = append(all, d)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b description) int { return cmp.Compare(a.Key, b.Key) })
	return all, err
}
