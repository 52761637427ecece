package verification

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/policy"
)

// Bounds of one HTTP try.
const (
	maxBody        = 64 << 10 // bytes read of a body
	maxHeaderBytes = 64 << 10
	maxRedirects   = 5
)

type httpParameters struct {
	Scheme          string            `json:"scheme"`
	Path            string            `json:"path"`
	Method          string            `json:"method"`
	Headers         map[string]string `json:"headers"`
	FollowRedirects bool              `json:"follow_redirects"`
	TLS             tlsParameters     `json:"tls"`
	Expect          []httpExpectation `json:"expect"`
}

type httpProber struct {
	plan   plan
	guard  *guard
	params httpParameters
	url    *url.URL
	host   string // the Host header
	tls    *tls.Config
}

func newHTTPProber(req Request, p plan, g *guard) (*httpProber, error) {
	h := &httpProber{plan: p, guard: g, params: httpParameters{Scheme: "http", Path: "/", Method: http.MethodGet}}
	if err := decode(req.Parameters, &h.params); err != nil {
		return nil, err
	}
	for i := range h.params.Expect {
		if err := h.params.Expect[i].compile(); err != nil {
			return nil, err
		}
	}
	authority := net.JoinHostPort(strings.Trim(p.target.Host, "[]"), strconv.Itoa(int(p.target.Port)))
	u, err := url.Parse(h.params.Scheme + "://" + authority + h.params.Path)
	if err != nil {
		return nil, errors.New("binding address, port and path make no URL")
	}
	h.url, h.host = u, hostHeader(u)
	for name, value := range h.params.Headers {
		if !strings.EqualFold(name, "Host") {
			continue
		}
		if strings.Trim(strings.ToLower(value), "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != "" || value == "" {
			return nil, errors.New("the Host header is no host name")
		}
		h.host = value
	}
	h.tls, err = h.params.TLS.config("")
	return h, err
}

// hostHeader leaves out the port where it is the scheme's own, as browsers do;
// some servers compare the text.
func hostHeader(u *url.URL) string {
	if (u.Scheme == "http" && u.Port() == "80") || (u.Scheme == "https" && u.Port() == "443") {
		return strings.TrimSuffix(u.Host, ":"+u.Port())
	}
	return u.Host
}

func (h *httpProber) expectations() []named {
	out := make([]named, len(h.params.Expect))
	for i, e := range h.params.Expect {
		out[i] = e.named
	}
	return out
}

func (h *httpProber) try(ctx context.Context) observation {
	began := time.Now()
	var facts attributes
	answer, err := h.ask(ctx, &facts)
	latency := time.Since(began)
	attrs := facts.snapshot()
	if err != nil {
		return failedTry(err, latency, len(h.params.Expect), attrs)
	}
	answer.latency = latency
	o := observation{seen: true, latency: latency, attrs: attrs, told: answer.told()}
	o.cut, _ = classify(answer.bodyErr)
	for i := range h.params.Expect {
		o.judged = append(o.judged, h.params.Expect[i].judge(answer))
	}
	return o
}

// httpAnswer is what the expectations are about.
type httpAnswer struct {
	status  int
	header  http.Header
	body    []byte
	bodyErr error // the body ended early; status and header stand
	latency time.Duration
}

// told is the answer for an assertion. A body that broke off is left out: what it
// does not hold may only not have come.
func (a *httpAnswer) told() map[string]any {
	headers := map[string]any{}
	for name, values := range a.header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	out := map[string]any{"headers": headers}
	if a.bodyErr != nil {
		return out
	}
	if utf8.Valid(a.body) {
		out["body"] = string(a.body)
	}
	var doc any
	if err := decode(a.body, &doc); err == nil {
		out["json"] = doc
	}
	return out
}

func (h *httpProber) ask(ctx context.Context, attrs *attributes) (*httpAnswer, error) {
	transport := h.transport(attrs)
	defer transport.CloseIdleConnections()
	hops := 0
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		hops = len(via)
		return h.checkRedirect(next, via)
	}}
	req, err := http.NewRequestWithContext(ctx, h.params.Method, h.url.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("User-Agent", "execution-plane-verification")
	req.Header.Set("Accept", "*/*")
	for name, value := range h.params.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Del("Host")
	req.Host = h.host
	resp, err := client.Do(req)
	if h.params.FollowRedirects {
		attrs.set("redirects", hops)
	}
	if err != nil {
		return nil, answerError(ctx, err)
	}
	defer resp.Body.Close()
	a := &httpAnswer{status: resp.StatusCode, header: resp.Header}
	a.body, a.bodyErr = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	truncated := len(a.body) > maxBody
	if truncated {
		a.body = a.body[:maxBody]
	}
	sum := sha256.Sum256(a.body)
	attrs.set("status", resp.StatusCode)
	attrs.set("protocol", resp.Proto)
	attrs.set("body_bytes", len(a.body))
	attrs.set("body_sha256", hex.EncodeToString(sum[:]))
	attrs.set("body_truncated", truncated)
	return a, nil
}

// answerError keeps what the network or policy said; anything else that the
// client reports is an answer that is no HTTP.
func answerError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if class, _ := classify(err); class != classNetwork {
		return err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return err
	}
	return &peerError{classProtocol, err}
}

// checkRedirect decides on the next hop before it is dialled; its address goes
// through the guard like any other.
func (h *httpProber) checkRedirect(next *http.Request, via []*http.Request) error {
	if !h.params.FollowRedirects {
		return http.ErrUseLastResponse
	}
	if len(via) > maxRedirects {
		return &peerError{class: classRedirectMax}
	}
	u, last := next.URL, via[len(via)-1].URL
	if (u.Scheme != "http" && u.Scheme != "https") || (last.Scheme == "https" && u.Scheme == "http") || u.User != nil {
		return &peerError{class: classRedirect}
	}
	if _, err := policy.NormalizeHost(u.Hostname()); err != nil {
		return &peerError{class: classRedirect}
	}
	if u.Host != h.url.Host {
		// What the job sends is meant for its own target.
		for name := range h.params.Headers {
			next.Header.Del(name)
		}
		next.Header.Set("User-Agent", "execution-plane-verification")
	}
	next.Header.Del("Referer")
	return nil
}

func (h *httpProber) transport(attrs *attributes) *http.Transport {
	dial := func(ctx context.Context, address string) (net.Conn, string, error) {
		conn, host, err := h.guard.dialAddress(ctx, address)
		if err == nil {
			attrs.set("address", conn.RemoteAddr().String())
		}
		return conn, host, err
	}
	return &http.Transport{
		Proxy:                  nil,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, _, err := dial(ctx, address)
			return conn, err
		},
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, host, err := dial(ctx, address)
			if err != nil {
				return nil, err
			}
			config := h.tls.Clone()
			if config.ServerName == "" || address != h.url.Host {
				config.ServerName = host
			}
			secure, err := handshake(ctx, conn, config)
			if err != nil {
				conn.Close()
				return nil, err
			}
			describeTLS(secure.ConnectionState(), attrs)
			return secure, nil
		},
	}
}
