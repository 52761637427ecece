package callbacks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
)

// Bounds of the configuration.
const (
	maxConfigBytes = 1 << 20
	maxEndpoints   = 64

	defaultTimeout     = 10 * time.Second
	maxTimeout         = 30 * time.Second
	defaultParallelism = 8
	maxParallelism     = 64
	defaultWindow      = 72 * time.Hour
	minWindow          = time.Minute
	maxWindow          = 30 * 24 * time.Hour
)

// endpointName is the form of an endpoint's name.
var endpointName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Endpoints are the receivers that the operator configured, in the file's order.
// A nil Endpoints has none. It never changes after Load; the secrets do.
type Endpoints struct {
	list []*endpoint
}

// endpoint is one receiver.
type endpoint struct {
	name         string
	target       target
	jobTypes     []string
	environments []string
	onlyNamed    bool
	timeout      time.Duration // of one try, from the lookup to the end of the answer
	parallelism  int
	window       time.Duration // from scheduling until it is given up
	allow        []netip.Prefix
	allowHTTP    bool
	tls          *tls.Config
	secrets      *secrets
}

// Endpoint is what may be shown of a configured endpoint. Origin is scheme, host
// and port: a path or query may be a secret.
type Endpoint struct {
	Name         string
	Origin       string
	JobTypes     []string // empty: all
	Environments []string // empty: all
	OnlyNamed    bool
	Timeout      time.Duration
	Parallelism  int
	Window       time.Duration
}

// Load reads the configuration and the files that it names, which are found
// relative to it. Every mistake is told, as a *LoadError.
func Load(path string) (*Endpoints, error) {
	data, err := readBounded(path, maxConfigBytes)
	if err != nil {
		return nil, fmt.Errorf("reading the callback endpoints: %w", err)
	}
	d := &document{file: path, dir: filepath.Dir(path)}
	e := d.read(data)
	if len(d.mistakes) > 0 {
		return nil, &LoadError{Mistakes: d.mistakes}
	}
	return e, nil
}

// Names gives the endpoints' names in the file's order.
func (e *Endpoints) Names() []string {
	var out []string
	for _, x := range e.all() {
		out = append(out, x.name)
	}
	return out
}

// List shows the endpoints in the file's order.
func (e *Endpoints) List() []Endpoint {
	var out []Endpoint
	for _, x := range e.all() {
		out = append(out, Endpoint{
			Name: x.name, Origin: x.target.origin(), JobTypes: slices.Clone(x.jobTypes), Environments: slices.Clone(x.environments),
			OnlyNamed: x.onlyNamed, Timeout: x.timeout, Parallelism: x.parallelism, Window: x.window,
		})
	}
	return out
}

// Match names the endpoints that get the result of such a job: the one that
// callbackRef names, whatever its filters, or none if it is not configured;
// without a callbackRef, all whose filters match.
func (e *Endpoints) Match(jobType, environment, callbackRef string) []string {
	var out []string
	for _, x := range e.all() {
		if x.wants(jobType, environment, callbackRef) {
			out = append(out, x.name)
		}
	}
	return out
}

func (e *Endpoints) all() []*endpoint {
	if e == nil {
		return nil
	}
	return e.list
}

func (e *Endpoints) find(name string) (*endpoint, bool) {
	for _, x := range e.all() {
		if x.name == name {
			return x, true
		}
	}
	return nil, false
}

func (x *endpoint) wants(jobType, environment, callbackRef string) bool {
	if callbackRef != "" {
		return callbackRef == x.name
	}
	return !x.onlyNamed && (len(x.jobTypes) == 0 || slices.Contains(x.jobTypes, jobType)) &&
		(len(x.environments) == 0 || slices.Contains(x.environments, environment))
}

// tlsConfig verifies the receiver against the system's roots, or against those of
// caFile alone.
func tlsConfig(host policy.Host, caFile, certFile, keyFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host.String()}
	if caFile != "" {
		pem, err := readBounded(caFile, maxConfigBytes)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file holds no certificate in PEM form")
		}
	}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("the client certificate cannot be used: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// readBounded reads a regular file of at most so many bytes. It follows links: a
// mounted Secret consists of them.
func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// Has reports whether an endpoint of this name is configured.
func (e *Endpoints) Has(name string) bool {
	_, ok := e.find(name)
	return ok
}
