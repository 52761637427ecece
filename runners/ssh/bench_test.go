package ssh

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

// Whole tasks, each with its own login: policy, command, result and evidence, with
// 16 at once on 4 hosts.
func BenchmarkCommands16(b *testing.B) {
	const workers, hosts = 16, 4
	var all []*sshtest.Host
	var lines []string
	for range hosts {
		h := sshtest.Start(b, sshtest.Options{})
		all, lines = append(all, h), append(lines, h.KnownHosts...)
	}
	rules := bundle(b, lines...)
	var tasks [workers]executor.Task
	for i := range tasks {
		tasks[i] = task(b, all[i%hosts], rules, runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": fmt.Sprint(i)}})
	}
	next := make(chan struct{})
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range workers {
		wg.Go(func() {
			for range next {
				if o := run(b.Context(), tasks[i], executor.NewControl(io.Discard), io.Discard, io.Discard); o.Result != executor.Succeeded {
					b.Errorf("%+v", o)
				}
			}
		})
	}
	for b.Loop() {
		next <- struct{}{}
	}
	close(next)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

// Commands over one login, 16 at once.
func BenchmarkRunsOverOneLogin16(b *testing.B) {
	h := sshtest.Start(b, sshtest.Options{})
	k := task(b, h, bundle(b, h.KnownHosts...), runners.SSHCommandRun, map[string]any{"template": "say", "arguments": map[string]any{"text": "x"}})
	j := &job{task: k, rec: &recorder{control: executor.NewControl(io.Discard), told: map[string]bool{}}, stdout: io.Discard, stderr: io.Discard}
	if _, err := j.prepare(actions[k.Action]); err != nil {
		b.Fatal(err)
	}
	client, err := sshaccess.Dial(b.Context(), j.target, j.guard)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	next := make(chan struct{})
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 16 {
		wg.Go(func() {
			for range next {
				if r, err := client.Run(b.Context(), []string{"true"}, "", sshaccess.Limits{}); err != nil || r.Exit != 0 {
					b.Errorf("%+v, %v", r, err)
				}
			}
		})
	}
	for b.Loop() {
		next <- struct{}{}
	}
	close(next)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}
