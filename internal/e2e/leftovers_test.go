package e2e_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// After its lease a runner may add what was left of log and artifacts, marked as
// such. All else is refused, however often it asks, and told once for each kind.
func TestWritesAfterTheLease(t *testing.T) {
	t.Parallel()
	p := quick()
	p.Fence, p.Salvage = 8*time.Second, 20*time.Second // a busy machine needs seconds for what follows
	p.StopBudget = func(string) time.Duration { return time.Second }
	w := newWorld(t, setup{profile: p})
	s := w.startService()
	r := w.puppet(s.plane.URL(), 1)
	id := w.submit(s.control, tcp(openPort(t)))
	l, _ := r.take()
	if err := r.start(l); err != nil {
		t.Fatal(err)
	}
	frame := func(text string) []byte { return bundle.AppendFrame(nil, time.Now().UnixMicro(), []byte(text)) }
	if _, err := r.client.SendLog(w.ctx, newKey(), l, "stdout", 0, frame("before\n")); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("found ", 2000)
	artifact := wire.ArtifactRequest{Name: "report", Type: "report", Sensitivity: "internal", Bytes: int64(len(body)), SHA256: sha(body)}
	announced, err := r.client.Announce(w.ctx, newKey(), l, artifact)
	if err != nil || announced.Upload == nil {
		t.Fatalf("announced: %+v, %v", announced, err)
	}
	loss := w.lossOf(id)

	for range 3 {
		refused := map[string]error{}
		got, err := r.client.Report(w.ctx, newKey(), r.id, wire.ReportRequest{Leases: []wire.LeaseReport{{LeaseID: l.ID, Epoch: l.Epoch, Token: l.Token}}})
		if err != nil || len(got.Leases) != 1 || got.Leases[0].Status != "stale" {
			t.Errorf("a report after the lease: %+v, %v", got.Leases, err)
		}
		_, refused["start"] = r.client.Start(w.ctx, newKey(), l, wire.StartRequest{Isolation: "process"})
		_, refused["evidence"] = r.client.RecordEvidence(w.ctx, newKey(), l, wire.EvidenceRequest{Name: "port_open", Type: "api_check", Result: "passed", ObservedAt: time.Now().UTC()})
		_, refused["fact"] = r.client.RecordFact(w.ctx, newKey(), l, wire.FactRequest{ProcessTreeReaped: &wire.ReapedFact{Confirmed: true, Method: "subreaper"}})
		_, refused["complete"] = r.client.Complete(w.ctx, newKey(), l, wire.CompleteRequest{Result: "succeeded", Launched: true, FinishedAt: time.Now().UTC()})
		for what, err := range refused {
			if client.KindOf(err) != domain.KindConflict {
				t.Errorf("%s after the lease: %v", what, err)
			}
		}
	}
	if _, err := r.client.SendLog(w.ctx, newKey(), l, "stdout", int64(len("before\n")), frame("after\n")); err != nil {
		t.Errorf("leftover log: %v", err)
	}
	if err := r.client.PutObject(w.ctx, *announced.Upload, bytes.NewReader([]byte(body)), artifact.Bytes); err != nil {
		t.Fatal(err)
	}
	if again, err := r.client.Announce(w.ctx, newKey(), l, artifact); err != nil || !again.Stored {
		t.Errorf("an artifact announced before: %+v, %v", again, err)
	}
	res := w.result(s.control, id)
	if res.FailureCode != domain.CodeLeaseLost || len(res.Artifacts) != 1 || len(res.Evidence) != 0 {
		t.Errorf("result %+v", res)
	}
	wantLeftovers(w, id, loss)
	if got := w.readLog(s.control, id, "stdout"); got != "before\nafter\n" {
		t.Errorf("log %q", got)
	}
	told := r.refused()
	for i := range told {
		told[i], _, _ = strings.Cut(told[i], " ")
	}
	slices.Sort(told)
	if d := cmp.Diff([]string{"complete", "evidence", "fact", "report", "start"}, told); d != "" {
		t.Errorf("refused writes that are told (-want +got):\n%s", d)
	}
}
