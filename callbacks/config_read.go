package callbacks

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// read gives what the file configures; nil or worthless after a mistake.
func (d *document) read(data []byte) *Endpoints {
	root := d.parse(data)
	if root == nil {
		return nil
	}
	e := &Endpoints{}
	d.object(root, "the file", fields{"endpoints": func(n ast.Node) {
		d.list(n, "endpoints", func(item ast.Node) {
			x := d.endpoint(item)
			if _, twice := e.find(x.name); twice && x.name != "" {
				d.fail(item, "two endpoints have the name %q: rename one", x.name)
			}
			e.list = append(e.list, x)
		})
		if len(e.list) > maxEndpoints {
			d.fail(n, "%d endpoints are too many: give at most %d", len(e.list), maxEndpoints)
		}
	}}, "endpoints")
	return e
}

func (d *document) endpoint(n ast.Node) *endpoint {
	x := &endpoint{timeout: defaultTimeout, parallelism: defaultParallelism, window: defaultWindow}
	var url, secretFile, caFile, certFile, keyFile string
	file := func(into *string, what string) func(ast.Node) {
		return func(n ast.Node) { *into = d.path(d.text(n, what)) }
	}
	at := d.object(n, "an endpoint", fields{
		"name":             func(n ast.Node) { x.name = d.name(n) },
		"url":              func(n ast.Node) { url = d.text(n, "url") },
		"secret_file":      file(&secretFile, "secret_file"),
		"job_types":        func(n ast.Node) { x.jobTypes = d.jobTypes(n) },
		"environments":     func(n ast.Node) { x.environments = d.environments(n) },
		"only_named":       func(n ast.Node) { x.onlyNamed = d.boolean(n, "only_named") },
		"timeout":          func(n ast.Node) { x.timeout = d.duration(n, "timeout", 100e6, maxTimeout) },
		"parallelism":      func(n ast.Node) { x.parallelism = d.integer(n, "parallelism", 1, maxParallelism) },
		"window":           func(n ast.Node) { x.window = d.duration(n, "window", minWindow, maxWindow) },
		"allow":            func(n ast.Node) { x.allow = d.allow(n) },
		"allow_http":       func(n ast.Node) { x.allowHTTP = d.boolean(n, "allow_http") },
		"ca_file":          file(&caFile, "ca_file"),
		"client_cert_file": file(&certFile, "client_cert_file"),
		"client_key_file":  file(&keyFile, "client_key_file"),
	}, "name", "url", "secret_file")
	if x.onlyNamed && (len(x.jobTypes) > 0 || len(x.environments) > 0) {
		d.fail(at["only_named"], "only_named is true, so job_types and environments would never be looked at: remove them or only_named")
	}
	if url != "" {
		d.target(at["url"], x, url)
	}
	if secretFile != "" {
		var err error
		if x.secrets, err = openSecrets(secretFile); err != nil {
			d.fail(at["secret_file"], "secret_file: %s", err)
		}
	}
	d.tls(at, x, caFile, certFile, keyFile)
	return x
}

func (d *document) target(n ast.Node, x *endpoint, url string) {
	t, err := parseTarget(url)
	if err == nil {
		err = t.permitted(x.allow, x.allowHTTP)
	}
	if err != nil {
		d.fail(n, "url: %s", err)
		return
	}
	x.target = t
}

func (d *document) tls(at map[string]ast.Node, x *endpoint, caFile, certFile, keyFile string) {
	for _, pair := range [][2]string{{"client_cert_file", "client_key_file"}, {"client_key_file", "client_cert_file"}} {
		if at[pair[0]] != nil && at[pair[1]] == nil {
			d.fail(at[pair[0]], "%s stands without %s: give both", pair[0], pair[1])
			return
		}
	}
	if x.target.url == nil {
		return
	}
	if x.target.plain() {
		for _, field := range []string{"ca_file", "client_cert_file"} {
			if at[field] != nil {
				d.fail(at[field], "%s has no meaning for plain http: use https or remove it", field)
			}
		}
		return
	}
	var err error
	if x.tls, err = tlsConfig(x.target.host, caFile, certFile, keyFile); err != nil {
		field := at["ca_file"]
		if field == nil {
			field = at["client_cert_file"]
		}
		d.fail(field, "%s", err)
	}
}

func (d *document) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(d.dir, p)
}

func (d *document) name(n ast.Node) string {
	s := d.text(n, "name")
	if s != "" && !endpointName.MatchString(s) {
		d.fail(n, "name must be 1 to 63 characters of a-z, 0-9 and hyphen, and not begin with a hyphen")
		return ""
	}
	return s
}

func (d *document) jobTypes(n ast.Node) []string {
	out := d.texts(n, "job_types")
	for _, s := range out {
		if s != "" && !slices.Contains(domain.JobTypes(), s) {
			d.fail(n, "job_types: %q is no job type: use some of %s", s, strings.Join(domain.JobTypes(), ", "))
		}
	}
	return out
}

func (d *document) environments(n ast.Node) []string {
	out := d.texts(n, "environments")
	for _, s := range out {
		if strings.ContainsAny(s, "*?[") {
			d.fail(n, "environments: %q looks like a pattern: write each name out", s)
		}
	}
	return out
}

// Words that stand for networks in allow.
var networks = map[string][]netip.Prefix{
	"loopback": {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
	"private": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7")},
}

func (d *document) allow(n ast.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range d.texts(n, "allow") {
		if s == "" {
			continue
		}
		if list, ok := networks[s]; ok {
			out = append(out, list...)
			continue
		}
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			d.fail(n, "allow: %q is neither loopback, private nor a network such as 10.20.0.0/16", s)
		case p.Masked() != p:
			d.fail(n, "allow: %s has bits behind its length: write %s", s, p.Masked())
		case p.Addr().Is4In6():
			d.fail(n, "allow: %s is IPv4 inside IPv6: write it as IPv4", s)
		case policy.TooWide(p):
			d.fail(n, "allow: %s reaches beyond one network: name loopback, private or the very networks", s)
		default:
			out = append(out, p)
		}
	}
	return out
}
