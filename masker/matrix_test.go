package masker_test

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// shape is one kind of secret.
type shape struct {
	name  string
	value []byte
	// hidden is what of value is not public, all of it when empty.
	hidden []byte
}

// shapes returns secrets as users keep them, all made up from seed.
func shapes(seed uint64) []shape {
	rng := rand.New(rand.NewPCG(seed, 3))
	binary := make([]byte, 40)
	for i := range binary {
		binary[i] = byte(rng.Uint32())
	}
	inner := "tok_" + alnum(rng, 20)
	all := []shape{
		{name: "password with metacharacters", value: []byte(`p4$$w.rd*[` + alnum(rng, 3) + `]+(y)^\d?`)},
		{name: "token", value: []byte("ghp_" + alnum(rng, 36))},
		{name: "user and password", value: []byte("deploy:Xk29-vale-" + alnum(rng, 4))},
		{name: "PEM", value: pemText(rng, "RSA PRIVATE KEY", 6)},
		{name: "OpenSSH key", value: pemText(rng, "OPENSSH PRIVATE KEY", 3)},
		{name: "cloud JSON", value: serviceAccount(rng)},
		{name: "k8s", value: kubeconfig(rng)},
		{name: "lines with CRLF", value: []byte(alnum(rng, 14) + "\r\n" + alnum(rng, 9) + "-x\r\n" + alnum(rng, 12))},
		{name: "not ASCII", value: []byte("pässwörd-日本-ключ-" + alnum(rng, 4) + "🔑x")},
		{name: "binary", value: binary},
		{name: "holds another", value: []byte("prefix=" + inner + ";suffix-" + alnum(rng, 4))},
		{name: "the other", value: []byte(inner)},
		{name: "six bytes", value: []byte(alnum(rng, 2) + "#Q" + alnum(rng, 2))},
		{name: "connection string", value: []byte("postgres://app:" + alnum(rng, 12) + "@db.example.com:5432/orders?sslmode=require")},
		{name: ".env", value: []byte("API_KEY=" + alnum(rng, 24) + "\nDB_PASSWORD=\"q" + alnum(rng, 9) + " w\"\nMODE=production\n")},
		{name: "quotes and escapes", value: []byte(`a'b"c\d%2Fe$f&g<h>` + "`" + alnum(rng, 4) + "!=x")},
		{name: "passphrase", value: []byte("Correct horse 7 battery staple " + alnum(rng, 3))},
		{name: "long", value: []byte(alnum(rng, 300))},
		{name: "periodic", value: []byte("abcabcabcabcabc" + alnum(rng, 3))},
		{name: "digits", value: []byte(strconv.FormatUint(rng.Uint64()|1<<62, 10))},
	}
	return all
}

func alnum(rng *rand.Rand, n int) string {
	const symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = symbols[rng.IntN(len(symbols))]
	}
	return string(b)
}

func pemText(rng *rand.Rand, kind string, lines int) []byte {
	var b strings.Builder
	b.WriteString("-----BEGIN " + kind + "-----\n")
	for range lines {
		b.WriteString(alnum(rng, 64) + "\n")
	}
	b.WriteString(alnum(rng, 22) + "==\n-----END " + kind + "-----\n")
	return []byte(b.String())
}

func serviceAccount(rng *rand.Rand) []byte {
	b, _ := json.MarshalIndent(map[string]string{
		"type": "service_account", "project_id": "orders", "private_key_id": hexOf(rng, 40),
		"private_key": string(pemText(rng, "PRIVATE KEY", 3)), "client_email": "ci@orders.example.com",
		"client_id": strconv.Itoa(rng.IntN(1 << 60)), "token_uri": "https://oauth2.googleapis.com/token",
	}, "", "  ")
	return b
}

func kubeconfig(rng *rand.Rand) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: %s
    server: https://10.0.0.1:6443
  name: kubernetes
users:
- name: kubernetes-admin
  user:
    client-key-data: %s
    token: %s
current-context: kubernetes-admin@kubernetes
`, base64.StdEncoding.EncodeToString(pemText(rng, "CERTIFICATE", 1)),
		base64.StdEncoding.EncodeToString(pemText(rng, "EC PRIVATE KEY", 2)), alnum(rng, 40))
}

// encoding is one way in which a tool may print a value.
type encoding struct {
	name string
	text bool // for valid UTF-8 only
	do   func(v []byte) []byte
}

func eachByte(format string) func([]byte) []byte {
	return func(v []byte) []byte {
		var out []byte
		for _, b := range v {
			out = fmt.Appendf(out, format, b)
		}
		return out
	}
}

func eachRune(f func(r rune) string) func([]byte) []byte {
	return func(v []byte) []byte {
		var out []byte
		for _, r := range string(v) {
			out = append(out, f(r)...)
		}
		return out
	}
}

// between puts s after every n bytes.
func between(v []byte, n int, s string) []byte {
	var out []byte
	for i := 0; i < len(v); i += n {
		if i > 0 {
			out = append(out, s...)
		}
		out = append(out, v[i:min(i+n, len(v))]...)
	}
	return out
}

func asJSON(v []byte) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(v))
	return bytes.TrimSpace(b.Bytes())
}

func asciiJSON(v []byte) []byte {
	b, _ := json.Marshal(string(v))
	return eachRune(func(r rune) string {
		if r < utf8.RuneSelf {
			return string(r)
		}
		var s string
		for _, u := range utf16.Encode([]rune{r}) {
			s += fmt.Sprintf(`\u%04x`, u)
		}
		return s
	})(b)
}

func b64(v []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(v)) }

func b64Behind(n int) func(v []byte) []byte {
	return func(v []byte) []byte { return b64(append([]byte("né:?")[:n:n], append(bytes.Clone(v), '\n')...)) }
}

func utf16Text(v []byte, order func(u uint16) [2]byte) []byte {
	var out []byte
	for _, u := range utf16.Encode([]rune(string(v))) {
		p := order(u)
		out = append(out, p[:]...)
	}
	return out
}

func le(u uint16) [2]byte { return [2]byte{byte(u), byte(u >> 8)} }
func be(u uint16) [2]byte { return [2]byte{byte(u >> 8), byte(u)} }

func pythonRepr(v []byte) []byte {
	out := []byte("b'")
	for _, b := range v {
		switch {
		case b == '\\' || b == '\'':
			out = append(out, '\\', b)
		case b == '\n':
			out = append(out, `\n`...)
		case b == '\r':
			out = append(out, `\r`...)
		case b < 32 || b > 126:
			out = fmt.Appendf(out, `\x%02x`, b)
		default:
			out = append(out, b)
		}
	}
	return append(out, '\'')
}

func shellBackslash(v []byte) []byte {
	var out []byte
	for _, b := range v {
		if strings.IndexByte(" $'\"\\`&|<>()[]{}*?!;#~^=%\t", b) >= 0 {
			out = append(out, '\\')
		}
		out = append(out, b)
	}
	return out
}

func quotedPrintable(v []byte) []byte {
	var b bytes.Buffer
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write(v)
	_ = w.Close()
	return b.Bytes()
}

func xmlText(v []byte) []byte {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, v)
	return b.Bytes()
}

func encodings() []encoding {
	quote := func(v []byte) []byte { return strconv.AppendQuote(nil, string(v)) }
	query := func(v []byte) []byte { return []byte(url.QueryEscape(string(v))) }
	replace := func(old, s string) func([]byte) []byte {
		return func(v []byte) []byte { return bytes.ReplaceAll(v, []byte(old), []byte(s)) }
	}
	chain := func(fs ...func([]byte) []byte) func([]byte) []byte {
		return func(v []byte) []byte {
			for _, f := range fs {
				v = f(v)
			}
			return v
		}
	}
	gap := func(n int, s string) func([]byte) []byte {
		return func(v []byte) []byte { return between(v, n, s) }
	}
	upper := func(v []byte) []byte { return bytes.ToUpper(v) }
	hexed := func(v []byte) []byte { return []byte(hex.EncodeToString(v)) }
	dollar := func(v []byte) []byte { return append(append([]byte("$"), pythonRepr(v)[1:]...), ' ') }
	return []encoding{
		{"raw", false, func(v []byte) []byte { return v }},
		{"JSON", true, asJSON}, {"JSON in ASCII", true, asciiJSON}, {"JSON in JSON", true, chain(asJSON, asJSON)},
		{"JSON thrice", true, chain(asJSON, asJSON, asJSON)}, {"JSON with slashes", true, chain(asJSON, replace("/", `\/`))},
		{"Go quoted", false, quote}, {"Go quoted in ASCII", false, func(v []byte) []byte { return strconv.AppendQuoteToASCII(nil, string(v)) }},
		{"Go quoted in JSON", true, chain(quote, asJSON)},
		{"Python bytes", false, pythonRepr}, {"shell ANSI-C", false, dollar},
		{"YAML folded", true, chain(asJSON, gap(20, "\\\n    "))}, {"YAML block", false, replace("\n", "\n      ")},
		{"shell single", false, replace("'", `'\''`)}, {"shell single by double", false, replace("'", `'"'"'`)},
		{"SQL", false, replace("'", `''`)}, {"CSV", false, replace(`"`, `""`)}, {"shell backslash", false, shellBackslash},
		{"octal", false, eachByte(`\%03o`)}, {"C hex", false, eachByte(`\x%02x`)}, {"upper C hex", false, eachByte(`\x%02X`)},
		{"unicode braces", true, eachRune(func(r rune) string { return fmt.Sprintf(`\u{%x}`, r) })},
		{"URL query", false, query}, {"URL path", false, func(v []byte) []byte { return []byte(url.PathEscape(string(v))) }},
		{"URL lower case", false, func(v []byte) []byte {
			return eachByteIf(v, func(b byte) bool { return !isLetterOrDigit(b) }, "%%%02x")
		}},
		{"URL all", false, eachByte("%%%02X")}, {"URL twice", false, chain(query, query)}, {"URL thrice", false, chain(query, query, query)},
		{"HTML", true, func(v []byte) []byte { return []byte(html.EscapeString(string(v))) }},
		{"HTML decimal", true, eachRune(func(r rune) string { return fmt.Sprintf("&#%d;", r) })},
		{"HTML hex", true, eachRune(func(r rune) string { return fmt.Sprintf("&#x%X;", r) })},
		{"HTML of JSON", true, chain(asJSON, func(v []byte) []byte { return []byte(html.EscapeString(string(v))) })},
		{"XML", true, xmlText},
		{"base64", false, b64}, {"base64 behind 1", false, b64Behind(1)}, {"base64 behind 2", false, b64Behind(2)}, {"base64 behind 3", false, b64Behind(3)},
		{"base64url", false, func(v []byte) []byte { return []byte(base64.RawURLEncoding.EncodeToString(v)) }},
		{"base64url behind 1", false, func(v []byte) []byte {
			return []byte(base64.URLEncoding.EncodeToString(append([]byte("x"), v...)))
		}},
		{"base64 wrapped", false, chain(b64, gap(64, "\n"))}, {"base64 wrapped and indented", false, chain(b64, gap(76, "\r\n    "))},
		{"base64 wrapped short", false, chain(b64, gap(7, "\n"))}, {"base64 wrapped in JSON", true, chain(b64, gap(64, "\n"), asJSON)},
		{"base64 in colour and wrapped", false, chain(b64, gap(19, "\x1b[0m\n\x1b[36m"))}, {"base64 in URL", false, chain(b64, query)},
		{"base64 twice", false, chain(b64, b64)}, {"basic auth", false, func(v []byte) []byte { return b64(append([]byte("user:"), v...)) }},
		{"base64 of UTF-16", true, func(v []byte) []byte { return b64(utf16Text(v, le)) }},
		{"base64 of CRLF", false, chain(replace("\r\n", "\n"), replace("\n", "\r\n"), b64)},
		{"base32", false, func(v []byte) []byte { return []byte(base32.StdEncoding.EncodeToString(v)) }},
		{"base32 lower behind 2", false, func(v []byte) []byte {
			return bytes.ToLower([]byte(base32.StdEncoding.EncodeToString(append([]byte("ab"), v...))))
		}},
		{"hex", false, hexed}, {"upper hex", false, chain(hexed, upper)}, {"hex with colons", false, chain(hexed, gap(2, ":"))},
		{"hex with blanks", false, chain(hexed, upper, gap(2, " "))}, {"hex wrapped", false, chain(hexed, gap(60, "\n"))},
		{"hex by fours", false, chain(hexed, gap(4, " "))}, {"hex of base64", false, chain(b64, hexed)}, {"base64 of hex", false, chain(hexed, b64)},
		{"Go bytes", false, func(v []byte) []byte { return fmt.Append(nil, v) }}, {"Go syntax", false, func(v []byte) []byte { return fmt.Appendf(nil, "%#v", v) }},
		{"number list", false, func(v []byte) []byte { return bytes.ReplaceAll(fmt.Append(nil, v), []byte(" "), []byte(", ")) }},
		{"UTF-16LE", true, func(v []byte) []byte { return utf16Text(v, le) }}, {"UTF-16BE", true, func(v []byte) []byte { return utf16Text(v, be) }},
		{"CRLF", false, chain(replace("\r\n", "\n"), replace("\n", "\r\n"))}, {"joined lines", false, chain(replace("\r", ""), replace("\n", ""))},
		{"colours", false, gap(1, "\x1b[1;31m")}, {"colours and links", false, gap(3, "\x1b]8;;http://x\x1b\\\x1b[0m\x1b(B")},
		{"colours in JSON", true, chain(eachRune(func(r rune) string { return "\x1b[0m" + string(r) }), asciiJSON)}, {"folded", false, gap(10, "\n")}, {"folded and indented", false, gap(17, "\r\n\t  ")},
		{"quoted-printable", false, quotedPrintable}, {"quoted-printable all", false, eachByte("=%02X")},
		{"zero width", true, eachRune(func(r rune) string { return string(r) + "\u200b" })},
		{"overstruck", true, func(v []byte) []byte {
			return eachByteIf(v, func(b byte) bool { return b > 32 && b < 127 }, "%[1]c\b%[1]c")
		}},
	}
}

func isLetterOrDigit(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z'
}

func eachByteIf(v []byte, which func(byte) bool, format string) []byte {
	var out []byte
	for _, b := range v {
		if which(b) {
			out = fmt.Appendf(out, format, b)
		} else {
			out = append(out, b)
		}
	}
	return out
}
