package domain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

// TestLargestStateFitsItsHead builds the largest state that accepted input can
// lead to: a head holds 4 KiB.
func TestLargestStateFitsItsHead(t *testing.T) {
	c := sampleCreated()
	c.PlanNodeID = strings.Repeat("<", 200) // six bytes each in JSON, three in a key
	c.Environment = strings.Repeat("e", 63)
	c.Action = "verify.x." + strings.Repeat("a", 91)
	c.StorageBase = "s3://" + strings.Repeat("b", 63) + "/"
	stream := append([]domain.Fact{at(0, c)}, stopping(domain.StopOperatorAbort)[1:]...)
	stream = append(stream, at(31, domain.Progressed{Epoch: 1}))
	cl := exitCode("stopped", 143, domain.CategoryInfrastructure)
	for _, s := range []string{"stdout", "stderr", "events"} {
		cl.Logs = append(cl.Logs, domain.ClaimedLog{Stream: s, Bytes: 1 << 40, SHA256: digestA})
		stream = append(stream, at(32, domain.LogStored{Epoch: 1, Stream: s, Bytes: 1 << 40}))
	}
	stream = completedWith(stream, cl)
	m, err := domain.EmptyManifest(attemptA, operationA, c.PlanNodeID, digestA, "")
	if err != nil {
		t.Fatal(err)
	}
	s := sealed()
	s.BundleID, s.URI = m.BundleID.String(), c.StorageBase+m.Prefix()+"manifests/"+digestB+".json"
	s.Objects, s.Bytes, s.Gaps = 1<<20, 1<<50, 1<<20
	s.Logs = []domain.SealedLog{{Stream: "stdout", SHA256: strings.Repeat("not kept", 1000)}}
	for name, stream := range map[string][]domain.Fact{"finalizing": stream, "closed": append(stream[:len(stream):len(stream)], at(60, s), at(60, domain.Failed{}))} {
		b, err := json.Marshal(fold(stream))
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 4096 {
			t.Errorf("%s has %d bytes:\n%s", name, len(b), b)
		}
	}
}

// TestStateDoesNotGrowWithTheStream: a command costs the same at any length.
func TestStateDoesNotGrowWithTheStream(t *testing.T) {
	size := func(n int) int {
		stream := running()
		for range n {
			stream = append(stream, at(21, domain.Heartbeat{Epoch: 1, LeaseUntil: sec(111)}), at(21, evidence("up", "passed")), artifactAt(21, "a"))
		}
		b, err := json.Marshal(fold(stream))
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	if small, large := size(100), size(900); large != small {
		t.Errorf("%d bytes after 100 rounds, %d after 900", small, large)
	}
}

// TestDueAt: the sweeper finds an attempt by this moment; a tick then has an effect.
func TestDueAt(t *testing.T) {
	for name, c := range map[string]struct {
		stream []domain.Fact
		due    int // -1: no timer but the lease
	}{
		"queued": {queued(), 3600}, "leased": {leased(), 25}, "running": {running(), 520}, "stopping": {stopping(domain.StopCancel), 70},
		"finalizing": {finalizing(), -1}, "salvaging": {salvaging(), 710}, "fenced": {fenced(), 670}, "closed": {closed(), -1}, "none": {nil, -1},
	} {
		a := fold(c.stream)
		if c.due < 0 {
			if !a.DueAt().IsZero() {
				t.Errorf("%s is due at %s", name, a.DueAt())
			}
			continue
		}
		if !a.DueAt().Equal(sec(c.due)) {
			t.Errorf("%s is due at %s, want %s", name, a.DueAt(), sec(c.due))
		}
		events, err := domain.DecideAttempt(a, domain.Tick{}, sec(c.due))
		if err != nil || len(events) == 0 && !a.Sealable(sec(c.due)) {
			t.Errorf("%s: nothing happens when it is due: %v", name, err)
		}
	}
}

func TestPublicState(t *testing.T) {
	got := []string{}
	for _, stream := range [][]domain.Fact{queued(), leased(), running(), finalizing(), closed()} {
		a := fold(stream)
		got = append(got, a.PublicState())
	}
	if d := cmp.Diff([]string{"queued", "leased", "running", "finalizing", "succeeded"}, got); d != "" {
		t.Error(d)
	}
}

// TestReapedCountsForItsEpochOnly: what was proved of an earlier holder's tree
// says nothing of the next one's.
func TestReapedCountsForItsEpochOnly(t *testing.T) {
	stream := append(queued(), at(5, domain.ProcessTreeReaped{Epoch: 1, Confirmed: true}), leasedAt(2, 10))
	if a := fold(stream); a.Reaped {
		t.Error("a new lease begins with nothing proved")
	}
}
