package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

// cliRun runs one command line as main does.
func cliRun(t *testing.T, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

func TestResultCodes(t *testing.T) {
	confirmed := []domain.ContractItem{{Verdict: "confirmed"}}
	for name, c := range map[string]struct {
		r    domain.ExecutionResult
		want int
	}{
		"succeeded, nothing promised":     {domain.ExecutionResult{Status: domain.StatusSucceeded}, 0},
		"succeeded and confirmed":         {domain.ExecutionResult{Status: domain.StatusSucceeded, Contract: confirmed}, 0},
		"succeeded, a promise is missing": {domain.ExecutionResult{Status: domain.StatusSucceeded, Contract: []domain.ContractItem{{Verdict: "confirmed"}, {Verdict: "missing"}}}, 7},
		"the tool failed":                 {domain.ExecutionResult{Status: domain.StatusFailed, ExitSummary: domain.ExitSummary{Category: domain.CategoryUnknown}}, 1},
		"inputs rejected":                 {domain.ExecutionResult{Status: domain.StatusFailed, ExitSummary: domain.ExitSummary{Category: domain.CategoryValidation}}, 1},
		"policy":                          {domain.ExecutionResult{Status: domain.StatusFailed, ExitSummary: domain.ExitSummary{Category: domain.CategoryPolicy}}, 3},
		"lost lease":                      {domain.ExecutionResult{Status: domain.StatusFailed, ExitSummary: domain.ExitSummary{Category: domain.CategoryInfrastructure}}, 4},
		"timed out":                       {domain.ExecutionResult{Status: domain.StatusTimedOut}, 5},
		"cancelled":                       {domain.ExecutionResult{Status: domain.StatusCancelled}, 6},
	} {
		if got := resultCode(c.r); got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestRefusalsAndTheirCodes(t *testing.T) {
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"title": "no", "status": status, "detail": "because", "code": "some_code", "next": "do this"})
	}))
	defer srv.Close()
	for s, want := range map[int]int{400: 2, 401: 2, 403: 2, 404: 2, 409: 2, 422: 2, 429: 8, 503: 8} {
		status = s
		code, _, errOut := cliRun(t, "", "explain", "1b671a64-40d5-491e-99b0-da01ff1f3341", "--url", srv.URL)
		if code != want {
			t.Errorf("HTTP %d: exit code %d, want %d", s, code, want)
		}
		if !strings.Contains(errOut, "because") || !strings.Contains(errOut, "do this") {
			t.Errorf("HTTP %d: the error does not say what happened and what to do:\n%s", s, errOut)
		}
	}
}

func TestServiceThatIsNotThere(t *testing.T) {
	code, _, errOut := cliRun(t, "", "list", "--url", "http://127.0.0.1:1")
	if code != exitUnreachable {
		t.Errorf("exit code %d, want %d", code, exitUnreachable)
	}
	if !strings.Contains(errOut, "serve --dev") {
		t.Errorf("the error names no next step:\n%s", errOut)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"nothing-like-this"}, {"submit"}, {"get"}, {"list", "-o", "xml"}, {"submit", "-f", "/does/not/exist"},
		{"get", "xyz"}, {"cancel", "1b671a64"}, {"token", "create", "me", "--role", "king"}, {"shim", "extra"},
	} {
		if code, _, errOut := cliRun(t, "", args...); code != exitUsage || errOut == "" {
			t.Errorf("%v: exit code %d, want %d; it says %q", args, code, exitUsage, errOut)
		}
	}
	if code, out, _ := cliRun(t, "", "--help"); code != 0 || !strings.Contains(out, "submit") {
		t.Errorf("--help: exit code %d:\n%s", code, out)
	}
}

func TestJobFiles(t *testing.T) {
	const id = "1b671a64-40d5-491e-99b0-da01ff1f3341"
	for name, c := range map[string]struct{ in, want string }{
		"bare JSON stays byte for byte": {`{"attempt_id":"` + id + `",  "b":1, "b":2}`, `{"attempt_id":"` + id + `",  "b":1, "b":2}`},
		"wrapped JSON":                  {`{"job_spec":{"attempt_id":"` + id + `","x":1}}`, `{"attempt_id":"` + id + `","x":1}`},
		"YAML":                          {"attempt_id: " + id + "\nx: 1\n", `{"attempt_id": "` + id + `", "x": 1}`},
		"wrapped YAML":                  {"job_spec:\n  attempt_id: " + id + "\n  x: 1\n", `{"attempt_id": "` + id + `", "x": 1}`},
	} {
		got, err := bareJob([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if string(got) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
	for name, in := range map[string]string{"empty": " \n", "neither": "\t[}"} {
		if got, err := bareJob([]byte(in)); err == nil {
			t.Errorf("%s: accepted as %s", name, got)
		}
	}
}

func TestMissingAttemptIDIsMade(t *testing.T) {
	for _, in := range []string{`{"x":1}`, `{}`, "x: 1\n"} {
		got, err := bareJob([]byte(in))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		var doc map[string]any
		if err := json.Unmarshal(got, &doc); err != nil {
			t.Fatalf("%s gives %s: %v", in, got, err)
		}
		if _, err := domain.ParseID[domain.AttemptID](doc["attempt_id"].(string)); err != nil {
			t.Errorf("%s gives %s: %v", in, got, err)
		}
	}
}

func TestTerminalFilterKeepsColourOnly(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":             {"a\tb\nc", "a\tb\nc"},
		"colour":            {"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
		"clipboard write":   {"x\x1b]52;c;ZXZpbA==\x07y", "xy"},
		"title by ST":       {"x\x1b]0;evil\x1b\\y", "xy"},
		"erase the line":    {"hidden\x1b[1A\x1b[2Kshown", "hiddenshown"},
		"carriage return":   {"hidden\rshown", "hidden�shown"},
		"bell":              {"a\x07b", "a�b"},
		"query":             {"a\x1bP$qm\x1b\\b", "ab"},
		"not UTF-8 is kept": {"a\xffb", "a\xffb"},
	} {
		var whole, split colourOnly
		if got := string(whole.next(nil, []byte(c.in))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		var out []byte
		for i := range len(c.in) {
			out = split.next(out, []byte{c.in[i]})
		}
		if string(out) != c.want {
			t.Errorf("%s, byte by byte: %q, want %q", name, out, c.want)
		}
	}
}

func TestPrintableHidesNothingAndActsOnNothing(t *testing.T) {
	if got := printable("a\x1b[31mb\u202ec\x00d\xff"); strings.ContainsAny(got, "\x1b\u202e\x00") || !strings.Contains(got, "[31mb") {
		t.Errorf("printable gives %q", got)
	}
}

func TestTokenFileIsReadAndItsErrorNamed(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"items":[]}`))
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("ep_x_y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := cliRun(t, "", "runners", "--url", srv.URL, "--token-file", file); code != 0 || got != "Bearer ep_x_y" {
		t.Errorf("exit code %d, header %q: %s", code, got, errOut)
	}
	if code, _, errOut := cliRun(t, "", "runners", "--url", srv.URL, "--token-file", file+".not"); code != exitUsage || !strings.Contains(errOut, "token") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
