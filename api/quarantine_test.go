package api_test

import (
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/domain"
)

// What a scan did not clear is shown to nobody, and the attempt itself to all.
func TestAQuarantinedBundle(t *testing.T) {
	const message, detail, inline = "what the tool said", "seen with my own eyes", `{"a":1}`
	read := domain.Scan{Scanner: "fingerprint/1", Texts: 1}
	for name, c := range map[string]struct {
		bundle  string
		scan    domain.Event
		message bool
		detail  bool
	}{
		"passed":                {"complete", domain.ScanPassed{Scan: read}, true, true},
		"found in the texts":    {domain.BundleQuarantined, domain.ScanFailed{Reason: domain.ScanSecretFound, Found: []string{"stdout", "texts"}, Scan: read}, false, false},
		"found elsewhere":       {domain.BundleQuarantined, domain.ScanFailed{Reason: domain.ScanSecretFound, Found: []string{"stdout"}, Scan: read}, false, true},
		"nobody could look":     {domain.BundleQuarantined, domain.ScanFailed{Reason: domain.ScanFingerprintsLost}, false, false},
		"no time for the texts": {domain.BundleQuarantined, domain.ScanFailed{Reason: domain.ScanTimeExceeded, Scan: domain.Scan{Scanner: "fingerprint/1", Skipped: []string{"texts"}}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.bundle = c.bundle
			w.happen(c.scan)
			w.end()
			srv := w.serve(t, nil)
			path := "/v1/attempts/" + attemptID.String()
			token := w.token(domain.RoleOperator, nil)
			shows := func(path, what string, want bool) {
				t.Helper()
				resp, body := ask(t, srv, "GET", path, token, "")
				if resp.StatusCode != 200 || strings.Contains(body, what) != want {
					t.Errorf("%s: status %d, shows %q: want %t: %s", path, resp.StatusCode, what, want, body)
				}
			}
			shows(path, message, c.message)
			shows(path, `"bundle_state":"`+c.bundle+`"`, true)
			shows(path+"/evidence", detail, c.detail)
			shows(path+"/evidence", `"name":"up"`, true)
			shows(path+"/artifacts", inline, c.message)
			shows(path+"/events", "scan_", true)
			shows(path+"/result", "succeeded", true)
		})
	}
}

// Its log and manifest are refused to whoever may read others, and the refusal says
// what to do.
func TestAQuarantinedBundleIsRefused(t *testing.T) {
	for _, r := range api.Routes() {
		if r.Path != "/v1/attempts/{id}/log" && r.Path != "/v1/attempts/{id}/bundle" {
			continue
		}
		for _, role := range r.Roles {
			w := newWorld()
			w.setErr(artifacts.ErrQuarantined)
			q := sampleOf(t, r)
			resp, body := ask(t, w.serve(t, nil), q.method, q.path, w.token(role, nil), "")
			if p := problemIn(t, resp, body); resp.StatusCode != 403 || p.Code != "bundle_quarantined" || p.Next == "" {
				t.Errorf("%s as %s: status %d, %+v", r.Path, role, resp.StatusCode, p)
			}
		}
	}
}

func TestFingerprintsThatAreNone(t *testing.T) {
	w := newWorld()
	srv := w.serve(t, nil)
	token := w.token(domain.RoleRunner, nil)
	var route api.Route
	for _, r := range api.Routes() {
		if r.Method == "POST" && strings.HasSuffix(r.Path, "/fingerprints") {
			route = r
		}
	}
	for _, c := range []struct {
		query, body string
		status      int
		code        string
	}{
		{"?certain=8", "1234567", 422, "fingerprints_cut"},
		{"?certain=8", strings.Repeat("x", 4<<20+1), 400, "too_large"},
		{"?certain=0", "12345678", 400, "query_value"},
		{"", "12345678", 400, "query_required"},
	} {
		q := sampleOf(t, route)
		path, _, _ := strings.Cut(q.path, "?")
		resp, body := ask(t, srv, q.method, path+c.query, token, c.body, q.header...)
		if p := problemIn(t, resp, body); resp.StatusCode != c.status || p.Code != c.code {
			t.Errorf("%q with %d bytes: status %d, %s", c.query, len(c.body), resp.StatusCode, p.Code)
		}
	}
	for _, body := range []string{"", "\x00\x00\x00\x00\x00\x00\x01\x02"} {
		q := sampleOf(t, route)
		resp, answer := ask(t, srv, q.method, q.path, token, body, q.header...)
		if resp.StatusCode != 200 {
			t.Errorf("%d bytes: status %d: %s", len(body), resp.StatusCode, answer)
		}
	}
	if got := w.texts[len(w.texts)-1]; got != "[102] at 8" {
		t.Errorf("read as %s", got)
	}
}
