package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/google/uuid"
)

// maxExact is the greatest integer that every JSON reader keeps exact.
const maxExact = 1<<53 - 1

// Validate checks everything that a manifest can contradict in itself. The error
// names the first thing that is wrong.
func (m Manifest) Validate() error {
	if err := m.validateHead(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	seen := make(map[string]bool, len(m.Objects))
	for _, o := range m.Objects {
		if seen[o.Key] {
			return fmt.Errorf("manifest: object %q is listed twice", o.Key)
		}
		seen[o.Key] = true
		if err := o.validate(m.Prefix()); err != nil {
			return fmt.Errorf("manifest: object %q: %w", o.Key, err)
		}
	}
	for _, g := range m.Gaps {
		if err := g.validate(); err != nil {
			return fmt.Errorf("manifest: gap of %s %q: %w", g.Kind, g.Name, err)
		}
	}
	if err := m.validateLogs(); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	for ref, n := range m.Redactions {
		if !utf8.ValidString(ref) || ref == "" || n <= 0 || n > maxExact {
			return fmt.Errorf("manifest: redactions of %q: need a reference and a count above 0, got %d", ref, n)
		}
	}
	return m.validateState()
}

func (m Manifest) validateHead() error {
	switch {
	case m.Schema != ManifestSchema:
		return fmt.Errorf("schema %d: this release knows schema %d", m.Schema, ManifestSchema)
	case m.AttemptID == uuid.Nil:
		return fmt.Errorf("attempt_id is missing")
	case m.OperationID == uuid.Nil:
		return fmt.Errorf("operation_id is missing")
	case m.PlanNodeID == "" || !utf8.ValidString(m.PlanNodeID):
		return fmt.Errorf("plan_node_id %q: must be non-empty UTF-8", m.PlanNodeID)
	case m.BundleID != BundleID(m.AttemptID):
		return fmt.Errorf("bundle_id %s: not the bundle of attempt %s", m.BundleID, m.AttemptID)
	case m.JobSpecSHA256.IsZero():
		return fmt.Errorf("job_spec_sha256 is missing")
	case !utf8.ValidString(m.FailureCode):
		return fmt.Errorf("failure_code %q: must be UTF-8", m.FailureCode)
	}
	return nil
}

func (m Manifest) validateState() error {
	switch m.State {
	case Complete:
		if len(m.Gaps) > 0 {
			return fmt.Errorf("manifest: state complete, but %d gaps are listed", len(m.Gaps))
		}
	case Incomplete:
		if len(m.Gaps) == 0 {
			return fmt.Errorf("manifest: state incomplete, but no gap says what is missing")
		}
	case Empty:
		if len(m.Objects)+len(m.Logs)+len(m.Gaps)+len(m.Redactions) > 0 || m.Unverified {
			return fmt.Errorf("manifest: state empty, but something is listed")
		}
		if m.FailureCode == "" {
			return fmt.Errorf("manifest: state empty, but no failure_code says why")
		}
		return nil
	default:
		return fmt.Errorf("manifest: state %q: must be complete, incomplete or empty", m.State)
	}
	if m.Unverified && (m.State != Incomplete || slices.ContainsFunc(m.Logs, func(l Log) bool { return l.Complete })) {
		return fmt.Errorf("manifest: what nobody read back cannot be called complete")
	}
	if m.FailureCode != "" {
		return fmt.Errorf("manifest: failure_code belongs to state empty, not to %s", m.State)
	}
	return nil
}

func (k Kind) valid() bool {
	switch k {
	case KindLog, KindArtifact, KindOutput, KindJobSpec, KindEnvironment, KindEvents:
		return true
	}
	return false
}

func (o Object) validate(prefix string) error {
	for _, text := range []string{o.Name, o.Type, o.MediaType, o.ProducedBy} {
		if text == "" || !utf8.ValidString(text) {
			return fmt.Errorf("name, type, media_type and produced_by must be non-empty UTF-8, got %q", text)
		}
	}
	if o.Sensitivity != Public && o.Sensitivity != Internal && o.Sensitivity != Secret {
		return fmt.Errorf("sensitivity %q: must be public, internal or secret", o.Sensitivity)
	}
	if o.Bytes < 0 || o.Bytes > maxExact {
		return fmt.Errorf("%d bytes is no size", o.Bytes)
	}
	if (o.Log != nil) != (o.Kind == KindLog) {
		return fmt.Errorf("kind %q: the log member belongs to logs and only to them", o.Kind)
	}
	want, err := o.key(prefix)
	if err != nil {
		return err
	}
	if o.Key != want {
		return fmt.Errorf("its kind, name and digest give the key %q", want)
	}
	return nil
}

func (o Object) key(prefix string) (string, error) {
	switch o.Kind {
	case KindLog:
		l := o.Log
		if !l.Stream.Valid() || o.Name != string(l.Stream) {
			return "", fmt.Errorf("log stream %q of %q: must be stdout, stderr or events", l.Stream, o.Name)
		}
		if l.Offset < 0 || l.Length <= 0 || l.Offset > maxExact-l.Length {
			return "", fmt.Errorf("%d content bytes at %d is no part of a log", l.Length, l.Offset)
		}
		return LogChunkKey(prefix, l.Stream, l.Offset, o.SHA256), nil
	case KindArtifact:
		return ArtifactKey(prefix, o.Name, o.SHA256), nil
	case KindOutput:
		return OutputKey(prefix, o.Name, o.SHA256), nil
	case KindJobSpec:
		return JobSpecKey(prefix, o.SHA256), nil
	case KindEnvironment:
		return EnvironmentKey(prefix, o.SHA256), nil
	case KindEvents:
		return EventsKey(prefix, o.SHA256), nil
	}
	return "", fmt.Errorf("kind %q is unknown", o.Kind)
}

func (g Gap) validate() error {
	switch {
	case !g.Kind.valid():
		return fmt.Errorf("the kind is unknown")
	case g.Name == "" || !utf8.ValidString(g.Name):
		return fmt.Errorf("the name must be non-empty UTF-8")
	case g.Reason == "" || !utf8.ValidString(g.Reason):
		return fmt.Errorf("the reason must be non-empty UTF-8")
	case g.Kind == KindLog && !Stream(g.Name).Valid():
		return fmt.Errorf("a log's name is its stream")
	case g.From < 0 || g.To < g.From || g.To > maxExact:
		return fmt.Errorf("from %d to %d is no range", g.From, g.To)
	case g.Kind != KindLog && g.To != 0:
		return fmt.Errorf("only a log has offsets")
	}
	return nil
}

// validateLogs compares each log's summary with its chunks and gaps.
func (m Manifest) validateLogs() error {
	chunks := map[Stream][]LogPart{}
	for _, o := range m.Objects {
		if o.Log != nil {
			chunks[o.Log.Stream] = append(chunks[o.Log.Stream], *o.Log)
		}
	}
	summed := map[Stream]bool{}
	for _, l := range m.Logs {
		if !l.Stream.Valid() || summed[l.Stream] {
			return fmt.Errorf("logs: stream %q is unknown or listed twice", l.Stream)
		}
		summed[l.Stream] = true
		if err := m.validateLog(l, chunks[l.Stream]); err != nil {
			return fmt.Errorf("log %s: %w", l.Stream, err)
		}
	}
	for _, s := range Streams() {
		if len(chunks[s]) > 0 && !summed[s] {
			return fmt.Errorf("log %s: has %d chunks, but is not listed in logs", s, len(chunks[s]))
		}
	}
	return nil
}

func (m Manifest) validateLog(l Log, parts []LogPart) error {
	slices.SortFunc(parts, func(a, b LogPart) int { return cmp.Compare(a.Offset, b.Offset) })
	var stored, end int64
	holes := false
	for _, p := range parts {
		if p.Offset < end {
			return fmt.Errorf("two chunks hold the bytes at %d", p.Offset)
		}
		if p.Offset > end {
			holes = true
			if !m.covered(l.Stream, end, p.Offset) {
				return fmt.Errorf("bytes %d to %d are missing and no gap says so", end, p.Offset)
			}
		}
		stored += p.Length
		end = p.Offset + p.Length
	}
	gaps := slices.ContainsFunc(m.Gaps, func(g Gap) bool { return g.Kind == KindLog && g.Name == string(l.Stream) })
	switch {
	case l.Bytes != stored || l.Chunks != len(parts):
		return fmt.Errorf("says %d bytes in %d chunks, the objects hold %d in %d", l.Bytes, l.Chunks, stored, len(parts))
	case l.Complete && (holes || gaps):
		return fmt.Errorf("is called complete and has a gap")
	case !l.Complete && !gaps:
		return fmt.Errorf("is called incomplete and no gap says what is missing")
	case l.Complete == l.SHA256.IsZero():
		return fmt.Errorf("a complete log has a sha256, an incomplete one has none")
	}
	return nil
}

// covered reports whether gaps of the stream name every byte of [from, to).
func (m Manifest) covered(s Stream, from, to int64) bool {
	gaps := slices.SortedFunc(slices.Values(m.Gaps), compareGaps)
	for _, g := range gaps {
		if g.Kind == KindLog && g.Name == string(s) && g.From <= from && g.To > from {
			from = g.To
		}
	}
	return from >= to
}
