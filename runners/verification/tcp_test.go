package verification

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const tcpExpects = `"expect":[{"name":"open","connect":true,"capability":"tcp"},{"name":"banner","banner_matches":"^220 "}]`

func TestTCPAnswers(t *testing.T) {
	t.Parallel()
	say := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			if _, err := c.Write([]byte(text)); err == nil {
				hang(c)
			}
		}
	}
	tests := []struct {
		name          string
		handle        func(net.Conn) // nil: nobody listens
		open, banner  string
		status        Status
		failure, cat  string
		class, sawAny string
	}{
		{name: "refused", open: "failed connection_refused", banner: "failed connection_refused", status: StatusSucceeded, cat: CategoryInfrastructure, class: classRefused},
		{name: "accepts and closes", handle: func(net.Conn) {}, open: "passed", banner: "failed connection_closed", status: StatusSucceeded, cat: CategoryInfrastructure, class: classClosed},
		{name: "accepts and hangs", handle: hang, open: "passed", banner: "inconclusive timeout", status: StatusSucceeded, cat: CategoryInfrastructure, class: classTimeout},
		{name: "greets as expected", handle: say("220 ready\r\n250 more\r\n"), open: "passed", banner: "passed", status: StatusSucceeded, cat: CategorySuccess},
		{name: "greets otherwise", handle: say("554 t0psecret\r\n"), open: "passed", banner: "failed banner_mismatch", status: StatusSucceeded, cat: CategoryUnknown},
		{name: "greets without a line end", handle: func(c net.Conn) { _, _ = c.Write([]byte("220 ready")) }, open: "passed", banner: "passed", status: StatusSucceeded, cat: CategorySuccess},
		{name: "endless greeting", handle: say(strings.Repeat("t0psecret", 10_000)), open: "passed", banner: "failed banner_mismatch", status: StatusSucceeded, cat: CategoryUnknown},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			port := closedPort(t)
			if tc.handle != nil {
				port = serve(t, tc.handle)
			}
			pace := quick
			if tc.class == classTimeout {
				pace = silent
			}
			r := probe(t, request(t, "verify.tcp.connect", port, "{"+pace+tcpExpects+"}"))
			if r.result("open") != tc.open || r.result("banner") != tc.banner {
				t.Errorf("open %s, banner %s; want %s, %s", r.result("open"), r.result("banner"), tc.open, tc.banner)
			}
			if r.Status != tc.status || r.FailureCode != tc.failure || r.RecommendedCategory != tc.cat {
				t.Errorf("outcome %+v", r.Outcome)
			}
			e := r.evidence["open"]
			if e.Type != "api_check" || e.Capability != "tcp" || e.Source != SamplesName || e.ObservedAt.IsZero() {
				t.Errorf("evidence %+v", e)
			}
			for _, s := range r.samples {
				if s.ErrorClass != tc.class {
					t.Errorf("sample %+v, want class %q", s, tc.class)
				}
			}
			if all := r.raw + r.log.String(); strings.Contains(all, "t0psecret") {
				t.Errorf("what the peer sent stands in log or samples")
			}
			if len(r.verdicts) != 1 || !r.verdicts[0].Allow {
				t.Errorf("%d decisions on one allowed address: %+v", len(r.verdicts), r.verdicts)
			}
		})
	}
}

func TestNothingObservedIsTargetUnreachable(t *testing.T) {
	t.Parallel()
	port := serve(t, hang)
	r := probe(t, request(t, "verify.tcp.connect", port, "{"+silent+`"expect":[{"name":"banner","banner_matches":"x"}]}`))
	if r.Status != StatusFailed || r.FailureCode != FailureTargetUnreachable || r.RecommendedCategory != CategoryInfrastructure {
		t.Errorf("outcome %+v", r.Outcome)
	}
	if got := r.result("banner"); got != "inconclusive timeout" {
		t.Errorf("evidence is %s", got)
	}
}

func TestDNSFailureIsNoObservation(t *testing.T) {
	t.Parallel()
	req := request(t, "verify.tcp.connect", 80, "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
	req.Resources[0].Address = "localhost"
	req.Resolver = &names{}
	r := probe(t, req)
	if r.FailureCode != FailureTargetUnreachable || r.result("open") != "inconclusive dns_failure" {
		t.Errorf("outcome %+v, evidence %s", r.Outcome, r.result("open"))
	}
	if r.Samples < 2 {
		t.Errorf("%d samples: a name that fails once must be tried again", r.Samples)
	}
}

// An earlier observation counts even if the end could not be seen.
func TestLastObservationDecides(t *testing.T) {
	t.Parallel()
	req := request(t, "verify.tcp.connect", closedPort(t), "{"+quick+`"expect":[{"name":"open","connect":true}]}`)
	req.Resources[0].Address = "localhost"
	req.Resolver = &names{answers: map[string][][]string{"localhost": {{"127.0.0.1"}, {}}}}
	r := probe(t, req)
	if r.Status != StatusSucceeded || r.result("open") != "failed connection_refused" {
		t.Errorf("outcome %+v, evidence %s", r.Outcome, r.result("open"))
	}
	if last := r.samples[len(r.samples)-1]; last.ErrorClass != classDNS || last.Observed {
		t.Errorf("last sample %+v", last)
	}
}

func TestCancelStopsQuicklyAndKeepsSamples(t *testing.T) {
	t.Parallel()
	port := serve(t, hang)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := &memory{}
	m.onLog = func() {
		if len(m.progress) >= 2 {
			cancel()
		}
	}
	began := time.Now()
	r := probeContext(t, ctx, patient(t, "verify.tcp.connect", port,
		`{"interval_seconds":0.1,"timeout_seconds":0.1,"deadline_seconds":50,"expect":[{"name":"open","connect":true},{"name":"banner","banner_matches":"x"}],"stable_successes":2}`), m)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s", took)
	}
	if r.Status != StatusCancelled || len(r.samples) < 2 {
		t.Errorf("outcome %+v with %d samples", r.Outcome, len(r.samples))
	}
	if r.result("open") != "passed" || r.result("banner") != "inconclusive stopped" {
		t.Errorf("open %s, banner %s", r.result("open"), r.result("banner"))
	}
}

func TestInputsRejected(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Request){
		"parameters":       func(r *Request) { r.Parameters = []byte(`{"expect":[]}`) },
		"unknown action":   func(r *Request) { r.Action = "verify.nothing" },
		"extension action": func(r *Request) { r.Action = "verify.x.mine" },
		"no resource":      func(r *Request) { r.Resources = nil },
		"no address":       func(r *Request) { r.Resources[0].Address = "" },
	} {
		req := request(t, "verify.tcp.connect", 1, `{"expect":[{"name":"a","connect":true}]}`)
		change(&req)
		r := probe(t, req)
		if r.Status != StatusFailed || r.FailureCode != FailureInputsRejected || r.RecommendedCategory != CategoryValidation {
			t.Errorf("%s: outcome %+v", name, r.Outcome)
		}
		if len(r.verdicts) > 0 {
			t.Errorf("%s: something was dialled", name)
		}
	}
}

func TestSamplesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	req := request(t, "verify.tcp.connect", 1, `{"expect":[{"name":"a","connect":true}]}`)
	if err := os.WriteFile(filepath.Join(req.OutputDir, SamplesName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &memory{}
	if o := Probe(context.Background(), req, m); o.Status != StatusFailed || o.FailureCode != FailureExecutorCrashed {
		t.Errorf("outcome %+v", o)
	}
	if !strings.Contains(m.log.String(), "creating the samples file") {
		t.Errorf("log %q", m.log.String())
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	if class, seen := classify(nil); class != "" || !seen {
		t.Errorf("no error is %s, %v", class, seen)
	}
	if class, seen := classify(errors.New("anything else")); class != classNetwork || seen {
		t.Errorf("an unknown error is %s, %v: what is not understood is no observation", class, seen)
	}
}
