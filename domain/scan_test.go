package domain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

func passed() *domain.ScanVerdict {
	return &domain.ScanVerdict{Scan: domain.Scan{Scanner: "fingerprint/1", Prints: 3, Certain: 8}}
}

// secretive is a finalizing attempt that had a secret, and whose bytes are there.
func secretive() []domain.Fact {
	stream := uploaded()
	resolved := at(25, domain.SecretResolved{Epoch: 1, Name: "db", Reference: "vault://kv/db#password", Engine: "kv2", Mapping: "secret_mappings/db", Accessor: "a"})
	return slices.Insert(stream, 4, resolved)
}

func types(events []domain.Fact) string {
	var out []string
	for _, f := range events {
		out = append(out, strings.TrimPrefix(f.Event.EventType(), "execution.attempt."))
	}
	return strings.Join(out, " ")
}

func TestABundleWithSecretsIsSealedWithAVerdict(t *testing.T) {
	given(t, secretive()).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")
	for _, c := range []struct {
		name    string
		stream  []domain.Fact
		command domain.Command
		want    string
		state   string
		verdict domain.Event
	}{
		{"passed", secretive(), domain.Seal{Sealed: sealed(), Scan: passed()}, "sealed scan_passed succeeded", "complete", domain.ScanPassed{Scan: passed().Scan}},
		{"failed", secretive(), domain.Seal{Sealed: sealed(), Scan: &domain.ScanVerdict{Reason: domain.ScanSecretFound, Hits: 2, Found: []string{"stdout"}}},
			"sealed scan_failed succeeded", "quarantined", domain.ScanFailed{Reason: domain.ScanSecretFound, Hits: 2, Found: []string{"stdout"}}},
		{"by an operator", secretive(), domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: unverified()},
			"seal_forced sealed scan_failed succeeded", "quarantined", domain.ScanFailed{Reason: domain.ScanNotDone}},
		{"without secrets", uploaded(), domain.Seal{Sealed: sealed()}, "sealed succeeded", "complete", nil},
		{"by an operator, without secrets", uploaded(), domain.SealIncomplete{ReasonText: domain.TextRef(digestA), Manifest: unverified()}, "seal_forced sealed succeeded", "incomplete", nil},
	} {
		s := given(t, c.stream).when(60, c.command)
		if s.err != nil {
			t.Errorf("%s: %v", c.name, s.err)
			continue
		}
		all := s.after()
		followed := all[len(c.stream):]
		if got := types(followed); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if c.verdict != nil {
			if d := cmp.Diff(c.verdict, followed[len(followed)-2].Event); d != "" {
				t.Errorf("%s: %s", c.name, d)
			}
		}
		r, err := domain.ResultOf(all)
		end := followed[len(followed)-1].Event.(domain.Succeeded)
		if err != nil || r.RawOutputBundle.State != c.state || fold(all).Bundle != c.state || end.BundleState != c.state || r.Status != domain.StatusSucceeded {
			t.Errorf("%s: result %s, state %s, end %s, want %s, %v", c.name, r.RawOutputBundle.State, fold(all).Bundle, end.BundleState, c.state, err)
		}
		given(t, all).when(61, domain.Seal{Sealed: sealed(), Scan: passed()}).thenError("attempt_closed")
	}
}

// A secret artifact alone is reason enough.
func TestASecretArtifactNeedsAScan(t *testing.T) {
	stream := uploaded()
	last := stream[len(stream)-1].Event.(domain.ArtifactCreated)
	last.Sensitivity = domain.SensitivitySecret
	stream[len(stream)-1].Event = last
	given(t, stream).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")
	if a := fold(uploaded()); a.NeedsScan() {
		t.Error("an attempt without secrets needs a scan")
	}
}

// A runner that started the executor of a job with secrets and never said that it
// read one is not believed: the scan is asked for all the same.
func TestAJobWithSecretsIsScannedWhateverItsRunnerSays(t *testing.T) {
	asked := func(stream []domain.Fact) []domain.Fact {
		c := stream[0].Event.(domain.Created)
		c.Secrets = []domain.SecretInput{{Name: "db", SecretRef: "vault://kv/db#password"}}
		stream[0].Event = c
		return stream
	}
	given(t, asked(uploaded())).when(60, domain.Seal{Sealed: sealed()}).thenError("illegal_transition")
	for name, c := range map[string]struct {
		stream []domain.Fact
		want   bool
	}{
		"the executor ran":             {asked(uploaded()), true},
		"it ran without secrets":       {uploaded(), false},
		"it may run yet":               {asked(running()), false},
		"it was never launched":        {asked(completedWith(running(), domain.Claim{Result: "vault_unavailable"})), false},
		"its runner was lost silently": {asked(salvaging()), false},
		"its log came":                 {append(asked(running()), at(22, domain.LogStored{Epoch: 1, Stream: "stdout", Bytes: 5})), true},
	} {
		if a := fold(c.stream); a.NeedsScan() != c.want {
			t.Errorf("%s: %t", name, a.NeedsScan())
		}
	}
}

func TestWhoMayAskForFingerprints(t *testing.T) {
	holder := domain.Fence{RunnerID: runnerA, Epoch: 1, TokenSHA256: secretA}
	other := holder
	other.TokenSHA256 = secretB
	old := holder
	old.Epoch = 0
	for _, c := range []struct {
		name   string
		stream []domain.Fact
		fence  domain.Fence
		now    int
		want   string
	}{
		{"running", running(), holder, 30, "-"},
		{"under the upload lease", finalizing(), holder, 60, "-"},
		{"before start", leased(), holder, 12, "illegal_transition"},
		{"in the salvage window", salvaging(), holder, 120, "lease_lost"},
		{"after the lease", running(), holder, 200, "lease_lost"},
		{"another token", running(), other, 30, "not_lease_holder"},
		{"an old epoch", running(), old, 30, "stale_epoch"},
		{"ended", given(t, uploaded()).when(60, domain.Seal{Sealed: sealed()}).after(), holder, 61, "attempt_closed"},
	} {
		err := domain.CheckFingerprints(fold(c.stream), c.fence, sec(c.now))
		if got := codeOf(err); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWhenTextsAreClean(t *testing.T) {
	read := domain.Scan{Scanner: "fingerprint/1"}
	skipped := read
	skipped.Skipped = []string{"texts", "what follows it"}
	for name, c := range map[string]struct {
		f    domain.ScanFailed
		want bool
	}{
		"found elsewhere":    {domain.ScanFailed{Reason: domain.ScanSecretFound, Found: []string{"stdout"}, Scan: read}, true},
		"found there":        {domain.ScanFailed{Reason: domain.ScanSecretFound, Found: []string{"texts"}, Scan: read}, false},
		"no time for them":   {domain.ScanFailed{Reason: domain.ScanTimeExceeded, Scan: skipped}, false},
		"nobody could look":  {domain.ScanFailed{Reason: domain.ScanFingerprintsLost}, false},
		"an object was gone": {domain.ScanFailed{Reason: domain.ScanUnreadable, Scan: read}, true},
	} {
		if got := c.f.TextsAreClean(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Every text of an event is met, however deep, and nothing else.
func TestEachText(t *testing.T) {
	var got []domain.TextRef
	each := func(r domain.TextRef) { got = append(got, r) }
	domain.EachText(created(), each)
	domain.EachText(domain.EvidenceRecorded{Name: "no text", Detail: "detail"}, each)
	domain.EachText(domain.StopRequested{}, each)
	domain.EachText(&domain.SealForced{ReasonText: "why"}, each)
	if d := cmp.Diff([]domain.TextRef{"text", "detail", "why"}, got); d != "" {
		t.Error(d)
	}
}
