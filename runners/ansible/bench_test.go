package ansible

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// manyTasks is a playbook of n tasks that only print.
func manyTasks(n int) string {
	tasks := make([]string, n)
	for i := range tasks {
		tasks[i] = fmt.Sprintf("name: task %d\ndebug: {msg: %d}", i, i)
	}
	return play("all", tasks...)
}

const tasksOfBench = 2000

// BenchmarkPlaybook runs a playbook of 2,000 tasks as an attempt and by
// ansible-playbook alone. Reported are events per second, and how much longer the
// attempt takes than the bare run.
func BenchmarkPlaybook(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		writeFiles(b, dir, map[string]string{"site.yml": manyTasks(tasksOfBench), "hosts": "h ansible_connection=local\n"})
		bare := exec.CommandContext(b.Context(), "ansible-playbook", "-i", dir+"/hosts", dir+"/site.yml")
		bare.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8"}
		begun := time.Now()
		if out, err := bare.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		alone := time.Since(begun)
		e := jobOf(b, "ansible.playbook.run", dir).local("h").run().is(executor.Succeeded, "success")
		events := strings.Count(e.raw(), "\n")
		b.ReportMetric(float64(events)/e.took.Seconds(), "events/s")
		b.ReportMetric(e.took.Seconds()/alone.Seconds(), "of-bare-run")
	}
}

// BenchmarkEventReader reads a stream that stands ready.
func BenchmarkEventReader(b *testing.B) {
	line := `,"time":"2026-01-02T03:04:05Z","event":"runner_on_ok","play":"p","task":"t","task_uuid":"u","host":"h","changed":true,"result":{"stdout":"` + strings.Repeat("x", 500) + `"}}` + "\n"
	var text strings.Builder
	const events = 10000
	for i := range events {
		fmt.Fprintf(&text, `{"seq":%d%s`, i+1, line)
	}
	for b.Loop() {
		t := newTally()
		r := &eventReader{keep: io.Discard, handle: t.handle}
		r.run(strings.NewReader(text.String()))
		if r.broken != nil || r.seq != events {
			b.Fatalf("%d events: %v", r.seq, r.broken)
		}
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}
