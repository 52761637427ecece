package executor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
)

// Bounds of one run.
const (
	// MaxEvidence, MaxArtifacts (artifacts and outputs together) and MaxFacts
	// are counts.
	MaxEvidence  = 1000
	MaxArtifacts = 1000
	MaxFacts     = 1000
	// MaxBytes bounds all messages but progress, together.
	MaxBytes = 16 << 20
)

// Violation is a message that the protocol forbids. Text is for people.
type Violation struct {
	// Code: malformed, too_long, too_many, after_outcome, duplicate_name or
	// lowered_sensitivity.
	Code string `json:"code"`
	Text string `json:"text"`
}

// Intake reads the control socket and holds the bounds of the protocol. It is
// for one run and one goroutine.
type Intake struct {
	evidence, artifacts, facts, bytes int

	outcome     bool
	names       map[string]bool
	sensitivity map[string]Sensitivity
}

// NewIntake starts with nothing taken in.
func NewIntake() *Intake {
	return &Intake{names: map[string]bool{}, sensitivity: map[string]Sensitivity{}}
}

// Run reads lines until r ends and hands on each message or violation. A line
// that is too long is skipped to its end, so that the next one counts again.
// The error is r's, nil at its end.
func (in *Intake) Run(r io.Reader, message func(Message), violation func(Violation)) error {
	br := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			violation(Violation{"too_long", fmt.Sprintf("a message is longer than %d bytes", MaxLine)})
			if err = skipLine(br); err == nil {
				continue
			}
			line = nil
		}
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 {
			if m, v := in.Accept(line); v != nil {
				violation(*v)
			} else {
				message(m)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func skipLine(br *bufio.Reader) error {
	for {
		_, err := br.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// Accept judges one line without its newline.
func (in *Intake) Accept(line []byte) (Message, *Violation) {
	m, err := DecodeMessage(line)
	if err != nil {
		return m, &Violation{"malformed", err.Error()}
	}
	if in.outcome {
		return m, &Violation{"after_outcome", "a message of type " + m.Kind() + " came after the outcome"}
	}
	if v := in.count(m, len(line)); v != nil {
		return m, v
	}
	switch {
	case m.Artifact != nil:
		return m, in.announce(m.Artifact.Name, m.Artifact.Path, m.Artifact.Sensitivity)
	case m.Output != nil:
		return m, in.announce(m.Output.Name, m.Output.Path, m.Output.Sensitivity)
	case m.Outcome != nil:
		in.outcome = true
	}
	return m, nil
}

// count never refuses an outcome: an executor that said too much must still be
// able to say how it ended.
func (in *Intake) count(m Message, size int) *Violation {
	if m.Progress != nil || m.Outcome != nil {
		return nil
	}
	n, limit := &in.evidence, MaxEvidence
	switch {
	case m.Fact != nil:
		n, limit = &in.facts, MaxFacts
	case m.Artifact != nil, m.Output != nil:
		n, limit = &in.artifacts, MaxArtifacts
	}
	if *n >= limit {
		return &Violation{"too_many", fmt.Sprintf("more than %d messages of type %s", limit, m.Kind())}
	}
	if in.bytes+size > MaxBytes {
		return &Violation{"too_many", fmt.Sprintf("more than %d bytes of messages", MaxBytes)}
	}
	*n++
	in.bytes += size
	return nil
}

// announce holds that a name is used once, and that a file which was called
// more sensitive is not called less so under another name.
func (in *Intake) announce(name, file string, s Sensitivity) *Violation {
	if in.names[name] {
		return &Violation{"duplicate_name", fmt.Sprintf("the artifact name %q was used before", clip(name))}
	}
	in.names[name] = true
	if file == "" {
		return nil
	}
	file = path.Clean(file)
	if before, ok := in.sensitivity[file]; ok && s.rank() < before.rank() {
		return &Violation{"lowered_sensitivity",
			fmt.Sprintf("file %q was announced as %s and may not become %s", clip(file), before, s)}
	}
	in.sensitivity[file] = s
	return nil
}
