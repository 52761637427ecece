package kafkatest

import (
	"path/filepath"
	"strings"
	"testing"
)

// Without the jars a test must fail with the line that fetches them, without Java
// with the line that installs it.
func TestMissingPartsAreNamed(t *testing.T) {
	if path, err := peer.Find(); err != nil || filepath.Base(path) != "libs" {
		t.Errorf("built: %q, %v", path, err)
	}
	if _, err := findJava(); err != nil {
		t.Error(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if path, err := peer.Find(); err == nil || !strings.Contains(err.Error(), "make peers-kafka") {
		t.Errorf("nothing built: %q, %v", path, err)
	}
	t.Setenv("JAVA_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if path, err := findJava(); err == nil || !strings.Contains(err.Error(), "make peers-kafka") {
		t.Errorf("no Java: %q, %v", path, err)
	}
}
