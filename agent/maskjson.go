package agent

import (
	"bytes"
	"encoding/json"

	"github.com/platform-core/execution-plane-service/masker"
)

// maskJSON masks a JSON text and keeps it one. Each string in it, keys too, is a
// text that is complete: where it ends with the beginning of a secret, that is
// masked, as at the end of a stream. A secret that is a number leaves a mark that is
// none, and then all of it becomes a string.
func maskJSON(set *masker.Set, b []byte) json.RawMessage {
	out := set.Bytes(maskStrings(set, b))
	if json.Valid(out) {
		return out
	}
	text, err := json.Marshal(string(out))
	if err != nil {
		return json.RawMessage(`"[masked]"`)
	}
	return text
}

// maskText is for what should be JSON and is shown as text.
func maskText(set *masker.Set, b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return string(set.Bytes(maskStrings(set, b)))
}

// maskStrings masks each string of a JSON text by itself. What holds nothing to mask,
// or is no JSON, comes back as it is, byte for byte.
func maskStrings(set *masker.Set, b []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return b
	}
	masked, changed := maskValue(set, v)
	if !changed {
		return b
	}
	out, err := json.Marshal(masked)
	if err != nil {
		return b
	}
	return out
}

func maskValue(set *masker.Set, v any) (masked any, changed bool) {
	switch v := v.(type) {
	case string:
		out := set.String(v)
		return out, out != v
	case []any:
		for i, x := range v {
			var c bool
			v[i], c = maskValue(set, x)
			changed = changed || c
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, x := range v {
			k := set.String(key)
			y, c := maskValue(set, x)
			changed = changed || c || k != key
			out[k] = y
		}
		return out, changed
	}
	return v, changed
}
