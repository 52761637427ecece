package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

// verbChatter is an executor whose every byte is known beforehand, so that a log
// can be compared with what was written and not with what was claimed.
const verbChatter = "chatter"

const (
	chatEvery = 20 * time.Millisecond
	chatFile  = "said.txt"
)

// chat is a job for the chatter that goes on for the given time.
func chat(t *testing.T, lasts time.Duration, change ...func(*domain.JobSpec)) *domain.JobSpec {
	t.Helper()
	s := probe("verify.tcp.connect", 1, fmt.Sprintf(`"deadline_seconds":%g,%s`, lasts.Seconds(), openTCP))
	s.Controls.TimeoutSeconds = 100
	for _, c := range change {
		c(s)
	}
	return s
}

// said is what a chat of that length writes to a stream.
func said(id domain.AttemptID, stream string, lasts time.Duration) string {
	var b strings.Builder
	for i := range int(lasts / chatEvery) {
		b.WriteString(sentence(id.String(), stream, i))
	}
	return b.String()
}

func sentence(attempt, stream string, i int) string {
	return fmt.Sprintf("%s %s %06d %s\n", attempt, stream, i, strings.Repeat("x", i%97))
}

// chatter says its sentences and stores them as an artifact too.
func chatter(ctx context.Context, task executor.Task, control *executor.Control) executor.Outcome {
	var p struct {
		Seconds float64 `json:"deadline_seconds"`
	}
	err := json.Unmarshal(task.Parameters, &p)
	if err == nil {
		err = chatting(ctx, task, time.Duration(p.Seconds*float64(time.Second)))
	}
	if err == nil {
		err = control.Artifact(executor.Artifact{Name: "said", ArtifactType: "transcript", Path: chatFile, MediaType: "text/plain"})
	}
	if err == nil {
		err = control.Evidence(executor.Evidence{Name: "port_open", EvidenceType: "log_check", Result: "passed", ObservedAt: time.Now().UTC(), Source: "stdout"})
	}
	if err != nil {
		return executor.Outcome{Result: executor.TaskFailed, Message: err.Error()}
	}
	return executor.Outcome{Result: executor.Succeeded}
}

func chatting(ctx context.Context, task executor.Task, lasts time.Duration) error {
	f, err := os.Create(filepath.Join(task.OutputDir, chatFile))
	if err != nil {
		return err
	}
	defer f.Close()
	kept := bufio.NewWriter(f)
	tick := time.NewTicker(chatEvery)
	defer tick.Stop()
	for i := range int(lasts / chatEvery) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for stream, w := range map[string]io.Writer{"stdout": io.MultiWriter(os.Stdout, kept), "stderr": os.Stderr} {
			if _, err := io.WriteString(w, sentence(task.AttemptID, stream, i)); err != nil {
				return err
			}
		}
	}
	return kept.Flush()
}

// wantSaid compares what is stored of a chat with what it wrote, byte for byte.
func wantSaid(w *world, c *client.Client, id domain.AttemptID, lasts time.Duration) {
	w.t.Helper()
	for _, stream := range []string{"stdout", "stderr"} {
		if got, want := w.readLog(c, id, stream), said(id, stream, lasts); got != want {
			w.t.Errorf("attempt %s wrote %d bytes to %s, stored are %d; they differ from byte %d on", id, len(want), stream, len(got), common(got, want))
		}
	}
}

// readLog reads a whole stream.
func (w *world) readLog(c *client.Client, id domain.AttemptID, stream string) string {
	w.t.Helper()
	var b strings.Builder
	for {
		part, err := c.Log(w.ctx, id, stream, int64(b.Len()), 0)
		if err != nil {
			w.t.Fatal(err)
		}
		b.Write(part.Data)
		if part.Complete || len(part.Data) == 0 {
			return b.String()
		}
	}
}

// common is the length of what both begin with.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
