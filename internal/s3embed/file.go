package s3embed

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// An object is one file: its bytes, then its description as JSON, then the length
// of the description (4 bytes big-endian) and a mark. The description stands last
// because digests are known last; in one file, because then a rename publishes
// both at once.
const (
	fileMark       = "s3o1"
	fileTail       = 4 + len(fileMark)
	maxDescription = 64 << 10
)

type description struct {
	Key      string            `json:"key"`
	Size     int64             `json:"size"`
	MD5      []byte            `json:"md5"`
	Metadata map[string]string `json:"metadata"`
	Stored   time.Time         `json:"stored"`
}

func appendDescription(w io.Writer, d description) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if len(data) > maxDescription {
		return fmt.Errorf("the object's description has %d bytes, at most %d fit", len(data), maxDescription)
	}
	data = binary.BigEndian.AppendUint32(data, uint32(len(data)))
	_, err = w.Write(append(data, fileMark...))
	return err
}

func readDescription(f *os.File) (description, error) {
	info, err := f.Stat()
	if err != nil {
		return description{}, err
	}
	damaged := func(err error) (description, error) {
		return description{}, fmt.Errorf("%s is damaged: %w", f.Name(), err)
	}
	var tail [fileTail]byte
	if info.Size() < int64(fileTail) {
		return damaged(io.ErrUnexpectedEOF)
	}
	if _, err := f.ReadAt(tail[:], info.Size()-int64(fileTail)); err != nil {
		return description{}, err
	}
	n := int64(binary.BigEndian.Uint32(tail[:]))
	at := info.Size() - int64(fileTail) - n
	if string(tail[4:]) != fileMark || n > maxDescription || at < 0 {
		return damaged(errors.New("it has no description"))
	}
	data := make([]byte, n)
	if _, err := f.ReadAt(data, at); err != nil {
		return description{}, err
	}
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return damaged(err)
	}
	if d.Size != at {
		return damaged(fmt.Errorf("%d bytes of content, described are %d", at, d.Size))
	}
	return d, nil
}

// writeWhole replaces a small file so that it is there whole or not at all.
func writeWhole(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes names in dir durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
