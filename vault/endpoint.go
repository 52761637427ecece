package vault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
)

// maxAnswer is the largest answer that is read, in bytes: a value of MaxValue
// bytes may take six for each of them in JSON.
const maxAnswer = 8 << 20

const (
	defaultRequestTimeout = 10 * time.Second
	defaultPatience       = 20 * time.Second
	dialTimeout           = 5 * time.Second
)

// Config says where Vault is and how the agent logs in.
type Config struct {
	// Address is https://host:port without a path; http on the loopback only.
	Address string
	// Namespace is Vault Enterprise's; empty elsewhere.
	Namespace string
	// CAFile holds PEM certificates that are trusted instead of the system's.
	CAFile string
	// CertFile and KeyFile are the client's certificate, both or none.
	CertFile, KeyFile string
	// ServerName is the name that the server's certificate must have, if it is
	// not the host of Address.
	ServerName string
	Login      Login
	// RequestTimeout bounds one request; 10 seconds if 0.
	RequestTimeout time.Duration
	// Patience is how long an operation tries again while Vault is unavailable;
	// 20 seconds if 0. The last try may outlast it by RequestTimeout.
	Patience time.Duration
}

// endpoint makes the library's clients, one per token, over one pool of
// connections.
type endpoint struct {
	address, namespace string
	pool               *http.Transport
	timeout            time.Duration
	patience           time.Duration
}

func newEndpoint(cfg Config) (*endpoint, error) {
	if err := checkAddress(cfg.Address); err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.tls()
	if err != nil {
		return nil, err
	}
	e := &endpoint{
		address: cfg.Address, namespace: cfg.Namespace,
		timeout: orDefault(cfg.RequestTimeout, defaultRequestTimeout), patience: orDefault(cfg.Patience, defaultPatience),
		pool: &http.Transport{
			Proxy:           nil, // not even from the environment
			DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig: tlsConfig, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute,
			// A small answer must not unfold into a large one.
			DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}
	// What the library would refuse later, it refuses now.
	if _, err := e.client(""); err != nil {
		return nil, err
	}
	return e, nil
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the address of Vault is https://host:port, without a user, a path or a query")
	}
	if u.Scheme == "https" {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return errors.New("the address of Vault is not https://; http:// is for the loopback only")
}

func (cfg Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the certificates that Vault's is checked against: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", cfg.CAFile)
		}
	}
	if (cfg.CertFile == "") != (cfg.KeyFile == "") {
		return nil, errors.New("a client certificate for Vault needs both a certificate and a key file")
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			// The library's words could repeat lines of the key.
			return nil, fmt.Errorf("%s and %s are no certificate with its key", cfg.CertFile, cfg.KeyFile)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// client makes a client of the library with this token. The library reads the
// environment as it does so; everything that it could have taken is set here.
func (e *endpoint) client(token string) (*api.Client, error) {
	c, err := api.NewClient(&api.Config{
		Address: e.address,
		HttpClient: &http.Client{
			Transport:     guard{next: e.pool},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// Trying again is this package's business, and so are the limits of time.
		MaxRetries: 0, CheckRetry: neverAgain, MinRetryWait: time.Millisecond, MaxRetryWait: time.Millisecond,
		DisableRedirects: true,
	})
	if err != nil {
		// Its words may repeat the variable's value.
		return nil, errors.New("set up the Vault client: a VAULT_* variable of the environment cannot be read; unset it, nothing is taken from it")
	}
	c.SetLogger(nil)
	c.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	if e.namespace != "" {
		c.SetNamespace(e.namespace)
	}
	c.SetWrappingLookupFunc(func(string, string) string { return "" })
	if token == "" {
		c.ClearToken()
	} else {
		c.SetToken(token)
	}
	return c, nil
}

// guard stands below the library: no redirect comes through, and no answer larger
// than maxAnswer. It tells what was sent when the transport lets go of it.
type guard struct{ next http.RoundTripper }

var (
	errRedirect = errors.New("a redirect")
	errAnswer   = errors.New("an answer that is too large")
)

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(watched(req))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		resp.Body.Close()
		return nil, errRedirect
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: maxAnswer}
	return resp, nil
}

type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errAnswer
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n, errAnswer
	}
	return n, err
}
