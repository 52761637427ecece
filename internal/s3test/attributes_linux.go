package s3test

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// keepsAttributes reports whether the file system of dir has user attributes.
func keepsAttributes(dir string) bool {
	return unix.Setxattr(filepath.Clean(dir), "user.probe", []byte("x"), 0) == nil
}
