package ansible

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// yamlDocument writes a value for ansible to read. Text is marked !unsafe, so that
// no template in it is evaluated, and is written in a form that every YAML parser
// reads to the same bytes.
func yamlDocument(v any) []byte {
	var b strings.Builder
	b.WriteString("---\n")
	writeYAML(&b, v)
	b.WriteString("\n")
	return []byte(b.String())
}

func writeYAML(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case json.Number:
		b.WriteString(yamlNumber(v.String()))
	case json.RawMessage:
		writeYAML(b, rawValue(v))
	case string:
		writeText(b, v)
	case []any:
		b.WriteString("[")
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writeYAML(b, item)
		}
		b.WriteString("]")
	case map[string]any:
		b.WriteString("{")
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString("? ")
			writeQuoted(b, key)
			b.WriteString(" : ")
			writeYAML(b, v[key])
		}
		b.WriteString("}")
	default:
		writeText(b, fmt.Sprint(v))
	}
}

// writeText marks every text that has a character of a template, alone or together
// with another. From ansible-core 2.19 on, a marked text that looks like a number or
// a truth value would become one; those have no such character.
func writeText(b *strings.Builder, s string) {
	if strings.ContainsAny(s, "{}%#") {
		b.WriteString("!unsafe ")
	}
	writeQuoted(b, s)
}

// rawValue decodes what ansible-inventory printed. Text that was marked there as
// not to be evaluated is marked here anyway.
func rawValue(raw json.RawMessage) any {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return string(raw)
	}
	return unmark(v)
}

func unmark(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if s, ok := v["__ansible_unsafe"].(string); ok && len(v) == 1 {
			return s
		}
		for k := range v {
			v[k] = unmark(v[k])
		}
	case []any:
		for i := range v {
			v[i] = unmark(v[i])
		}
	}
	return v
}

// yamlNumber writes a JSON number so that YAML 1.1 reads a number: it knows
// exponents only after a point and with a sign.
func yamlNumber(s string) string {
	mantissa, exponent, ok := strings.Cut(strings.ToLower(s), "e")
	if !ok {
		return s
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if exponent[0] != '-' && exponent[0] != '+' {
		exponent = "+" + exponent
	}
	return mantissa + "e" + exponent
}

func writeQuoted(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// clip keeps at most n bytes, on a border of characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
