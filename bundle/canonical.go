package bundle

import (
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// The canonical form is RFC 8785: members sorted by UTF-16 code units, no space,
// the shortest escapes. It is written by hand, because encoding/json escapes more
// than that and because the bytes must not move with a library.

func (m Manifest) appendCanonical(b []byte) []byte {
	b = append(b, '{')
	b = appendMember(b, "attempt_id", m.AttemptID.String())
	b = appendMember(append(b, ','), "bundle_id", m.BundleID.String())
	if m.FailureCode != "" {
		b = appendMember(append(b, ','), "failure_code", m.FailureCode)
	}
	b = appendList(append(b, ','), "gaps", m.Gaps, Gap.appendCanonical)
	b = appendMember(append(b, ','), "job_spec_sha256", m.JobSpecSHA256.String())
	b = appendList(append(b, ','), "logs", m.Logs, Log.appendCanonical)
	b = appendList(append(b, ','), "objects", m.Objects, Object.appendCanonical)
	b = appendMember(append(b, ','), "operation_id", m.OperationID.String())
	b = appendMember(append(b, ','), "plan_node_id", m.PlanNodeID)
	b = append(b, `,"redactions":{`...)
	for i, ref := range slices.SortedFunc(maps.Keys(m.Redactions), compareUTF16) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, ref, m.Redactions[ref])
	}
	b = append(b, '}')
	b = appendInt(append(b, ','), "schema", int64(m.Schema))
	b = appendMember(append(b, ','), "state", string(m.State))
	if m.Unverified {
		b = append(b, `,"unverified":true`...)
	}
	return append(b, '}')
}

func (o Object) appendCanonical(b []byte) []byte {
	b = append(b, '{')
	b = appendInt(b, "bytes", o.Bytes)
	b = appendMember(append(b, ','), "key", o.Key)
	b = appendMember(append(b, ','), "kind", string(o.Kind))
	if o.Log != nil {
		b = append(b, `,"log":{`...)
		b = appendInt(b, "content_bytes", o.Log.Length)
		b = appendInt(append(b, ','), "offset", o.Log.Offset)
		b = appendMember(append(b, ','), "stream", string(o.Log.Stream))
		b = append(b, '}')
	}
	b = appendMember(append(b, ','), "media_type", o.MediaType)
	b = appendMember(append(b, ','), "name", o.Name)
	b = appendMember(append(b, ','), "produced_by", o.ProducedBy)
	b = appendMember(append(b, ','), "sensitivity", string(o.Sensitivity))
	b = appendMember(append(b, ','), "sha256", o.SHA256.String())
	b = appendMember(append(b, ','), "type", o.Type)
	return append(b, '}')
}

func (l Log) appendCanonical(b []byte) []byte {
	b = append(b, '{')
	b = appendInt(b, "bytes", l.Bytes)
	b = appendInt(append(b, ','), "chunks", int64(l.Chunks))
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, l.Complete)
	if !l.SHA256.IsZero() {
		b = appendMember(append(b, ','), "sha256", l.SHA256.String())
	}
	b = appendMember(append(b, ','), "stream", string(l.Stream))
	return append(b, '}')
}

func (g Gap) appendCanonical(b []byte) []byte {
	b = append(b, '{')
	b = appendInt(b, "from", g.From)
	b = appendMember(append(b, ','), "kind", string(g.Kind))
	b = appendMember(append(b, ','), "name", g.Name)
	b = appendMember(append(b, ','), "reason", g.Reason)
	b = appendInt(append(b, ','), "to", g.To)
	return append(b, '}')
}

func appendList[T any](b []byte, name string, items []T, each func(T, []byte) []byte) []byte {
	b = append(appendString(b, name), ':', '[')
	for i, item := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(item, b)
	}
	return append(b, ']')
}

func appendMember(b []byte, name, value string) []byte {
	return appendString(append(appendString(b, name), ':'), value)
}

func appendInt(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(appendString(b, name), ':'), value, 10)
}

// appendString takes valid UTF-8, which Validate has ensured.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			if c < 0x20 {
				const hexLower = "0123456789abcdef"
				b = append(b, `\u00`...)
				b = append(b, hexLower[c>>4], hexLower[c&15])
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

func compareUTF16(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}
