package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/runners"
)

// Runners of one slot each work through a queue of commands on several hosts. Every
// attempt has a token of its own, fetches its key from Vault, logs in for itself and
// leaves its whole record. With -e2e.long there are 16 runners, 4 hosts and 320
// attempts, and the log says how many a second.
func TestRunnersShareCommands(t *testing.T) {
	t.Parallel()
	fleet, hosts, jobs := 4, 2, 8
	if *longRun {
		fleet, hosts, jobs = 16, 4, 320
	}
	m := newMachines(t, "testdata/lab", hosts, `
commands:
  - name: test/commands
    environments: [test]
    templates:
      - name: say
        argv: [echo, "{what}"]
        arguments:
          what: {type: string, pattern: "[a-z0-9 ]{1,60}", max_length: 60}
`)
	s := m.startService()
	for range fleet {
		m.startSlots(s.plane.URL(), runners.TypeSSH, 1)
	}
	ids := make([]domain.AttemptID, jobs)
	for i := range ids {
		ids[i] = m.submit(s.control, m.job("ssh", runners.SSHCommandRun, fmt.Sprintf(`"template":"say","arguments":{"what":"job %d"},"host_keys_ref":"machines"`, i), func(j *domain.JobSpec) {
			j.Target.Resources, j.Inputs.Secrets = j.Target.Resources[i%hosts:i%hosts+1], j.Inputs.Secrets[i%hosts:i%hosts+1]
		}))
	}
	var began, ended time.Time
	by := map[domain.RunnerID]int{}
	for i, id := range ids {
		r := m.result(s.control, id)
		if want := fmt.Sprintf("job %d\n", i); r.Status != domain.StatusSucceeded || m.readLog(s.control, id, "stdout") != want {
			t.Fatalf("job %d: %+v\n%s", i, r, m.readLog(s.control, id, "stdout"))
		}
		if began.IsZero() || r.StartedAt.Before(began) {
			began = *r.StartedAt
		}
		if r.FinishedAt.After(ended) {
			ended = r.FinishedAt
		}
		v, err := s.control.Attempt(m.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		by[*v.RunnerID]++
	}
	if len(by) < fleet/2 {
		t.Errorf("%d attempts went to %d of %d runners", jobs, len(by), fleet)
	}
	t.Logf("%d attempts by %d runners in %s: %.1f a second", jobs, len(by), ended.Sub(began).Round(time.Millisecond), float64(jobs)/ended.Sub(began).Seconds())
}
