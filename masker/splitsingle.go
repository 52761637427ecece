package masker

import (
	"bytes"
	"regexp"
	"strings"
)

var (
	scheme     = regexp.MustCompile(`(?i)^(?:bearer|basic|token|apikey|digest|negotiate) +(\S+)$`)
	jsonWebTok = regexp.MustCompile(`^[A-Za-z0-9_-]{8,}\.([A-Za-z0-9_-]{16,})\.([A-Za-z0-9_-]{16,})$`)
	goDSN      = regexp.MustCompile(`^[^:/@ ]+:(.+)@[a-z0-9]*\([^)]*\)/`)
)

// single takes apart a text of one line: the password of a URL, the values of a
// connection string, the last part of user:password or of a line of .pgpass, what
// stands behind the scheme of an Authorization header, payload and signature of a
// JSON Web Token.
func (s *splitter) single(what string, v []byte, depth int) {
	text := string(v)
	if strings.Contains(text, "://") {
		s.url(what, text, depth)
		return
	}
	if m := scheme.FindStringSubmatch(text); m != nil {
		s.field(join(what, "behind the scheme"), "token", []byte(m[1]), depth)
		return
	}
	if m := jsonWebTok.FindStringSubmatch(text); m != nil {
		s.keep(join(what, "payload"), []byte(m[1]))
		s.keep(join(what, "signature"), []byte(m[2]))
		return
	}
	if m := goDSN.FindStringSubmatch(text); m != nil {
		s.field(join(what, "password"), "password", []byte(m[1]), depth)
		return
	}
	if s.pairs(what, text, depth) {
		return
	}
	if s.pgpass(what, v) {
		return
	}
	user, password, ok := strings.Cut(text, ":")
	if ok && user != "" && !strings.ContainsAny(user, "/{[\"'") && len(password) >= 8 && weakness([]byte(password)) == "" {
		s.keep(join(what, "after the colon"), []byte(password))
	}
}

// pgpass takes the password of host:port:database:user:password.
func (s *splitter) pgpass(what string, line []byte) bool {
	fields := strings.Split(strings.NewReplacer(`\\`, "\x00", `\:`, "\x01").Replace(string(line)), ":")
	if len(fields) != 5 || strings.ContainsAny(fields[0], " \t/") {
		return false
	}
	password := strings.NewReplacer("\x00", `\`, "\x01", ":").Replace(fields[4])
	if why := refuse("password", []byte(password)); why != "" {
		s.reject(join(what, "password"), why)
		return true
	}
	s.keep(join(what, "password"), []byte(password))
	return true
}

// netrc takes the passwords of a .netrc file.
func (s *splitter) netrc(what string, v []byte, depth int) {
	if !bytes.HasPrefix(v, []byte("machine ")) && !bytes.HasPrefix(v, []byte("default ")) || !bytes.Contains(v, []byte("password")) {
		return
	}
	words := bytes.Fields(v)
	for i, w := range words[:len(words)-1] {
		if string(w) == "password" || string(w) == "account" {
			s.field(join(what, string(w)), string(w), words[i+1], depth)
		}
	}
}

// pairs takes the sensitive values of a=b;c=d, with blanks or & in between too.
func (s *splitter) pairs(what, text string, depth int) bool {
	pairs := strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ' ' || r == '&' })
	if len(pairs) < 2 {
		return false
	}
	for _, p := range pairs {
		key, value, ok := strings.Cut(p, "=")
		if ok && sensitiveKeys.MatchString(key) {
			s.field(join(what, key), key, []byte(strings.Trim(value, `'"`)), depth)
		}
	}
	return true
}
