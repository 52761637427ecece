package callbacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// endpointAt is an endpoint that may call this machine.
func endpointAt(t testing.TB, url string, change ...func(*endpoint)) *endpoint {
	t.Helper()
	parsed, err := parseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(shared("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openSecrets(path)
	if err != nil {
		t.Fatal(err)
	}
	x := &endpoint{name: "here", target: parsed, timeout: 5 * time.Second, parallelism: 4, window: defaultWindow,
		allow: networks["loopback"], allowHTTP: true, secrets: s}
	if x.tls, err = tlsConfig(parsed.host, "", "", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(x)
	}
	return x
}

func fast(x *endpoint) { x.timeout = 300 * time.Millisecond }

func callOnce(t *testing.T, x *endpoint) answer {
	t.Helper()
	c := newClient(x, nil, "1.2.3")
	defer c.close()
	return c.call(t.Context(), message{id: "id", attempt: "attempt", seq: 7, body: []byte("{}"), at: time.Now(), signature: "v1,x"})
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a server sees its caller leave only once the body is read
		r.Body = io.NopCloser(bytes.NewReader(body))
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// hijack answers with raw bytes and closes.
func hijack(t *testing.T, raw string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, raw) // the client may have gone
		conn.Close()
	}
}

// TestAnswers: what a receiver does, and what is made of it.
func TestAnswers(t *testing.T) {
	page := strings.Repeat("internal page token=hunter2 ", 40000)
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	late := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	drip := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, "."); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		class   string
		status  int
		bytes   int64
	}{
		"200":                           {status(200), "", 200, 0},
		"204":                           {status(204), "", 204, 0},
		"200 with a short body":         {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "thanks") }, "", 200, 6},
		"200 with a megabyte":           {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) }, "", 200, maxAnswer},
		"500 with a megabyte":           {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); io.WriteString(w, page) }, ClassStatus, 500, maxAnswer},
		"404":                           {status(404), ClassStatus, 404, 0},
		"410":                           {status(410), ClassStatus, 410, 0},
		"302 to metadata":               {status(302, "Location", "http://169.254.169.254/"), ClassRedirect, 302, 0},
		"307":                           {status(307, "Location", "/again"), ClassRedirect, 307, 0},
		"304":                           {status(304), ClassRedirect, 304, 0},
		"slow":                          {late, ClassTimeout, 0, 0},
		"200 that drips":                {drip(200), ClassTimeout, 200, -1},
		"500 that drips":                {drip(500), ClassStatus, 500, -1},
		"closed mid-body":               {hijack(t, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), ClassBody, 200, 4},
		"closed mid-chunk":              {hijack(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf"), ClassBody, 200, 4},
		"500 closed mid-body":           {hijack(t, "HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf"), ClassStatus, 500, 4},
		"closed without a word":         {hijack(t, ""), ClassProtocol, 0, 0},
		"no HTTP":                       {hijack(t, "220 smtp.test ESMTP\r\n"), ClassProtocol, 0, 0},
		"endless header":                {hijack(t, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", 1<<20)), ClassProtocol, 0, 0},
		"another protocol":              {hijack(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), ClassStatus, 101, 0},
		"100 and then 200":              {hijack(t, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "", 200, 0},
		"a gzip bomb is counted packed": {hijack(t, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), "", 200, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.handler)
			began := time.Now()
			a := callOnce(t, endpointAt(t, s.URL+"/in?x=1", fast))
			if a.class != c.class || a.status != c.status || c.bytes >= 0 && a.bytes != c.bytes || a.local {
				t.Errorf("answer %+v, want class %q, status %d, %d bytes", a, c.class, c.status, c.bytes)
			}
			if strings.Contains(fmt.Sprintf("%+v", a), "token") {
				t.Error("the answer keeps what the body said")
			}
			if (a.sha256 != "") != (c.status >= 200) {
				t.Errorf("digest %q with status %d", a.sha256, a.status)
			}
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestNothingListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if a := callOnce(t, endpointAt(t, url)); a.class != ClassRefused || a.status != 0 {
		t.Errorf("answer %+v, want %s", a, ClassRefused)
	}
}

func TestRequestIsWhatReceiversVerify(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
	})
	if a := callOnce(t, endpointAt(t, s.URL+"/in?key=1")); a.class != "" {
		t.Fatalf("%+v", a)
	}
	if got.Method != http.MethodPost || got.URL.String() != "/in?key=1" || string(body) != "{}" || got.ContentLength != 2 {
		t.Errorf("%s %s with %q", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{
		"webhook-id": "id", "webhook-signature": "v1,x", "Content-Type": "application/json", "Execution-Sequence": "7",
		"Execution-Attempt": "attempt", "User-Agent": "execution-plane/1.2.3", "Authorization": "", "Accept-Encoding": "",
	} {
		if got.Header.Get(name) != want {
			t.Errorf("header %s is %q, want %q", name, got.Header.Get(name), want)
		}
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var opened atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	c := newClient(endpointAt(t, s.URL), nil, "")
	defer c.close()
	for range 50 {
		if a := c.call(t.Context(), message{body: []byte("{}")}); a.class != "" {
			t.Fatalf("%+v", a)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("50 calls took %d connections", opened.Load())
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	proxied := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(v, proxied.URL)
	}
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	c := newClient(endpointAt(t, s.URL), nil, "")
	defer c.close()
	if c.http.Transport.(*http.Transport).Proxy != nil {
		t.Error("the transport has a proxy function")
	}
	if a := c.call(t.Context(), message{}); a.class != "" {
		t.Errorf("%+v", a)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			w.Header().Set("Retry-After", "1") // says that a certificate came
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = discardLog()
	s.StartTLS()
	defer s.Close()
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11}
	old.Config.ErrorLog = discardLog()
	old.StartTLS()
	defer old.Close()
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key.pem")
	der, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := func(cert, key string) func(*endpoint) {
		return func(x *endpoint) {
			var err error
			if x.tls, err = tlsConfig(x.target.host, ca, cert, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	port := s.Listener.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		url    string
		change func(*endpoint)
		class  string
		cert   bool
	}{
		"the right CA":         {s.URL, trust("", ""), "", false},
		"another CA":           {s.URL, func(*endpoint) {}, ClassTLS, false},
		"another name":         {fmt.Sprintf("https://localhost:%d", port), trust("", ""), ClassTLS, false},
		"a client certificate": {s.URL, trust(ca, key), "", true},
		"TLS 1.1":              {old.URL, trust("", ""), ClassTLS, false},
		"no TLS there":         {strings.Replace(plain.URL, "http:", "https:", 1), trust("", ""), ClassTLS, false},
	} {
		a := callOnce(t, endpointAt(t, c.url, c.change))
		if a.class != c.class || (a.retryAfter != "") != c.cert {
			t.Errorf("%s: %+v, want class %q, certificate sent %t", name, a, c.class, c.cert)
		}
	}
}

// names is a resolver with answers in turn; the last one stays.
type names struct {
	answers [][]string
	asked   int
	err     error
}

func (n *names) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if n.err != nil {
		return nil, n.err
	}
	list := n.answers[min(n.asked, len(n.answers)-1)]
	n.asked++
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

// TestAddressesAreCheckedWhenDialled: whatever a name resolves to, nothing is sent to
// an address that may not be called, and its class does not tell whether somebody
// listens there.
func TestAddressesAreCheckedWhenDialled(t *testing.T) {
	var reached atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			reached.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	strict := func(x *endpoint) { x.allow = nil; x.timeout = time.Second }
	for name, c := range map[string]struct {
		resolver *names
		scheme   string
		change   func(*endpoint)
		class    string
	}{
		"loopback":                   {&names{answers: [][]string{{"127.0.0.1"}}}, "https", strict, ClassDenied},
		"mapped":                     {&names{answers: [][]string{{"::ffff:127.0.0.1"}}}, "https", strict, ClassDenied},
		"NAT64 to metadata":          {&names{answers: [][]string{{"64:ff9b::a9fe:a9fe"}}}, "https", func(*endpoint) {}, ClassDenied},
		"metadata":                   {&names{answers: [][]string{{"169.254.169.254"}}}, "https", func(x *endpoint) { x.allow = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")} }, ClassDenied},
		"public and private":         {&names{answers: [][]string{{"93.184.216.34", "10.0.0.1"}}}, "https", strict, ClassDenied},
		"allowed and private":        {&names{answers: [][]string{{"127.0.0.1", "10.0.0.1"}}}, "http", func(*endpoint) {}, ClassDenied},
		"plain http to public":       {&names{answers: [][]string{{"93.184.216.34"}}}, "http", func(*endpoint) {}, ClassDenied},
		"no such name":               {&names{err: &net.DNSError{Err: "no such host", IsNotFound: true}}, "https", strict, ClassDNS},
		"the resolver has no time":   {&names{err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}}, "https", strict, ClassDNS},
		"no address":                 {&names{answers: [][]string{nil}}, "https", strict, ClassDNS},
		"allowed by name, delivered": {&names{answers: [][]string{{"127.0.0.1"}}}, "http", func(*endpoint) {}, ""},
	} {
		before := reached.Load()
		x := endpointAt(t, c.scheme+"://hooks.example.test:"+port, c.change)
		client := newClient(x, c.resolver, "")
		a := client.call(t.Context(), message{})
		client.close()
		if a.class != c.class || (reached.Load() > before) != (c.class == "") {
			t.Errorf("%s: %+v, want class %q; the receiver saw %d connections", name, a, c.class, reached.Load()-before)
		}
	}
}

// TestNameThatChangesItsAddress: the second call's lookup gives another address, and
// that one is checked; and a socket is checked even if a lookup before it was not.
func TestNameThatChangesItsAddress(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	x := endpointAt(t, "http://hooks.example.test:"+port, func(x *endpoint) { x.allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	client := newClient(x, &names{answers: [][]string{{"127.0.0.1"}, {"127.0.0.2"}}}, "")
	if a := client.call(t.Context(), message{}); a.class != "" {
		t.Errorf("first: %+v", a)
	}
	client.close() // the next call opens a connection of its own
	if a := client.call(t.Context(), message{}); a.class != ClassDenied {
		t.Errorf("second: %+v, want %s", a, ClassDenied)
	}
	g := &guard{target: x.target, timeout: time.Second}
	for _, addr := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254"} {
		if _, err := g.dialOne(t.Context(), netip.MustParseAddr(addr), 1); !errors.Is(err, errDenied) {
			t.Errorf("the socket to %s: %v, want it denied", addr, err)
		}
	}
}

func TestBodyIsSentWhole(t *testing.T) {
	want := bytes.Repeat([]byte("x"), 3<<20)
	var got []byte
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) })
	c := newClient(endpointAt(t, s.URL), nil, "")
	defer c.close()
	if a := c.call(t.Context(), message{body: want}); a.class != "" || !bytes.Equal(got, want) {
		t.Errorf("%+v, %d bytes came", a, len(got))
	}
}
