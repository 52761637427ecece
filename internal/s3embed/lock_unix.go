//go:build unix

package s3embed

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lock makes this process the owner of the folder. The kernel gives the lock back
// when the process ends, however it ends.
func lock(path string) (release func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("the folder is in use by another server (%s): %w", path, err), f.Close())
	}
	return f.Close, nil
}
