package verification

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// SamplesName is the artifact that holds every sample, one JSON object a line.
const SamplesName = "probe_samples.jsonl"

// sample is one line of the artifact.
type sample struct {
	Time         time.Time               `json:"ts"`
	N            int                     `json:"n"`
	Probe        string                  `json:"probe,omitempty"` // of a capability
	OK           bool                    `json:"ok"`              // every expectation held
	Observed     bool                    `json:"observed"`        // the peer answered
	LatencyMS    float64                 `json:"latency_ms"`
	ErrorClass   string                  `json:"error_class,omitempty"`
	Attributes   map[string]any          `json:"attributes,omitempty"`
	Expectations map[string]expectSample `json:"expectations"`
}

type expectSample struct {
	Seen   sight  `json:"seen"`
	Reason string `json:"reason,omitempty"`
}

// sampleFile writes each sample at once, so that a killed probe leaves all it
// has seen.
type sampleFile struct {
	file *os.File
}

func createSamples(dir string) (*sampleFile, error) {
	path := filepath.Join(dir, SamplesName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the samples file: %w", err)
	}
	return &sampleFile{file: f}, nil
}

func (f *sampleFile) write(s sample) error {
	line, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding sample %d: %w", s.N, err)
	}
	if _, err := f.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing sample %d: %w", s.N, err)
	}
	return nil
}

func (f *sampleFile) close() error {
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("closing the samples file: %w", err)
	}
	return nil
}
