package executor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenOutput opens the file that an artifact or output message names, for
// reading. It never leaves the output folder, whatever links stand there, and
// refuses what is not a regular file: a pipe put there would block the reader.
func OpenOutput(outputDir, path string) (*os.File, error) {
	if err := localPath(path); err != nil {
		return nil, fmt.Errorf("open an output: %w", err)
	}
	root, err := os.OpenRoot(outputDir)
	if err != nil {
		return nil, fmt.Errorf("open the output folder: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open an output: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open an output: %w", err)
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("open an output: %s is not a regular file", path)
	}
	return f, nil
}
