package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// maxAnswer bounds an answer that is read whole, in bytes.
const maxAnswer = 64 << 20

// Config says where the service is and who calls.
type Config struct {
	// BaseURL is the service's address, such as "http://127.0.0.1:8080"; a path
	// in it is kept as a prefix.
	BaseURL string
	// Token is the bearer token; empty for none.
	Token string
	// HTTP does the requests; nil for a client of its own that follows no
	// redirect. Its Timeout must be 0: contexts bound the calls.
	HTTP *http.Client
	// UserAgent names the program; empty for "execution-plane-client".
	UserAgent string
}

// Client is safe for concurrent use.
type Client struct {
	base      *url.URL
	token     string
	userAgent string
	http      *http.Client
}

// New checks the configuration. Nothing is sent.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("the service's address %q is not of the form http://host:port", c.BaseURL)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the bearer token holds characters that no token has; check the file or variable that it was read from")
	}
	out := &Client{base: base, token: c.Token, userAgent: c.UserAgent, http: c.HTTP}
	if out.userAgent == "" {
		out.userAgent = "execution-plane-client"
	}
	if out.http == nil {
		out.http = &http.Client{Transport: newTransport()}
	}
	// A redirect is never followed, whoever made the client: it would carry the
	// bearer token to another place.
	plain := *out.http
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	out.http = &plain
	return out, nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		MaxIdleConns:          32,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       90 * time.Second,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}
}

// WithToken returns a client that calls as another token and shares everything else.
func (c *Client) WithToken(token string) *Client {
	d := *c
	d.token = token
	return &d
}

// CloseIdle drops kept connections, so that the next call makes a new one.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// call is one request on its way.
type call struct {
	method string
	path   string // begins with /, segments already escaped
	query  url.Values
	header http.Header
	body   []byte
	file   *File // in place of body; such a call is never repeated
	// contentType goes with body; empty for application/json.
	contentType string
	accept      string
	// also is a status that counts as a success beside 2xx; 0 for none.
	also int
}

func (k *call) set(name, value string) {
	if k.header == nil {
		k.header = http.Header{}
	}
	k.header.Set(name, value)
}

func (k *call) key(id domain.CommandID) {
	if !id.IsZero() {
		k.set("Idempotency-Key", id.String())
	}
}

// encode makes v the call's JSON body.
func (k *call) encode(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s %s: encoding the request: %w", k.method, k.path, err)
	}
	k.body = b
	return nil
}

// send does the request once. The caller closes the answer's body. Any status
// but 2xx is an error.
func (c *Client) send(ctx context.Context, k *call) (*http.Response, error) {
	u := *c.base
	u.Path, u.RawPath = "", ""
	target := u.String() + c.base.EscapedPath() + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	for name, values := range k.header {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", c.userAgent)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if k.accept != "" {
		req.Header.Set("Accept", k.accept)
	}
	if k.body != nil {
		req.Header.Set("Content-Type", contentType(k.contentType))
	}
	if k.file != nil {
		k.file.attach(req)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, k.method, k.path, err)
	}
	if (resp.StatusCode < 200 || resp.StatusCode > 299) && (resp.StatusCode != k.also || isProblem(resp)) {
		defer resp.Body.Close()
		return nil, readProblem(k.method, k.path, resp)
	}
	return resp, nil
}

func contentType(s string) string {
	if s == "" {
		return "application/json"
	}
	return s
}

// retryPauses are the waits before a GET is sent again after its connection failed.
var retryPauses = [...]time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// read does the request and reads the answer whole.
func (c *Client) read(ctx context.Context, k *call) (answer, error) {
	for try := 0; ; try++ {
		a, err := c.readOnce(ctx, k)
		if err == nil || k.method != http.MethodGet || try >= len(retryPauses) || !errors.Is(err, ErrUnreachable) {
			return a, err
		}
		t := time.NewTimer(retryPauses[try])
		select {
		case <-ctx.Done():
			t.Stop()
			return a, err
		case <-t.C:
		}
	}
}

// answer is a success read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (c *Client) readOnce(ctx context.Context, k *call) (answer, error) {
	resp, err := c.send(ctx, k)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, transportError(ctx, k.method, k.path, fmt.Errorf("the answer was cut off: %w", err))
	}
	if len(b) > maxAnswer {
		return answer{}, fmt.Errorf("%s %s: the answer has more than %d bytes; ask for less at once", k.method, k.path, maxAnswer)
	}
	return answer{resp.StatusCode, resp.Header, b}, nil
}

// do does the request and decodes the answer as an R.
func do[R any](ctx context.Context, c *Client, k *call) (R, error) {
	var out R
	a, err := c.read(ctx, k)
	if err != nil {
		return out, err
	}
	return out, decode(k, a.body, &out)
}

// decode accepts fields that this release does not know: a newer service may
// say more.
func decode(k *call, b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s %s: the answer is not what this client expects; do versions match? %w", k.method, k.path, err)
	}
	return nil
}

// get and post are the two usual calls.
func get[R any](ctx context.Context, c *Client, path string, query url.Values) (R, error) {
	return do[R](ctx, c, &call{method: http.MethodGet, path: path, query: query})
}

func post[R any](ctx context.Context, c *Client, key domain.CommandID, path string, body any) (R, error) {
	k := &call{method: http.MethodPost, path: path}
	k.key(key)
	if err := k.encode(body); err != nil {
		var zero R
		return zero, err
	}
	return do[R](ctx, c, k)
}

// seconds writes a wait as the API takes it: whole seconds, rounded up.
func seconds(d time.Duration) string {
	return fmt.Sprint(int64((d + time.Second - 1) / time.Second))
}
