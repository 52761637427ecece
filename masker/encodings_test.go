package masker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

func lineBy(v []byte, n int, f func(off int, row []byte) string) []byte {
	var out []byte
	for i := 0; i < len(v); i += n {
		out = append(out, f(i, v[i:min(i+n, len(v))])...)
	}
	return out
}

func eachLine(v []byte, f func(i int, l string) string) []byte {
	var out []string
	for i, l := range strings.Split(string(v), "\n") {
		out = append(out, f(i, l))
	}
	return []byte(strings.Join(out, "\n"))
}

func ascii(row []byte) string {
	b := bytes.Clone(row)
	for i := range b {
		if b[i] < 32 || b[i] > 126 {
			b[i] = '.'
		}
	}
	return string(b)
}

// moreEncodings are further ways in which tools print what they were given.
func moreEncodings() []encoding {
	return slices.Concat(dumps(), marginals(), nestedEncodings(), spellings())
}

func chained(fs ...func([]byte) []byte) func([]byte) []byte {
	return func(v []byte) []byte {
		for _, f := range fs {
			v = f(v)
		}
		return v
	}
}

func gaps(n int, s string) func([]byte) []byte {
	return func(v []byte) []byte { return between(v, n, s) }
}

func prefixed(p string) func([]byte) []byte {
	return func(v []byte) []byte { return eachLine(v, func(_ int, l string) string { return p + l }) }
}

func raw64url(v []byte) []byte { return []byte(base64.RawURLEncoding.EncodeToString(v)) }
func queried(v []byte) []byte  { return []byte(url.QueryEscape(string(v))) }
func goQuoted(v []byte) []byte { return fmt.Appendf(nil, "%q", string(v)) }

// dumps are tables of bytes in hex.
func dumps() []encoding {
	return []encoding{
		{"xxd", false, func(v []byte) []byte {
			return lineBy(v, 16, func(o int, r []byte) string {
				return fmt.Sprintf("%08x: %-40s %s\n", o, between([]byte(hex.EncodeToString(r)), 4, " "), ascii(r))
			})
		}},
		{"xxd behind other bytes", false, func(v []byte) []byte {
			return lineBy(append([]byte("password=0123")[:9+len(v)%5:9+len(v)%5], v...), 16, func(o int, r []byte) string {
				return fmt.Sprintf("%08x: %-40s %s\n", o, between([]byte(hex.EncodeToString(r)), 4, " "), ascii(r))
			})
		}},
		{"hexdump -C", false, func(v []byte) []byte {
			return lineBy(v, 16, func(o int, r []byte) string {
				return fmt.Sprintf("%08x  %-24s %-24s |%s|\n", o, fmt.Sprintf("% x", r[:min(8, len(r))]), fmt.Sprintf("% x", r[min(8, len(r)):]), ascii(r))
			})
		}},
		{"od -t x1", false, func(v []byte) []byte {
			return lineBy(v, 16, func(o int, r []byte) string { return fmt.Sprintf("%07o % x\n", o, r) })
		}},
		{"xxd plain 30", false, chained(func(v []byte) []byte { return []byte(hex.EncodeToString(v)) }, gaps(60, "\n"))},
	}
}

// marginals are ways to lay out lines and to put long strings together.
func marginals() []encoding {
	return []encoding{
		{"quoted > ", false, prefixed("> ")},
		{"diff +", false, prefixed("+")},
		{"diff + blank", false, prefixed("+ ")},
		{"diff -", false, prefixed("- ")},
		{"terraform heredoc +", false, prefixed("      + ")},
		{"terraform ~", false, prefixed("  ~ ")},
		{"comment #", false, prefixed("# ")},
		{"comment //", false, prefixed("// ")},
		{"pipe", false, prefixed("    | ")},
		{"box", false, prefixed("│ ")},
		{"cat -n", false, func(v []byte) []byte {
			return eachLine(v, func(i int, l string) string { return fmt.Sprintf("%6d\t%s", i+1, l) })
		}},
		{"grep -n", false, func(v []byte) []byte {
			return eachLine(v, func(i int, l string) string { return fmt.Sprintf("%d:%s", i+1, l) })
		}},
		{"grep file", false, func(v []byte) []byte {
			return eachLine(v, func(i int, l string) string { return fmt.Sprintf("id_rsa:%d:%s", i+1, l) })
		}},
		{"log prefix", false, func(v []byte) []byte {
			return eachLine(v, func(i int, l string) string { return "2026-11-29T10:00:00Z app " + l })
		}},
		{"ls -e / cat -A", false, func(v []byte) []byte {
			return []byte(strings.ReplaceAll(strings.ReplaceAll(string(v), "\n", "$\n"), "\t", "^I"))
		}},
		{"cat -v", false, func(v []byte) []byte {
			var o []byte
			for _, b := range v {
				switch {
				case b == '\n' || b == '\t' || b >= 32 && b < 127:
					o = append(o, b)
				case b < 32:
					o = append(o, '^', b+64)
				case b == 127:
					o = append(o, "^?"...)
				default:
					o = append(o, "M-"...)
					b -= 128
					switch {
					case b < 32:
						o = append(o, '^', b+64)
					case b == 127:
						o = append(o, "^?"...)
					default:
						o = append(o, b)
					}
				}
			}
			return o
		}},
		{"yaml folded scalar", true, chained(gaps(40, "\n  "))},
		{"js concatenated", true, gaps(12, `" + "`)},
		{"python implicit concat", true, gaps(16, "'\n    '")},
		{"c concat", false, chained(b64, gaps(64, "\"\n\""))},
		{"perl dot concat", false, chained(b64, gaps(40, `" . "`))},
		{"base64 json array lines", false, chained(b64, gaps(76, `", "`))},
		{"backslash newline shell", false, gaps(30, "\\\n")},
		{"windows ^ newline", false, gaps(30, "^\r\n")},
		{"base64 quoted >", false, chained(b64, gaps(76, "\n> "))},
		{"base64 diff", false, chained(b64, gaps(76, "\n+"))},
		{"base64 diff indented", false, chained(b64, gaps(76, "\n+    "))},
		{"hex diff", false, chained(func(v []byte) []byte { return []byte(hex.EncodeToString(v)) }, gaps(64, "\n+ "))},
		{"windows crlf quoted", false, chained(func(v []byte) []byte { return bytes.ReplaceAll(v, []byte("\n"), []byte("\r\n> ")) })},
		{"json array of lines", true, func(v []byte) []byte { j, _ := json.Marshal(strings.Split(string(v), "\n")); return j }},
		{"indented json array of lines", true, func(v []byte) []byte {
			j, _ := json.MarshalIndent(strings.Split(string(v), "\n"), "", "  ")
			return j
		}},
	}
}

// nestedEncodings are encodings of encodings.
func nestedEncodings() []encoding {
	return []encoding{
		{"mime base64 CRLF in JSON in q", true, chained(b64, gaps(76, "\r\n"), asJSON, goQuoted)},
		{"powershell", true, func(v []byte) []byte {
			return b64(utf16Text([]byte("echo '"+string(v)+"'"), le))
		}},
		{"docker auth", false, func(v []byte) []byte { return b64(append([]byte("registry-user:"), v...)) }},
		{"docker auth in base64", false, func(v []byte) []byte {
			return b64([]byte(`{"auths":{"r":{"auth":"` + string(b64(append([]byte("registry-user:"), v...))) + `"}}}`))
		}},
		{"jwt part", true, func(v []byte) []byte {
			j, _ := json.Marshal(map[string]string{"sub": "x", "pw": string(v)})
			return append(append([]byte("eyJhbGciOiJIUzI1NiJ9."), raw64url(j)...), ".c2ln"...)
		}},
		{"python repr in json", false, chained(pythonRepr, asJSON)},
		{"python double repr", false, chained(pythonRepr, func(v []byte) []byte { return v[1:] }, func(v []byte) []byte {
			return append(append([]byte(`"`), bytes.ReplaceAll(v, []byte(`\`), []byte(`\\`))...), '"')
		})},
		{"go q in bash", false, chained(goQuoted, shellBackslash)},
		{"percent url of base64 url of json", true, chained(asJSON, b64, queried, queried)},
		{"ansible msg", true, chained(asJSON, func(v []byte) []byte { return append([]byte(`ok: [h] => {"msg": `), append(v, '}')...) })},
		{"base64 of url", false, chained(queried, b64)},
		{"base64 of json escapes", true, chained(asJSON, b64)},
		{"base64 of html", true, chained(xmlText, b64)},
		{"hex of json", true, chained(asJSON, func(v []byte) []byte { return []byte(hex.EncodeToString(v)) })},
		{"hex of url", true, chained(queried, func(v []byte) []byte { return []byte(hex.EncodeToString(v)) })},
		{"utf7-ish", true, func(v []byte) []byte {
			return append([]byte("+"), append(bytes.TrimRight(b64(utf16Text(v, be)), "="), '-')...)
		}},
		{"utf16 hex", true, func(v []byte) []byte { return []byte(hex.EncodeToString(utf16Text(v, le))) }},
	}
}

// spellings are ways to write each character.
func spellings() []encoding {
	return []encoding{
		{"json base64url in queried", true, chained(asJSON, raw64url, func(v []byte) []byte { return append([]byte("?q="), v...) })},
		{"base64url queried twice", true, chained(raw64url, queried, asJSON)},
		{"set -x", false, chained(func(v []byte) []byte { return bytes.ReplaceAll(v, []byte("'"), []byte(`'\''`)) }, func(v []byte) []byte { return []byte("+ echo '" + string(v) + "'") })},
		{"bash printf %q ansi", false, func(v []byte) []byte { return append([]byte("$"), pythonRepr(v)[1:]...) }},
		{"java bytes signed", false, func(v []byte) []byte {
			var o []string
			for _, b := range v {
				o = append(o, fmt.Sprint(int8(b)))
			}
			return []byte("[" + strings.Join(o, ", ") + "]")
		}},
		{"c array decimals padded", false, eachByte("%3d,")},
		{"js buffer", false, func(v []byte) []byte { return fmt.Appendf(nil, "<Buffer % x>", v) }},
		{"rust bytes", false, func(v []byte) []byte {
			return append([]byte("b\""), append(eachByteIf(v, func(b byte) bool { return b < 32 || b > 126 || b == '"' || b == '\\' }, `\x%02x`), '"')...)
		}},
		{"postgres bytea", false, func(v []byte) []byte { return append([]byte(`\x`), hex.EncodeToString(v)...) }},
		{"mysql hex", false, func(v []byte) []byte { return []byte("X'" + strings.ToUpper(hex.EncodeToString(v)) + "'") }},
		{"octal short", false, eachByte(`\%o`)},
		{"octal shell 0", false, eachByte(`\0%03o`)},
		{"css escapes", true, eachRune(func(r rune) string { return fmt.Sprintf(`\%06x`, r) })},
		{"xml cdata", false, func(v []byte) []byte { return []byte("<![CDATA[" + string(v) + "]]>") }},
		{"html padded", true, eachRune(func(r rune) string { return fmt.Sprintf("&#%04d;", r) })},
		{"html without semicolon", true, eachRune(func(r rune) string { return fmt.Sprintf("&#x%X", r) })},
		{"url plus unicode", true, eachRune(func(r rune) string { return fmt.Sprintf("%%u%04X", r) })},
		{"hex upper 0x spaced", false, eachByte("0x%02X ")},
		{"toml literal", false, func(v []byte) []byte { return []byte("'''" + string(v) + "'''") }},
		{"utf16 with BOM", true, func(v []byte) []byte { return append([]byte{0xff, 0xfe}, utf16Text(v, le)...) }},
		{"utf32", true, eachRune(func(r rune) string { return string([]byte{byte(r), byte(r >> 8), byte(r >> 16), 0}) })},
	}
}
