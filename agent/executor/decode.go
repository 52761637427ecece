package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

// Limits of single fields, in bytes.
const (
	maxName   = 200
	maxText   = 4 << 10
	maxDetail = 16 << 10
	maxInline = 4 << 10
	maxPath   = 1 << 10
	maxRules  = 64
)

// DecodeMessage reads one line strictly. Every error is a protocol violation.
func DecodeMessage(line []byte) (Message, error) {
	// The rules that need no type come first: below the type is taken out, and
	// two equal names must not have become one by then.
	if err := strictjson.Check(line); err != nil {
		return Message{}, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Message{}, errors.New("not a JSON object")
	}
	var kind string
	if err := json.Unmarshal(fields["type"], &kind); err != nil || kind == "" {
		return Message{}, errors.New("no type")
	}
	delete(fields, "type")
	body, err := marshal(fields)
	if err != nil {
		return Message{}, err
	}
	m, into := empty(kind)
	if into == nil {
		return Message{}, fmt.Errorf("unknown type %q", clip(kind))
	}
	if err := strictjson.Unmarshal(body, into); err != nil {
		return Message{}, fmt.Errorf("%s: %w", kind, err)
	}
	m.normalize()
	if err := m.check(); err != nil {
		return Message{}, fmt.Errorf("%s: %w", kind, err)
	}
	return m, nil
}

func empty(kind string) (Message, any) {
	switch kind {
	case "progress":
		p := new(Progress)
		return Message{Progress: p}, p
	case "evidence":
		p := new(Evidence)
		return Message{Evidence: p}, p
	case "artifact":
		p := new(Artifact)
		return Message{Artifact: p}, p
	case "output":
		p := new(Output)
		return Message{Output: p}, p
	case "fact":
		p := new(Fact)
		return Message{Fact: p}, p
	case "outcome":
		p := new(Outcome)
		return Message{Outcome: p}, p
	default:
		return Message{}, nil
	}
}

// normalize makes absent and null the same, and writes the default sensitivity
// out, so that no reader has to know it.
func (m *Message) normalize() {
	switch {
	case m.Evidence != nil:
		m.Evidence.Detail = absent(m.Evidence.Detail)
	case m.Fact != nil:
		m.Fact.Detail = absent(m.Fact.Detail)
	case m.Artifact != nil && m.Artifact.Sensitivity == "":
		m.Artifact.Sensitivity = Internal
	case m.Output != nil:
		m.Output.Inline = absent(m.Output.Inline)
		if m.Output.Sensitivity == "" {
			m.Output.Sensitivity = Internal
		}
	}
}

func absent(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// check holds what the types cannot say.
func (m Message) check() error {
	switch {
	case m.Progress != nil:
		return m.Progress.check()
	case m.Evidence != nil:
		return m.Evidence.check()
	case m.Artifact != nil:
		return m.Artifact.check()
	case m.Output != nil:
		return m.Output.check()
	case m.Fact != nil:
		return m.Fact.check()
	case m.Outcome != nil:
		return m.Outcome.check()
	default:
		return errors.New("the message is empty")
	}
}

func (p *Progress) check() error {
	if p.Done < 0 || p.Total < 0 || (p.Total > 0 && p.Done > p.Total) {
		return fmt.Errorf("done %d of total %d", p.Done, p.Total)
	}
	return errors.Join(name("phase", p.Phase), text("message", p.Message))
}

func (e *Evidence) check() error {
	if e.ObservedAt.IsZero() {
		return errors.New("observed_at is missing")
	}
	return errors.Join(
		name("name", e.Name),
		oneOf("evidence_type", e.EvidenceType, "command_check", "api_check", "metric_check", "log_check"),
		oneOf("result", e.Result, "passed", "failed", "inconclusive"),
		optionalName("capability", e.Capability),
		optionalName("source", e.Source),
		sized("detail", len(e.Detail), maxDetail))
}

func (a *Artifact) check() error {
	return errors.Join(
		name("name", a.Name),
		name("artifact_type", a.ArtifactType),
		localPath(a.Path),
		oneOf("sensitivity", string(a.Sensitivity), "", string(Public), string(Internal), string(Secret)),
		optionalName("media_type", a.MediaType))
}

func (o *Output) check() error {
	if len(o.Inline) == 0 {
		return (&Artifact{o.Name, o.ArtifactType, o.Path, o.Sensitivity, o.MediaType}).check()
	}
	if o.Path != "" {
		return errors.New("both path and inline are given")
	}
	if o.Sensitivity == Secret {
		return errors.New("a secret output cannot be inline; write it to a file")
	}
	return errors.Join(
		name("name", o.Name),
		name("artifact_type", o.ArtifactType),
		oneOf("sensitivity", string(o.Sensitivity), "", string(Public), string(Internal)),
		optionalName("media_type", o.MediaType),
		sized("inline", len(o.Inline), maxInline))
}

func (f *Fact) check() error {
	if len(f.Rules) > maxRules {
		return fmt.Errorf("%d rules, the limit is %d", len(f.Rules), maxRules)
	}
	errs := []error{
		oneOf("kind", f.Kind, FactPolicyDecided),
		oneOf("verdict", f.Verdict, "allowed", "denied"),
		name("bundle_digest", f.BundleDigest),
		optionalName("input_digest", f.InputDigest),
		text("subject", f.Subject),
		sized("detail", len(f.Detail), maxDetail),
	}
	for _, r := range f.Rules {
		errs = append(errs, name("rules", r))
	}
	for i, p := range f.Privileges {
		errs = append(errs, oneOf("privileges", p, "sudo", "destructive", "elevated"))
		if slices.Contains(f.Privileges[:i], p) {
			errs = append(errs, fmt.Errorf("privileges: %s stands twice", p))
		}
	}
	return errors.Join(errs...)
}

func (o *Outcome) check() error {
	return errors.Join(
		oneOf("result", string(o.Result), string(Succeeded), string(TaskFailed),
			string(InputsRejected), string(PolicyDenied), string(TargetUnreachable)),
		oneOf("recommended_category", o.RecommendedCategory, "", "success", "validation_error",
			"infrastructure_error", "policy_error", "unknown"),
		text("message", o.Message))
}

func name(field, v string) error {
	if v == "" {
		return fmt.Errorf("%s is missing", field)
	}
	return optionalName(field, v)
}

func optionalName(field, v string) error {
	if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("%s holds a control character", field)
	}
	return sized(field, len(v), maxName)
}

func text(field, v string) error {
	if strings.ContainsRune(v, 0) {
		return fmt.Errorf("%s holds a NUL", field)
	}
	return sized(field, len(v), maxText)
}

func sized(field string, n, limit int) error {
	if n > limit {
		return fmt.Errorf("%s has %d bytes, the limit is %d", field, n, limit)
	}
	return nil
}

func oneOf(field, v string, allowed ...string) error {
	for _, a := range allowed {
		if v == a {
			return nil
		}
	}
	return fmt.Errorf("%s is %q", field, clip(v))
}

// localPath is a first look. Whoever opens the file goes through OpenOutput,
// which no symbolic link leads out of.
func localPath(p string) error {
	if p == "" {
		return errors.New("path is missing")
	}
	if !filepath.IsLocal(p) || p == "." || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %q does not stay inside the output folder", clip(p))
	}
	return sized("path", len(p), maxPath)
}

func clip(s string) string { return clipTo(s, 64) }

// clipTo keeps at most n bytes, on a border of characters.
func clipTo(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(mark)], "") + mark
}
