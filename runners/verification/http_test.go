package verification

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func httpServer(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

func httpProbe(t *testing.T, s *httptest.Server, params string) *tested {
	t.Helper()
	return probe(t, request(t, "verify.http.endpoint", portOf(t, s.URL), params))
}

// An endpoint that redirects to a login page which answers 200 (C97).
func TestRedirectAcceptedOrNot(t *testing.T) {
	t.Parallel()
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			fmt.Fprint(w, "please sign in")
			return
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	})
	for name, tc := range map[string]struct{ params, want string }{
		"302 expected, not followed":           {`"follow_redirects":false,"expect":[{"name":"e","status":[302]}]`, "passed"},
		"200 expected, followed, body decides": {`"follow_redirects":true,"expect":[{"name":"e","status":[200],"body_contains":"ready"}]`, "failed body_text_missing"},
		"200 expected, not followed":           {`"follow_redirects":false,"expect":[{"name":"e","status":[200]}]`, "failed status_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httpProbe(t, s, "{"+quick+tc.params+"}")
			if got := r.result("e"); got != tc.want || r.Status != StatusSucceeded {
				t.Errorf("evidence %s, outcome %+v; want %s on a succeeded probe", got, r.Outcome, tc.want)
			}
		})
	}
}

func TestHTTPConditions(t *testing.T) {
	t.Parallel()
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Version", "1.4.2")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"status":"ok","parts":[{"n":1.0}],"a/b":null}`)
	})
	for condition, want := range map[string]string{
		`"status":202`:                                                     "passed",
		`"status":"2xx"`:                                                   "passed",
		`"status":[200,"3xx"]`:                                             "failed status_mismatch",
		`"body_contains":"\"ok\""`:                                         "passed",
		`"body_matches":"^\\{.*\\}$"`:                                      "passed",
		`"body_matches":"nothing"`:                                         "failed body_mismatch",
		`"header":{"name":"x-version"}`:                                    "passed",
		`"header":{"name":"x-version","equals":"1.4.2"}`:                   "passed",
		`"header":{"name":"x-version","equals":""}`:                        "failed header_mismatch",
		`"header":{"name":"x-version","matches":"^1\\."}`:                  "passed",
		`"header":{"name":"content-type","contains":"html"}`:               "failed header_mismatch",
		`"header":{"name":"x-other"}`:                                      "failed header_missing",
		`"json":{"pointer":"/status","equals":"ok"}`:                       "passed",
		`"json":{"pointer":"/parts/0/n","equals":1}`:                       "passed",
		`"json":{"pointer":"/parts","equals":[{"n":1}]}`:                   "passed",
		`"json":{"pointer":"/a~1b","equals":null}`:                         "passed",
		`"json":{"pointer":"/parts/00/n","equals":1}`:                      "failed json_value_missing",
		`"json":{"pointer":"/missing","equals":null}`:                      "failed json_value_missing",
		`"json":{"pointer":"/status","equals":"down"}`:                     "failed json_value_mismatch",
		`"status":202,"body_contains":"ok","max_latency_ms":10000`:         "passed",
		`"status":202,"body_contains":"nothing","header":{"name":"X-Oth"}`: "failed header_missing",
	} {
		r := httpProbe(t, s, `{"timeout_seconds":10,"interval_seconds":0.1,"stable_successes":1,"expect":[{"name":"e",`+condition+`}]}`)
		if got := r.result("e"); got != want {
			t.Errorf("%s: %s, want %s", condition, got, want)
		}
	}
}

func TestTooSlow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	r := httpProbe(t, s, `{"timeout_seconds":1,"interval_seconds":0.1,"expect":[{"name":"status","status":200},{"name":"body","body_contains":"x"},{"name":"fast","max_latency_ms":1}]}`)
	if r.result("status") != "passed" || r.result("body") != "inconclusive timeout" || r.result("fast") != "failed too_slow" {
		t.Errorf("status %s, body %s, fast %s", r.result("status"), r.result("body"), r.result("fast"))
	}
}

// An internal error page of a megabyte with a token in it (C107).
func TestBodyIsCappedAndNeverEchoed(t *testing.T) {
	t.Parallel()
	page := "token=t0psecret " + strings.Repeat("x", 1<<20) + " end"
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Internal", "t0psecret")
		w.WriteHeader(500)
		fmt.Fprint(w, page)
	})
	r := httpProbe(t, s, "{"+quick+`"expect":[{"name":"ok","status":200},{"name":"end","body_contains":" end"}]}`)
	if r.result("ok") != "failed server_error" || r.result("end") != "failed body_text_missing" || r.RecommendedCategory != CategoryUnknown {
		t.Errorf("ok %s, end %s, outcome %+v", r.result("ok"), r.result("end"), r.Outcome)
	}
	attrs := r.samples[0].Attributes
	if attrs["status"] != 500.0 || attrs["body_bytes"] != float64(maxBody) || attrs["body_truncated"] != true || len(attrs["body_sha256"].(string)) != 64 {
		t.Errorf("attributes %v", attrs)
	}
	evidence, err := json.Marshal(r.evidence)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.raw+r.log.String()+string(evidence), "t0psecret") {
		t.Errorf("what the peer sent stands in log, samples or evidence")
	}
}

func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				_, _ = c.Write([]byte(text))
			}
		}
	}
	for name, tc := range map[string]struct {
		handle        func(net.Conn)
		want, failure string
	}{
		"no HTTP":       {say("SSH-2.0-x\r\n\r\n"), "failed protocol_error", ""},
		"hangs up":      {say(""), "failed connection_closed", ""},
		"half a header": {say("HTTP/1.1 200 OK\r\nContent-Le"), "failed protocol_error", ""},
		"silence":       {hang, "inconclusive timeout", FailureTargetUnreachable},
		"bad status":    {say("HTTP/1.1 x\r\n\r\n"), "failed protocol_error", ""},
		"huge header":   {say("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 200<<10) + "\r\n\r\n"), "failed protocol_error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := serve(t, tc.handle)
			pace := quick
			if tc.failure != "" {
				pace = silent
			}
			r := probe(t, request(t, "verify.http.endpoint", port, "{"+pace+`"expect":[{"name":"e","status":200}]}`))
			if r.result("e") != tc.want || r.FailureCode != tc.failure {
				t.Errorf("evidence %s, outcome %+v; want %s", r.result("e"), r.Outcome, tc.want)
			}
		})
	}
	r := probe(t, request(t, "verify.http.endpoint", closedPort(t), "{"+quick+`"expect":[{"name":"e","status":"5xx"}]}`))
	if r.result("e") != "failed connection_refused" || r.Status != StatusSucceeded {
		t.Errorf("refused: evidence %s, outcome %+v", r.result("e"), r.Outcome)
	}
}

// A redirect is dialled by the same rules as the target (C108).
func TestRedirectToAForbiddenAddress(t *testing.T) {
	t.Parallel()
	inner, connections := counted(t)
	for name, location := range map[string]string{
		"metadata":      "http://169.254.169.254/latest",
		"private":       "http://10.1.2.3/",
		"mapped":        "http://[::ffff:10.1.2.3]/",
		"NAT64":         "http://[64:ff9b::a9fe:a9fe]/",
		"another port":  fmt.Sprintf("http://127.0.0.1:%d/", inner),
		"another name":  fmt.Sprintf("http://inner.example.test:%d/", inner),
		"name by rule?": fmt.Sprintf("http://localhost:%d/", inner),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httpServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, location, http.StatusFound) })
			port := portOf(t, s.URL)
			req := request(t, "verify.http.endpoint", port, "{"+quick+`"follow_redirects":true,"expect":[{"name":"e","status":200}]}`)
			req.Policy = overlay(t, fmt.Sprintf("targets:\n- id: t\n  actions: ['*']\n  environments: ['*']\n  cidrs: [127.0.0.1]\n  ports: [%d]\n", port))
			req.Resolver = &names{answers: map[string][][]string{"inner.example.test": {{"127.0.0.1"}}, "localhost": {{"127.0.0.1"}}}}
			r := probe(t, req)
			last := r.verdicts[len(r.verdicts)-1]
			denied(t, r, last.Reasons[0].Code)
			if connections.Load() != 0 {
				t.Errorf("the redirect was dialled")
			}
		})
	}
}

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		"ftp://127.0.0.1/":        "failed redirect_refused",
		"file:///etc/passwd":      "failed redirect_refused",
		"http://u:p@127.0.0.1/":   "failed redirect_refused",
		"/again":                  "failed too_many_redirects",
		"http://2130706433/":      "failed redirect_refused",
		"http://127.0.0.1:99999/": "failed protocol_error",
	} {
		s := httpServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, location, http.StatusFound) })
		r := httpProbe(t, s, "{"+quick+`"follow_redirects":true,"expect":[{"name":"e","status":200}]}`)
		if got := r.result("e"); got != want {
			t.Errorf("%s: %s, want %s", location, got, want)
		}
	}
}

func TestHeadersGoToTheTargetOnly(t *testing.T) {
	t.Parallel()
	var leaked atomic.Value
	other := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("X-Probe") + r.Header.Get("Referer"))
	})
	s := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Probe") != "1" || r.Host != "api.example.test" || r.Method != http.MethodHead || r.URL.String() != "/h?x=%20" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		http.Redirect(w, r, other.URL, http.StatusFound)
	})
	r := httpProbe(t, s, "{"+quick+`"method":"HEAD","path":"/h?x=%20","headers":{"X-Probe":"1","Host":"api.example.test"},"follow_redirects":true,"expect":[{"name":"e","status":200}]}`)
	if r.result("e") != "passed" || leaked.Load() != "" {
		t.Errorf("evidence %s, leaked %v", r.result("e"), leaked.Load())
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	_, connections := counted(t)
	proxy, _ := counted(t)
	t.Setenv("HTTP_PROXY", fmt.Sprintf("http://127.0.0.1:%d", proxy))
	t.Setenv("http_proxy", fmt.Sprintf("http://127.0.0.1:%d", proxy))
	t.Setenv("ALL_PROXY", fmt.Sprintf("http://127.0.0.1:%d", proxy))
	s := httpServer(t, func(http.ResponseWriter, *http.Request) {})
	port := portOf(t, s.URL)
	// The standard client never uses a proxy for an address of this machine,
	// so the target is a name.
	req := request(t, "verify.http.endpoint", port, "{"+quick+`"expect":[{"name":"e","status":200}]}`)
	req.Resources[0].Address = "api.example.test"
	req.Resolver = &names{answers: map[string][][]string{"api.example.test": {{"127.0.0.1"}}}}
	req.Policy = overlay(t, "targets:\n- id: t\n  actions: ['*']\n  environments: ['*']\n  hosts: [api.example.test]\n  cidrs: [127.0.0.0/8]\n  ports: ['1-65535']\n")
	if r := probe(t, req); r.result("e") != "passed" || connections.Load() != 0 {
		t.Errorf("evidence %s with %d connections to the proxy", r.result("e"), connections.Load())
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	ca, err := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ tls, want string }{
		"system roots":        {`{}`, "failed certificate_untrusted"},
		"its own root":        {`{"ca_pem":` + string(ca) + `}`, "passed"},
		"its own root, name":  {`{"ca_pem":` + string(ca) + `,"server_name":"example.com"}`, "passed"},
		"another server name": {`{"ca_pem":` + string(ca) + `,"server_name":"other.test"}`, "failed certificate_name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httpProbe(t, s, "{"+quick+`"scheme":"https","tls":`+tc.tls+`,"expect":[{"name":"e","status":200}]}`)
			if got := r.result("e"); got != tc.want || r.Status != StatusSucceeded {
				t.Errorf("evidence %s, outcome %+v; want %s", got, r.Outcome, tc.want)
			}
		})
	}
	plain := httpServer(t, func(http.ResponseWriter, *http.Request) {})
	if r := httpProbe(t, plain, "{"+quick+`"scheme":"https","expect":[{"name":"e","status":200}]}`); r.result("e") != "failed tls_error" {
		t.Errorf("TLS with a server that speaks none: %s", r.result("e"))
	}
	if r := probe(t, request(t, "verify.http.endpoint", serve(t, hang), "{"+silent+`"scheme":"https","expect":[{"name":"e","status":200}]}`)); r.result("e") != "inconclusive timeout" {
		t.Errorf("TLS with a silent server: %s", r.result("e"))
	}
	old := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	old.Config.ErrorLog = log.New(io.Discard, "", 0)
	old.StartTLS()
	t.Cleanup(old.Close)
	if r := httpProbe(t, old, "{"+quick+`"scheme":"https","expect":[{"name":"e","status":200}]}`); r.result("e") != "failed tls_error" {
		t.Errorf("TLS 1.1: %s", r.result("e"))
	}
}

func TestEqualJSONNumbers(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{
		{"1", "1.0"}: true, {"1e2", "100"}: true, {"0.1", "0.10"}: true, {"1", "2"}: false,
		{"9007199254740993", "9007199254740992"}: false, {"1e999999999", "1e999999999"}: true, {"1e999999999", "2"}: false, {"-0", "0"}: true,
	} {
		if got := equalNumbers(pair[0], pair[1]); got != want {
			t.Errorf("%v: %v", pair, got)
		}
	}
}
