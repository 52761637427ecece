package callbacks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Headers beside those of Standard Webhooks. They are not signed: the attempt's id
// stands in the body too, and the sequence is a hint where to look in
// GET /v1/results.
const (
	HeaderSequence = "Execution-Sequence"
	HeaderAttempt  = "Execution-Attempt"
)

const (
	// maxAnswer is how much of an answer's body is read.
	maxAnswer = 64 << 10
	// failedAnswer is how long the body of a refusal is waited for: what it says
	// changes nothing.
	failedAnswer = 2 * time.Second
	idleConn     = 60 * time.Second
)

// client makes calls to one endpoint, on connections of its own.
type client struct {
	endpoint  *endpoint
	userAgent string
	http      *http.Client
}

// newClient makes the endpoint's transport.
func newClient(x *endpoint, resolver Resolver, version string) *client {
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	if version == "" {
		version = "dev"
	}
	g := &guard{target: x.target, allow: x.allow, tls: x.tls, timeout: x.timeout, resolver: resolver}
	// Without a proxy, whatever the environment says; HTTP/1.1, so that a slow call
	// shares its connection with no other.
	t := &http.Transport{
		DialContext: g.dial, DialTLSContext: g.dialTLS,
		MaxIdleConns: x.parallelism, MaxIdleConnsPerHost: x.parallelism,
		IdleConnTimeout: idleConn, MaxResponseHeaderBytes: maxAnswer, DisableCompression: true,
	}
	return &client{endpoint: x, userAgent: "execution-plane/" + version, http: &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// message is what is sent.
type message struct {
	id        string
	attempt   string
	seq       int64
	body      []byte
	at        time.Time // by the database's clock
	signature string
}

// answer is what is known of a call. Of a body nothing is kept but its length and
// digest.
type answer struct {
	status     int    // 0: none
	class      string // empty: delivered
	local      bool   // this machine is to blame, not the endpoint
	latency    time.Duration
	bytes      int64  // read of the body, at most maxAnswer
	sha256     string // of these bytes, in hex; empty without an answer
	retryAfter string
	date       string
}

// call posts once. The endpoint's timeout covers everything from the lookup to the
// end of the answer's body.
func (c *client) call(ctx context.Context, m message) answer {
	ctx, cancel := context.WithTimeout(ctx, c.endpoint.timeout)
	defer cancel()
	began := time.Now()
	a := c.post(ctx, cancel, m)
	a.latency = time.Since(began)
	return a
}

func (c *client) post(ctx context.Context, cancel context.CancelFunc, m message) answer {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint.target.url.String(), bytes.NewReader(m.body))
	if err != nil {
		return answer{class: ClassProtocol, local: true}
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {c.userAgent},
		HeaderSequence: {strconv.FormatInt(m.seq, 10)},
		HeaderAttempt:  {m.attempt},
	}
	req.Header.Set(webhooks.HeaderWebhookID, m.id)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(m.at.Unix(), 10))
	req.Header.Set(webhooks.HeaderWebhookSignature, m.signature)
	resp, err := c.http.Do(req)
	if err != nil {
		class, local := classify(err)
		return answer{class: class, local: local}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, class: statusClass(resp.StatusCode), retryAfter: resp.Header.Get("Retry-After"), date: resp.Header.Get("Date")}
	if resp.StatusCode < 200 { // 101: what follows is no body
		return a
	}
	if a.class != "" {
		t := time.AfterFunc(failedAnswer, cancel)
		defer t.Stop()
	}
	if err := a.read(resp.Body); err != nil && a.class == "" {
		// Whoever breaks off may not have kept what it was sent.
		if a.class, _ = classify(err); a.class != ClassTimeout {
			a.class = ClassBody
		}
	}
	return a
}

// read counts and hashes a body up to its bound.
func (a *answer) read(body io.Reader) error {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(body, maxAnswer))
	a.bytes, a.sha256 = n, hex.EncodeToString(h.Sum(nil))
	return err
}

func statusClass(status int) string {
	switch {
	case status >= 200 && status < 300:
		return ""
	case status >= 300 && status < 400:
		return ClassRedirect
	}
	return ClassStatus
}
