package artifacts_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// readTail reads at least n bytes, or to the log's end.
func readTail(t *testing.T, l *client.LogTail, n int) string {
	t.Helper()
	var got strings.Builder
	for got.Len() < n {
		data, err := l.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("follow: %v", err)
		}
		got.Write(data)
	}
	return got.String()
}

// One replica takes the log, another one serves those who follow it: they hear of
// each part at once, and the runner is told to send sooner, as long as somebody
// follows. Who comes back goes on at his offset, at any replica, before and after
// the seal.
func TestALogIsFollowedAcrossReplicas(t *testing.T) {
	d := deploy(t, steady())
	here, there := d.replica(), d.replica()
	h := d.hand(there.URL())
	id, lease := h.running()
	answer, err := h.send(lease, "stdout", 0, "alone\n")
	d.must(err)
	if answer.FlushSeconds != 0 || d.followed() != 0 {
		t.Errorf("nobody follows: flush %d, %d noted", answer.FlushSeconds, d.followed())
	}
	flush := func() int {
		r, err := h.client.Report(t.Context(), newKey(), h.id, wire.ReportRequest{Leases: []wire.LeaseReport{{LeaseID: lease.ID, Epoch: lease.Epoch, Token: lease.Token}}})
		d.must(err)
		return r.Leases[0].FlushSeconds
	}
	if f := flush(); f != 0 {
		t.Errorf("nobody follows: a report is answered %d", f)
	}

	whole := "alone\n"
	tail := here.operator.TailLog(t.Context(), id, "stdout", 0)
	defer tail.Close()
	if got := readTail(t, tail, 6); got != whole {
		t.Errorf("what was there: %q", got)
	}
	d.eventually("a report is answered with the followers' pace", func() bool { return flush() == 1 })
	var late time.Duration
	for i := range 8 {
		part := fmt.Sprintf("part %d\n", i)
		answer, err = h.send(lease, "stdout", int64(len(whole)), part)
		d.must(err)
		sent := time.Now()
		if got := readTail(t, tail, len(part)); got != part {
			t.Errorf("followed %q, sent %q", got, part)
		}
		late += time.Since(sent)
		whole += part
	}
	if answer.FlushSeconds != 1 {
		t.Errorf("a chunk is answered with flush %d", answer.FlushSeconds)
	}
	// Polling would take 2.5 s for each.
	if late > 8*time.Second {
		t.Errorf("8 parts came %s after they were stored, all together", late)
	}

	// The replica goes away; who followed there goes on elsewhere.
	half := tail.Offset() - 3
	tail.Close()
	here.stop()
	d.exec("UPDATE log_followers SET until = clock_timestamp()")
	d.eventually("nobody follows any more", func() bool { return flush() == 0 })
	again := there.operator.TailLog(t.Context(), id, "stdout", half)
	defer again.Close()
	if got := readTail(t, again, 3); got != whole[half:] {
		t.Errorf("from %d: %q, want %q", half, got, whole[half:])
	}
	_, err = h.send(lease, "stdout", int64(len(whole)), "the end\n")
	d.must(err)
	whole += "the end\n"
	d.must(h.complete(lease, map[string]string{"stdout": whole}))
	if got := readTail(t, again, 1<<20); got != "the end\n" {
		t.Errorf("across the seal: %q", got)
	}
	for _, from := range []int64{0, 6, half, int64(len(whole))} {
		after := there.operator.TailLog(t.Context(), id, "stdout", from)
		got := readTail(t, after, 1<<20)
		after.Close()
		if got != whole[from:] {
			t.Errorf("after the seal, from %d: %q", from, got)
		}
		part, err := there.operator.Log(t.Context(), id, "stdout", from, 0)
		if err != nil || string(part.Data) != whole[from:] || !part.Complete {
			t.Errorf("read from %d: %q, complete %t, %v", from, part.Data, part.Complete, err)
		}
	}
	if a, err := there.operator.Attempt(t.Context(), id); err != nil || a.State != string(domain.StatusSucceeded) {
		t.Errorf("%s, %v", a.State, err)
	}
}

// followed counts the logs that were ever said to be followed.
func (d *deployment) followed() (n int) {
	d.t.Helper()
	d.must(d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM log_followers").Scan(&n))
	return n
}

func (d *deployment) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.pool.Exec(d.t.Context(), sql, args...)
	d.must(err)
}
