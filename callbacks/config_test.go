package callbacks_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/callbacks"
)

var secretLine = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))) + "\n"

// load writes the configuration and a secret beside it.
func load(t *testing.T, config string) (*callbacks.Endpoints, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"callbacks.yaml": config, "secret": secretLine, "bad": "whsec_c2hvcnQ=\n", "ca.pem": "no certificate"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return callbacks.Load(filepath.Join(dir, "callbacks.yaml"))
}

func TestLoad(t *testing.T) {
	e, err := load(t, `
endpoints:
  - name: all
    url: https://Hooks.Example.test:8443/in?key=1
    secret_file: secret
  - name: dev-only
    url: https://example.test
    secret_file: secret
    job_types: [verification]
    environments: [dev, stage]
    timeout: 3s
    parallelism: 64
    window: 2h
  - name: by-name
    url: http://[::1]:9000/results
    secret_file: secret
    only_named: true
    allow: [loopback, private, 100.64.0.0/10]
    allow_http: true
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []callbacks.Endpoint{
		{Name: "all", Origin: "https://hooks.example.test:8443", Timeout: 10 * time.Second, Parallelism: 8, Window: 72 * time.Hour},
		{Name: "dev-only", Origin: "https://example.test", JobTypes: []string{"verification"}, Environments: []string{"dev", "stage"},
			Timeout: 3 * time.Second, Parallelism: 64, Window: 2 * time.Hour},
		{Name: "by-name", Origin: "http://[::1]:9000", OnlyNamed: true, Timeout: 10 * time.Second, Parallelism: 8, Window: 72 * time.Hour},
	}
	if diff := cmp.Diff(want, e.List()); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct {
		jobType, environment, ref string
		want                      []string
	}{
		{"verification", "dev", "", []string{"all", "dev-only"}},
		{"verification", "prod", "", []string{"all"}},
		{"ssh", "dev", "", []string{"all"}},
		{"verification", "dev", "by-name", []string{"by-name"}},
		{"ssh", "prod", "dev-only", []string{"dev-only"}},
		{"verification", "dev", "nobody", nil},
	} {
		if diff := cmp.Diff(c.want, e.Match(c.jobType, c.environment, c.ref)); diff != "" {
			t.Errorf("Match(%q, %q, %q): %s", c.jobType, c.environment, c.ref, diff)
		}
	}
	var none *callbacks.Endpoints
	if len(none.Names()) != 0 || len(none.List()) != 0 || len(none.Match("verification", "dev", "x")) != 0 {
		t.Error("no endpoints must have no names")
	}
}

func TestLoadTellsEveryMistakeWithItsLine(t *testing.T) {
	for name, c := range map[string]struct{ config, want string }{
		"empty":           {"", "empty"},
		"syntax":          {"endpoints:\n  - name: [a\n", "callbacks.yaml:"},
		"unknown":         {"endpoints:\n  - name: a\n    url: https://a.test\n    secret_file: secret\n    retries: 3\n", `:5: an endpoint: unknown field "retries"`},
		"unknown at top":  {"endpoint: []\n", `:1: the file: unknown field "endpoint"`},
		"two documents":   {"endpoints: []\n---\nendpoints: []\n", "second YAML document"},
		"missing":         {"endpoints:\n  - name: a\n", `:2: an endpoint: field "url" is missing`},
		"twice":           {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret}\n  - {name: a, url: https://a.test, secret_file: secret}\n", `:3: two endpoints have the name "a"`},
		"duplicate key":   {"endpoints:\n  - name: a\n    name: b\n    url: https://a.test\n    secret_file: secret\n", ":3: "},
		"name":            {"endpoints:\n  - {name: A_b, url: https://a.test, secret_file: secret}\n", ":2: name must be"},
		"job type":        {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, job_types: [verify]}\n", `"verify" is no job type`},
		"pattern":         {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, environments: ['prod-*']}\n", "looks like a pattern"},
		"empty list":      {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, job_types: []}\n", "leave the field out"},
		"timeout":         {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, timeout: 31s}\n", ":2: timeout must be"},
		"timeout number":  {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, timeout: 10}\n", ":2: timeout must be"},
		"parallelism":     {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, parallelism: 65}\n", "from 1 to 64"},
		"no secret":       {"endpoints:\n  - {name: a, url: https://a.test, secret_file: nowhere}\n", "secret_file: stat "},
		"short secret":    {"endpoints:\n  - {name: a, url: https://a.test, secret_file: bad}\n", "line 1 is not whsec_"},
		"ca":              {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, ca_file: ca.pem}\n", "no certificate"},
		"cert alone":      {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, client_cert_file: ca.pem}\n", "stands without client_key_file"},
		"wide":            {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, allow: [0.0.0.0/0]}\n", "reaches beyond one network"},
		"allow word":      {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, allow: [everything]}\n", "neither loopback, private"},
		"plain":           {"endpoints:\n  - {name: a, url: 'http://a.test', secret_file: secret}\n", "plain http"},
		"plain to public": {"endpoints:\n  - {name: a, url: 'http://a.test', secret_file: secret, allow_http: true}\n", "your own networks only"},
		"named filters":   {"endpoints:\n  - {name: a, url: https://a.test, secret_file: secret, only_named: true, environments: [dev]}\n", "would never be looked at"},
		"alias":           {"endpoints:\n  - {name: &n a, url: https://a.test, secret_file: secret}\n", "name must be text"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.config)
			var mistakes *callbacks.LoadError
			if !errors.As(err, &mistakes) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a LoadError with %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "c2hvcnQ") {
				t.Errorf("the error tells a secret: %v", err)
			}
		})
	}
	_, err := load(t, "endpoints:\n  - {name: A, url: ftp://a.test, secret_file: secret, timeout: 1h}\n")
	var all *callbacks.LoadError
	if !errors.As(err, &all) || len(all.Mistakes) != 3 {
		t.Errorf("three mistakes must all be told: %v", err)
	}
}

// TestTargetsRefusedAtLoad is about URLs that reach into the service's own network,
// however they are written.
func TestTargetsRefusedAtLoad(t *testing.T) {
	t.Parallel()
	refused := []string{
		"http://127.0.0.1:9200", "http://[::1]", "http://2130706433", "http://0x7f.1", "http://0177.0.0.1", "http://127.1", "http://localhost.",
		"http://10.0.0.5", "http://169.254.169.254", "http://metadata", "ftp://x", "http://user:pw@ok.test",
		"https://127.0.0.1:9200", "https://[::1]/", "https://2130706433/", "https://0x7f.1/", "https://localhost", "https://localhost./",
		"https://LOCALHOST/", "https://a.localhost/", "https://10.0.0.5/", "https://169.254.169.254/", "https://metadata/", "https://metadata.google.internal/",
		"https://user:pw@ok.test/", "https://user@ok.test/", "https://ok.test/#part", "https://ok.test/#",
		"https://[::ffff:10.1.2.3]/", "https://[64:ff9b::a9fe:a9fe]/", "https://[::]/", "https://0.0.0.0/", "https://[fe80::1%25eth0]/",
		"https://ok.test./", "https://ok.test:0/", "https://ok.test:/", "https://ok.test:65536/", "https://", "https:ok.test", "//ok.test/", "ok.test",
		"https://%6f%6b.test/", "https://ök.test/", "https://ok.test\\@evil.test/", "https://a..test/",
		"https://ok.test/in?key=a b", "https://[::ffff:0:7f00:1]/", "https://[::ffff:0:a9fe:a9fe]/",
	}
	for _, url := range refused {
		_, err := load(t, "endpoints:\n  - name: a\n    url: '"+url+"'\n    secret_file: secret\n")
		if err == nil {
			t.Errorf("%s is accepted", url)
		} else if strings.Contains(err.Error(), "pw") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	// Metadata services cannot be allowed.
	for _, url := range []string{"https://169.254.169.254/", "https://[64:ff9b::a9fe:a9fe]/", "https://metadata/", "https://[fd00:ec2::254]/"} {
		if _, err := load(t, "endpoints:\n  - {name: a, url: '"+url+"', secret_file: secret, allow: [loopback, private, 169.254.0.0/16]}\n"); err == nil {
			t.Errorf("%s is accepted with allow", url)
		}
	}
	for _, url := range []string{"https://127.0.0.1:9200", "https://[::1]/", "https://localhost/", "https://10.0.0.5/", "https://[::ffff:10.1.2.3]/", "http://192.168.1.2/", "https://ok.test/"} {
		if _, err := load(t, "endpoints:\n  - {name: a, url: '"+url+"', secret_file: secret, allow: [loopback, private], allow_http: true}\n"); err != nil {
			t.Errorf("%s is refused though it is allowed: %v", url, err)
		}
	}
}

// TestClassesAreDocumented: events name them, and readers look them up.
func TestClassesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "events.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("\\| `error_class` \\|.*").FindString(string(doc))
	var got []string
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(line, -1)[1:] {
		got = append(got, m[1])
	}
	want := []string{callbacks.ClassStatus, callbacks.ClassRedirect, callbacks.ClassTimeout, callbacks.ClassRefused, callbacks.ClassUnreachable, callbacks.ClassDNS,
		callbacks.ClassTLS, callbacks.ClassDenied, callbacks.ClassBody, callbacks.ClassProtocol, callbacks.ClassResult}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
