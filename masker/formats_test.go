package masker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

// formats returns secrets in the formats of tools, all made up from seed, and what
// of each must not be seen anywhere.
func formats(seed uint64) []shape {
	rng := rand.New(rand.NewPCG(seed, 33))
	var all []shape
	add := func(name, before, hidden, after string) {
		all = append(all, shape{name: name, value: []byte(before + hidden + after), hidden: []byte(hidden)})
	}
	upper := func(n int) string { return strings.ToUpper(alnum(rng, n)) }
	part := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }

	add("web token", part(`{"alg":"HS256"}`)+".", part(`{"sub":"`+alnum(rng, 8)+`","iat":1732}`)+"."+alnum(rng, 43), "")
	add("docker config", "{\n\t\"auths\": {\n\t\t\"registry.example.com\": {\n\t\t\t\"auth\": \"", string(b64([]byte("robot:"+alnum(rng, 20)))), "\"\n\t\t}\n\t}\n}")
	add(".netrc", "machine git.example.com\n  login deploy\n  password ", alnum(rng, 18), "\n")
	add(".netrc on one line", "machine git.example.com login deploy password ", alnum(rng, 18), "")
	add(".pgpass", "db.example.com:5432:orders:app:", alnum(rng, 16), "\n")
	add("credentials file", "[default]\naws_access_key_id = ", "AKIA"+upper(16), "\naws_secret_access_key = "+alnum(rng, 20)+"/"+alnum(rng, 19)+"\n")
	add("percent signs in a URL", "mysql://root:", url.QueryEscape("p@ss/"+alnum(rng, 6)+"#?%"), "@db:3306/x")
	add("Go DSN", "root:", alnum(rng, 12)+"@"+alnum(rng, 3), "@tcp(db:3306)/orders")
	add("connection string", "Server=db;User Id=sa;Password=", alnum(rng, 9)+"$", ";Encrypt=yes")
	add("Authorization header", "Authorization: Bearer ", alnum(rng, 30), "")
	add("basic Authorization", "Basic ", string(b64([]byte("deploy:"+alnum(rng, 13)))), "")
	add("web hook", "", "https://hooks.example.com/services/T0"+upper(8)+"/B0"+upper(8)+"/"+alnum(rng, 24), "")
	add("TOML", "[db]\nuser = \"app\"\npassword = \"", alnum(rng, 16), "\"\n")
	add("properties", "db.user=app\ndb.password=", alnum(rng, 14), "\n")
	add("htpasswd", "admin:", "$2y$05$"+alnum(rng, 53), "\n")
	add("WireGuard", "[Interface]\nPrivateKey = ", string(b64([]byte(alnum(rng, 32)))), "\nAddress = 10.0.0.1/24\n")
	add("identifier", "", uuidOf(rng), "")
	add("hex key", "", hexOf(rng, 64), "")
	add("base64 key", "", string(b64([]byte(alnum(rng, 32)))), "")
	add("words with a number", "", "orbit-tulip-cactus-velvet-"+alnum(rng, 2), "")
	for _, kind := range []string{"OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"} {
		pem := string(pemText(rng, kind, 5))
		body := pem[strings.IndexByte(pem, '\n')+1 : strings.LastIndex(pem, "\n-----END")]
		add(kind, "-----BEGIN "+kind+"-----\n", body, "\n-----END "+kind+"-----\n")
	}
	vault := hexOf(rng, 80) + "\n" + hexOf(rng, 80) + "\n" + hexOf(rng, 20)
	add("ansible-vault", "$ANSIBLE_VAULT;1.1;AES256\n", vault, "\n")
	account, _ := json.Marshal(map[string]string{"type": "service_account", "token_uri": "https://oauth2.example.com/token", "private_key": string(pemText(rng, "PRIVATE KEY", 2))})
	key := account[bytes.Index(account, []byte(`KEY-----\n`))+len(`KEY-----\n`) : bytes.Index(account, []byte(`\n-----END`))]
	all = append(all, shape{name: "cloud account", value: account, hidden: bytes.ReplaceAll(key, []byte(`\n`), []byte("\n"))})
	return all
}

// Every format in every encoding: whole, cut, and cut off.
func TestFormatsInEveryEncoding(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, s := range formats(seed) {
		set := setOfShapes(t, []shape{s})
		for _, e := range append(encodings(), moreEncodings()...) {
			text := bytes.Join([][]byte{[]byte("line: \n"), e.do(s.value), []byte("\nend\n")}, nil)
			around := bytes.Replace(text, e.do(s.value), nil, 1)
			whole, _ := mask(t, set, text)
			if w := leaks(whole, around, s.hidden); w != "" {
				t.Errorf("%s as %s: %q is readable in %.600q, written %.600q", s.name, e.name, w, whole, text)
			}
			if got, _ := mask(t, set, cut(rng, text, 9)...); !bytes.Equal(got, whole) {
				t.Errorf("%s as %s, cut: %.600q, not %.600q", s.name, e.name, got, whole)
			}
		}
	}
}

// What a file hides is masked where it stands alone, too.
func TestHiddenPartsAlone(t *testing.T) {
	for seed := range uint64(6) {
		for _, s := range formats(seed) {
			set := setOfShapes(t, []shape{s})
			for _, hidden := range bytes.Split(s.hidden, []byte("\n")) {
				text := append(append([]byte("curl -u deploy:"), hidden...), " https://example.org\n"...)
				if out := set.Bytes(text); len(hidden) >= 8 && bytes.Contains(out, hidden) {
					t.Errorf("%s: %q is in %q", s.name, hidden, out)
				}
			}
		}
	}
}
