package pgembed

import (
	"io"
	"os"
	"path/filepath"
)

// Options say what kind of server is wanted. The zero value is a throw-away
// server that does not wait for the disk.
type Options struct {
	// Dir holds the data, the password and a lock, and is used again when it
	// is given again. Empty means a temporary folder, removed by Stop.
	Dir string
	// Port on 127.0.0.1; 0 takes a free one, and each start may take another.
	Port int
	// Fsync makes commits survive a crash of the machine. Without it they
	// survive a crash of the server only.
	Fsync bool
	// Log receives the server's log lines; nil drops them.
	Log io.Writer
	// Settings are further server settings, each as name and value.
	Settings map[string]string
	// NoDownload refuses to fetch PostgreSQL when none is installed.
	NoDownload bool
}

// DefaultDir is where a lasting server of this user belongs: a place that the
// server's account can reach, for root as well.
func DefaultDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/execution-plane/postgres"
	}
	data := os.Getenv("XDG_DATA_HOME")
	if home, err := os.UserHomeDir(); data == "" && err == nil {
		data = filepath.Join(home, ".local", "share")
	}
	if !filepath.IsAbs(data) {
		data = os.TempDir()
	}
	return filepath.Join(data, "execution-plane", "postgres")
}
