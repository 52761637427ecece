package masker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
)

// Why a part of a secret is no pattern of its own.
const (
	reasonShort   = "shorter than 6 bytes"
	reasonCommon  = "a common word"
	reasonEntropy = "too few different bytes"
	reasonDate    = "a date or time"
	reasonNumber  = "a plain number"
	reasonAddress = "an address or version"
	reasonWords   = "ordinary words"
	reasonPublic  = "a public field"
	reasonHeader  = "a public header"
)

// commonWords are values that many configurations hold and many logs print.
var commonWords = func() map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(`
		true false null none nil yes no on off undefined unknown default disabled enabled required optional
		localhost local localdomain loopback anonymous nobody everyone guest user users username admin administrator
		admins root system service services service_account service-account serviceaccount account accounts
		password passwd passphrase passwords secret secrets token tokens bearer basic apikey api_key api-key
		credential credentials private public internal external production staging development testing sandbox
		master primary secondary replica standby leader follower worker workers server servers client clients
		database databases postgres postgresql mysql mariadb sqlite mongodb redis kafka rabbitmq memcached
		elasticsearch kubernetes kubernetes-admin kubectl cluster clusters context contexts namespace config
		configmap deployment docker container registry github gitlab bitbucket jenkins terraform opentofu ansible
		vault consul nomad example example.com string number integer boolean object array version latest stable
		main master develop release debug info warning error success failed failure pending running completed
		changeme change-me changeit letmein welcome qwerty qwertyuiop abc123 password1 password123 passw0rd p@ssw0rd
		test1234 testtest 123456 1234567 12345678 123456789 1234567890 111111 000000 iloveyou monkey dragon sunshine
		require verify-full verify-ca prefer disable allow application/json text/plain text/html utf-8 us-ascii
		authorized_user impersonated_service_account external_account googleapis.com https:// http:// begin end
		monday tuesday wednesday thursday friday saturday sunday january february march april august september
		october november december europe/berlin europe/london america/new_york etc/utc`) {
		set[w] = true
	}
	return set
}()

var (
	dateLike    = regexp.MustCompile(`^\d{4}-\d\d(-\d\d)?([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$|^\d\d?[./]\d\d?[./]\d{4}$|^\d\d:\d\d(:\d\d)?$`)
	numberLike  = regexp.MustCompile(`^[+-]?\d+([.,]\d+)?([eE][+-]?\d+)?%?$`)
	addressLike = regexp.MustCompile(`^v?\d+(\.\d+){1,4}([-+][a-z0-9.]{1,12})?(:\d+)?(/\d+)?$` + // IPv4, version
		`|^[a-z]{2}-[a-z]+-\d+[a-z]?$` + // region, zone
		`|^[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}$` + // IPv6
		`|^([a-z0-9-]+\.)+(local|localdomain|internal|svc|com|net|org|io|dev|de|eu|example|test|lan)(:\d+)?\.?$`)
	wordsOnly  = regexp.MustCompile(`^[A-Za-z]*[a-z]+([ ._/:@,-]+[A-Za-z]?[a-z]+)*[.:!?]?\d{0,2}$|^[A-Z]+([ ._/-]+[A-Z]+)*$`)
	headerLike = regexp.MustCompile(`^-{3,}[ A-Z0-9]*-{3,}$|^(Proc-Type|DEK-Info|Comment|Version|Hash): |^---- (BEGIN|END) `)
)

// sensitiveKeys and publicKeys decide by the name of a field. A sensitive name
// makes a part a pattern unless it is short or common; a public name never does.
var (
	sensitiveKeys = regexp.MustCompile(`(?i)pass|pwd|secret|token|credential|private|api[_-]?key|access[_-]?key|auth$|signature|\bsig\b|` +
		`client-key|key-data|\bkey$|_key$|session|cookie|\bpin\b|\bjwt\b|bearer|connection|dsn|webhook|salt|seed|otp`)
	publicKeys = regexp.MustCompile(`(?i)^(type|kind|apiversion|auth_uri|token_uri|.*_x509_cert_url|universe_domain|project_id|quota_project_id|` +
		`server|cluster|context|current-context|namespace|name|certificate-authority.*|client-certificate.*|ca\.crt|tls\.crt|.*certificate|` +
		`host|hostname|port|database|dbname|db|driver|dialect|sslmode|region|zone_name|endpoint|url|uri|issuer|audience|scope|scopes|` +
		`algorithm|alg|env|environment|version|public.*|.*_public_key|token_type|fingerprint|email|username|user|login)$`)
)

// weakness says why a text is easy to guess or common, or nothing.
func weakness(value []byte) string {
	v := trimBlank(value)
	switch {
	case len(v) < shortest:
		return reasonShort
	case commonWords[strings.ToLower(string(v))]:
		return reasonCommon
	case dateLike.Match(v):
		return reasonDate
	case distinct(v) < 4:
		return reasonEntropy
	case numberLike.Match(v) && len(v) < 9:
		return reasonNumber
	}
	return ""
}

// publicKey tells whether a field of this name is public in a structured secret,
// as username, host and port are: its value is no pattern of its own there.
func publicKey(name string) bool { return publicKeys.MatchString(name) }

// common says why a text has no prints, or nothing: it is weak, a common word with
// something behind it (admin1), or one or two short words.
func common(value []byte) string {
	if why := weakness(value); why != "" {
		return why
	}
	v := trimBlank(value)
	if text, _ := decodedText(v); text != nil {
		return common(text)
	}
	word := bytes.TrimRight(bytes.ToLower(v), "0123456789!?.-_")
	switch {
	case len(v)-len(word) <= 5 && commonWords[string(word)]:
		return reasonCommon
	case len(v) < 12 && wordsOnly.Match(v):
		return reasonWords
	}
	return ""
}

// printOf says how a text takes part in the independent scan. One that is itself
// base64 or hex of words counts as other encodings do.
func printOf(value []byte) printRule {
	if common(value) != "" {
		return printNone
	}
	_, rule := decodedText(trimBlank(value))
	return rule
}

// decodedText returns the text of which v is base64 or hex and the rule for v, or nil
// and printWindows when it is of none.
func decodedText(v []byte) ([]byte, printRule) {
	if len(v) < 8 || len(v) > wideLimit {
		return nil, printWindows
	}
	if text, err := hex.DecodeString(string(v)); err == nil && printable(text) {
		return text, printHex
	}
	unpadded := string(bytes.TrimRight(v, "="))
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if text, err := alphabet.DecodeString(unpadded); err == nil && printable(text) {
			return text, printBase64
		}
	}
	return nil, printWindows
}

// refuse says why the value of a field is no pattern of its own, or nothing.
func refuse(key string, value []byte) string {
	if why := weakness(value); why != "" {
		return why
	}
	v := trimBlank(value)
	switch {
	case publicKey(key):
		return reasonPublic
	case addressLike.Match(v):
		return reasonAddress
	case sensitiveKeys.MatchString(key):
		return ""
	case wordsOnly.Match(v):
		return reasonWords
	case numberLike.Match(v):
		return reasonNumber
	case len(v) < 8:
		return reasonShort
	}
	return ""
}

// refuseLine says why a line of a longer text is no pattern of its own, or nothing.
func refuseLine(line []byte) string {
	if why := weakness(line); why != "" {
		return why
	}
	v := trimBlank(line)
	letters := 0
	for _, b := range v {
		if isAlnum(b) {
			letters++
		}
	}
	switch {
	case len(v) < 8:
		return "shorter than 8 bytes"
	case headerLike.Match(v):
		return reasonHeader
	case letters < shortest || distinct(v) < 5:
		return reasonEntropy
	case bytes.ContainsAny(v, ".:-") && addressLike.Match(v):
		return reasonAddress
	case len(v) < 24 && wordsOnly.Match(v):
		return reasonWords
	}
	return ""
}

func distinct(v []byte) int {
	var seen [256]bool
	n := 0
	for _, b := range v {
		if !seen[b] {
			seen[b] = true
			n++
		}
	}
	return n
}

func trimBlank(v []byte) []byte { return bytes.TrimFunc(v, isBlank) }
