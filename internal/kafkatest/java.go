package kafkatest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// findJava looks where build.sh looks, which has seen that its version will do.
func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if path, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("the Kafka peer needs Java 17 or newer: %w; install it with `make peers-kafka`", err)
	}
	return path, nil
}

// flags are for a short life with a small heap: a collector without threads of its
// own and only the quick compiler. The archive of classes is made for this very
// collector and class path; one that does not fit is passed over.
func (p *Process) flags() []string {
	flags := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
		"-Xlog:disable", "-Xlog:all=error:stderr",
		"-Djava.io.tmpdir=" + p.dir, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	}
	if archive := filepath.Join(p.cache, "classes.jsa"); exists(archive) {
		flags = append(flags, "-XX:SharedArchiveFile="+archive)
	}
	return append(flags, "-cp", filepath.Join(p.cache, "libs", "*"))
}

// env leaves out what would change the JVM behind the test's back.
func (p *Process) env() []string { return []string{"HOME=" + p.dir, "TMPDIR=" + p.dir} }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
