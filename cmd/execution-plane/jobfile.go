package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/google/uuid"
)

const maxJobFile = 1 << 20

// readJob reads a JobSpec file: JSON or YAML, bare or under job_spec. A missing
// attempt_id is made. The result is the bare JSON object.
func readJob(s *session, path string) ([]byte, error) {
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(io.LimitReader(s.in, maxJobFile+1))
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("read the JobSpec: %w", err)}
	}
	if len(b) > maxJobFile {
		return nil, &exitError{exitUsage, errors.New("read the JobSpec: the file has more than 1 MiB")}
	}
	out, err := bareJob(b)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("read the JobSpec %s: %w", path, err)}
	}
	return out, nil
}

func bareJob(b []byte) ([]byte, error) {
	trimmed := bytes.TrimSpace(b)
	if len(trimmed) == 0 {
		return nil, errors.New("the file is empty")
	}
	if trimmed[0] != '{' {
		// YAMLToJSON keeps the order of the keys; duplicates are an error there.
		j, err := yaml.YAMLToJSON(trimmed)
		if err != nil {
			return nil, fmt.Errorf("it is neither JSON nor YAML: %w", err)
		}
		trimmed = bytes.TrimSpace(j)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(trimmed, &top); err != nil {
		return trimmed, nil // the service names the place
	}
	if inner, ok := top["job_spec"]; ok && len(top) == 1 {
		trimmed = inner
		top = nil
		if err := json.Unmarshal(inner, &top); err != nil {
			return trimmed, nil
		}
	}
	if _, ok := top["attempt_id"]; ok || top == nil {
		return trimmed, nil
	}
	// The rest of the document stays byte for byte: duplicates must reach the
	// service's strict decoding.
	rest := bytes.TrimSpace(trimmed[1:])
	sep := ","
	if len(rest) > 0 && rest[0] == '}' {
		sep = ""
	}
	return append(fmt.Appendf(nil, `{"attempt_id":%q%s`, uuid.NewString(), sep), rest...), nil
}
