package shim

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

// said encodes one evidence of about size bytes.
func said(t *testing.T, name string, size int) []byte {
	t.Helper()
	line := fmt.Sprintf(`{"type":"evidence","name":%q,"evidence_type":"log_check","result":"passed","observed_at":"2026-01-01T00:00:00Z","detail":%q}`,
		name, strings.Repeat("x", size))
	if _, err := executor.DecodeMessage([]byte(line)); err != nil {
		t.Fatal(err)
	}
	return []byte(line)
}

// lostNothing fails the test where a message does not come back.
func lostNothing(t *testing.T) func(string) { return func(text string) { t.Error(text) } }

// drainNames takes all messages and gives their names in order.
func drainNames(q *queue) (names []string) {
	for m := range q.out {
		if m.Evidence != nil {
			names = append(names, m.Evidence.Name)
		} else {
			names = append(names, "progress "+m.Progress.Message)
		}
	}
	return names
}

// What is not taken waits on the disk, whatever it is, and comes in order.
func TestQueueHoldsLittleInMemory(t *testing.T) {
	dir := t.TempDir()
	q := newQueue(dir, lostNothing(t))
	defer q.drop()
	const n = 400
	for i := range n {
		q.add(said(t, fmt.Sprint(i), 1+i*37%16_000), false)
		q.mu.Lock()
		if q.bytes > queueMemory {
			t.Errorf("%d bytes in memory, the bound is %d", q.bytes, queueMemory)
		}
		q.mu.Unlock()
		if i%3 == 0 {
			<-q.out // a slow reader
		}
	}
	q.mu.Lock()
	filed := q.written - q.read
	q.mu.Unlock()
	if filed == 0 {
		t.Error("nothing waits on the disk")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("files with a name: %v, %v", left, err)
	}
	q.end()
	rest := drainNames(q)
	for i, name := range rest {
		if want := fmt.Sprint(n - len(rest) + i); name != want {
			t.Fatalf("message %s comes where %s should", name, want)
		}
	}
	if want := n - (n+2)/3; len(rest) != want {
		t.Errorf("%d messages, want %d", len(rest), want)
	}
	if info, err := q.file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("the file does not give its room back: %v", err)
	}
}

func TestQueueKeepsTheLatestProgress(t *testing.T) {
	q := newQueue(t.TempDir(), lostNothing(t))
	defer q.drop()
	progress := func(i int) []byte {
		line, err := json.Marshal(map[string]any{"type": "progress", "phase": "p", "message": fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	q.add(said(t, "first", 1), false) // on its way to a reader
	for i := range 100 {
		q.add(progress(i), true)
	}
	q.add(said(t, "second", 1), false)
	q.add(progress(100), true)
	q.end()
	if got, want := strings.Join(drainNames(q), ", "), "first, progress 99, second, progress 100"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// Without a disk what is said waits with who says it, and is not lost.
func TestQueueWithoutADisk(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(gone, lostNothing(t))
		const n = 50
		added := make(chan struct{})
		go func() {
			defer close(added)
			for i := range n {
				q.add(said(t, fmt.Sprint(i), 15_000), false)
			}
			q.end()
		}()
		synctest.Wait()
		select {
		case <-added:
			t.Error("more was taken than there is room for")
		default:
		}
		names := drainNames(q)
		<-added
		if len(names) != n || names[0] != "0" || names[n-1] != fmt.Sprint(n-1) {
			t.Errorf("%d messages: %v", len(names), names)
		}
		q.drop()

		q = newQueue(gone, lostNothing(t))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := range n {
				q.add(said(t, fmt.Sprint(i), 15_000), false)
			}
		}()
		synctest.Wait()
		q.drop()
		<-ended
	})
}

// A disk that fails is told of: what waited there is missing.
func TestQueueThatCannotReadBack(t *testing.T) {
	var told []string
	q := newQueue(t.TempDir(), func(text string) { told = append(told, text) })
	defer q.drop()
	for i := range 30 {
		q.add(said(t, fmt.Sprint(i), 15_000), false)
	}
	q.mu.Lock()
	err := q.file.Truncate(0)
	q.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	q.end()
	names := drainNames(q)
	if len(told) != 1 || !strings.Contains(told[0], "cannot be read back") || len(names) == 0 || len(names) == 30 {
		t.Errorf("told %q, %d messages", told, len(names))
	}
}
