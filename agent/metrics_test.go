package agent

import (
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

var metricName = regexp.MustCompile(`eps_runner_[a-z_]+[a-z]`)

func (w *world) metrics() string {
	rec := httptest.NewRecorder()
	w.agent.MetricsHandler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

// The page of metrics says what is, and docs/runner-agent.md names all of it.
func TestMetrics(t *testing.T) {
	page, err := os.ReadFile("../docs/runner-agent.md")
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, drip, func(t *testing.T, w *world) {
		w.begin()
		j := w.plane.submit(nil)
		w.after(10 * time.Second)
		w.plane.breakBy(func(op string, _ int) (error, error) {
			if op == "log" {
				return errWire, nil
			}
			return nil, nil
		})
		w.after(2 * time.Second)
		running := w.metrics()
		for _, line := range []string{"eps_runner_slots 2", "eps_runner_attempts 1", "eps_runner_attempts_sending 0", "eps_runner_report_age_seconds 0", "eps_runner_lease_left_seconds 20"} {
			if !strings.Contains(running, "\n"+line+"\n") {
				t.Errorf("lacks %q in\n%s", line, running)
			}
		}
		w.plane.breakBy(nil)
		w.plane.stopJob(j, domain.StopCancel)
		w.completed(j)
		ended := w.metrics()
		for _, line := range []string{"eps_runner_attempts 0", "eps_runner_spool_bytes 0", `eps_runner_stops_total{proof="reaped",reason="cancel"} 1`} {
			if !strings.Contains(ended, "\n"+line+"\n") {
				t.Errorf("lacks %q in\n%s", line, ended)
			}
		}
		if !strings.Contains(running, "eps_runner_lease_left_seconds") || strings.Contains(ended, "eps_runner_lease_left_seconds") {
			t.Error("the time that a lease has left is told while one runs, and only then")
		}
		if diff := cmp.Diff(names(string(page)), names(running+ended)); diff != "" {
			t.Errorf("docs/runner-agent.md and the metrics differ: %s", diff)
		}
	})
}

func names(text string) []string {
	all := metricName.FindAllString(text, -1)
	slices.Sort(all)
	return slices.Compact(all)
}
