package domain_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// The tests tell stories: given what happened, when somebody commands, then this
// follows. A moment is seconds after t0; every limit of the story's attempt is
// another number, so that no two timers are mistaken for each other.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)

func sec(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }

func ptr[T any](v T) *T { return &v }

var (
	attemptA   = domain.NewID[domain.AttemptID](uuid.MustParse("0a000000-0000-4000-8000-00000000000a"))
	operationA = domain.NewID[domain.OperationID](uuid.MustParse("0b000000-0000-4000-8000-00000000000b"))
	runnerA    = domain.NewID[domain.RunnerID](uuid.MustParse("0c000000-0000-4000-8000-00000000000c"))
	runnerB    = domain.NewID[domain.RunnerID](uuid.MustParse("0d000000-0000-4000-8000-00000000000d"))
	tokenA     = domain.NewID[domain.TokenID](uuid.MustParse("0e000000-0000-4000-8000-00000000000e"))
	evidenceA  = domain.NewID[domain.EvidenceID](uuid.MustParse("0f000000-0000-4000-8000-00000000000f"))

	digestA = strings.Repeat("a1", 32)
	digestB = strings.Repeat("b2", 32)
	secretA = strings.Repeat("c3", 32) // the lease token's digest
	secretB = strings.Repeat("d4", 32)
)

var clocksA = domain.Clocks{
	Profile: "default", QueueSeconds: 3600, OfferSeconds: 15, RunSeconds: 500, StopSeconds: 10,
	LeaseSeconds: 90, UploadSeconds: 700, SalvageSeconds: 600, ReofferSeconds: 5, MaxOffers: 5,
}

func created() domain.Created {
	return domain.Created{
		AttemptID: attemptA, OperationID: operationA, PlanNodeID: "probe", SpecDigest: digestA, SpecText: "text",
		JobType: "verification", Action: "verify.tcp.connect", Environment: "lab", Clocks: clocksA,
		StorageBase: "s3://bucket/",
	}
}

func allowed() domain.PolicyDecided {
	return domain.PolicyDecided{At: "submit", Verdict: "allow", BundleDigest: digestB, InputDigest: digestA}
}

func denied() domain.PolicyDecided {
	p := allowed()
	p.Verdict, p.Reasons = "deny", []string{"target_not_allowed"}
	return p
}

func leasedAt(epoch int64, n int) domain.Fact {
	return at(n, domain.Leased{
		Epoch: epoch, LeaseID: domain.LeaseIDOf(attemptA, epoch), RunnerID: runnerA, Pool: "lab", TokenSHA256: secretA,
		OfferUntil: sec(n + 15), PolicyDigest: digestB,
	})
}

func at(n int, e domain.Event) domain.Fact { return domain.Fact{Event: e, At: sec(n)} }

// The streams that stories begin with.
func queued() []domain.Fact { return []domain.Fact{at(0, created()), at(0, allowed())} }

func leased() []domain.Fact { return append(queued(), leasedAt(1, 10)) }

func running() []domain.Fact {
	return append(leased(), at(20, domain.Started{Epoch: 1, LeaseUntil: sec(110), Isolation: "process"}))
}

func stopping(r domain.StopReason) []domain.Fact {
	return append(running(), at(30, domain.StopRequested{Reason: r, Deadline: ptr(sec(70))}))
}

func claim(result string) domain.Claim {
	return domain.Claim{Result: result, Launched: true, Code: ptr(0), FinishedAt: sec(39)}
}

func completedWith(before []domain.Fact, c domain.Claim) []domain.Fact {
	return append(before, at(40, domain.Completed{Epoch: 1, Claim: c, UploadUntil: sec(740)}))
}

func finalizing() []domain.Fact {
	c := claim("succeeded")
	c.Logs, c.Artifacts = []domain.ClaimedLog{{Stream: "stdout", Bytes: 100, SHA256: digestA}}, 1
	return completedWith(running(), c)
}

func uploaded() []domain.Fact {
	return append(finalizing(), logAt(50, 0, 100), artifactAt(51, "report"))
}

func salvaging() []domain.Fact {
	return append(running(), at(110, domain.LeaseExpired{Epoch: 1, Started: true, Cause: "lease_timeout"}))
}

func fenced() []domain.Fact {
	return append(stopping(domain.StopCancel), at(70, domain.LeaseExpired{Epoch: 1, Started: true, Cause: "stop_deadline"}))
}

func logAt(n int, offset, bytes int64) domain.Fact {
	return at(n, domain.LogStored{Epoch: 1, Stream: "stdout", Offset: offset, Bytes: bytes, Key: "k", SHA256: digestA, ObjectBytes: bytes + 20})
}

func artifactAt(n int, name string) domain.Fact {
	return at(n, domain.ArtifactCreated{Epoch: 1, ID: domain.ArtifactIDOf(attemptA, name), Name: name, Type: "report", Storage: "s3", URI: "s3://bucket/" + name, Sensitivity: "internal", Bytes: 3, SHA256: digestA})
}

func sealed() domain.Sealed {
	return domain.Sealed{State: "complete", URI: "s3://bucket/m", ManifestSHA256: digestB, Objects: 2, Bytes: 123}
}

// sealOf is the seal that fits: complete where everything declared is stored.
func sealOf(a domain.Attempt) domain.Seal {
	s := sealed()
	if !a.Uploaded() {
		s.State, s.Gaps = "incomplete", 1
	}
	seal := domain.Seal{Sealed: s}
	if a.NeedsScan() {
		seal.Scan = &domain.ScanVerdict{Scan: sampleScan()}
	}
	return seal
}

func closed() []domain.Fact {
	stream := uploaded()
	out, err := domain.DecideAttempt(fold(stream), domain.Seal{Sealed: sealed()}, sec(60))
	if err != nil {
		panic(err) // a broken story, not a broken attempt
	}
	return append(stream, facts(60, out)...)
}

func facts(n int, events []domain.Event) []domain.Fact {
	var out []domain.Fact
	for _, e := range events {
		out = append(out, at(n, e))
	}
	return out
}

func fold(stream []domain.Fact) domain.Attempt {
	var a domain.Attempt
	for _, f := range stream {
		next, err := domain.EvolveAttempt(a, f.Event, f.At)
		if err != nil {
			panic(err)
		}
		a = next
	}
	return a
}

var fenceA = domain.Fence{RunnerID: runnerA, Epoch: 1, TokenSHA256: secretA}

// story is one Given/When/Then.
type story struct {
	t      *testing.T
	stream []domain.Fact
	now    int
	events []domain.Event
	err    error
}

func given(t *testing.T, stream []domain.Fact) *story {
	t.Helper()
	return &story{t: t, stream: stream}
}

// when issues a command n seconds after t0.
func (s *story) when(n int, c domain.Command) *story {
	s.t.Helper()
	s.now = n
	s.events, s.err = domain.DecideAttempt(fold(s.stream), c, sec(n))
	return s
}

// then expects exactly these events and returns the state after them.
func (s *story) then(want ...domain.Event) domain.Attempt {
	s.t.Helper()
	if s.err != nil {
		s.t.Fatalf("refused: %v", s.err)
	}
	if len(want) == 0 && len(s.events) == 0 {
		return fold(s.stream)
	}
	if d := diff(want, s.events); d != "" {
		s.t.Fatalf("events differ (-want +got):\n%s", d)
	}
	return fold(s.after())
}

// thenEnds expects the attempt to be closed with this status and code, and gives
// its result and the names of the events.
func (s *story) thenEnds(status domain.Status, code domain.FailureCode) (domain.ExecutionResult, []string) {
	s.t.Helper()
	if s.err != nil {
		s.t.Fatalf("refused: %v", s.err)
	}
	r, err := domain.ResultOf(s.after())
	if err != nil {
		s.t.Fatalf("no result: %v", err)
	}
	if r.Status != status || r.FailureCode != code {
		s.t.Fatalf("ended %s/%s, want %s/%s", r.Status, r.FailureCode, status, code)
	}
	var names []string
	for _, e := range s.events {
		names = append(names, strings.TrimPrefix(e.EventType(), "execution.attempt."))
	}
	return r, names
}

func (s *story) after() []domain.Fact {
	return append(append([]domain.Fact(nil), s.stream...), facts(s.now, s.events)...)
}

func (s *story) thenError(code string) *domain.Error {
	s.t.Helper()
	var e *domain.Error
	if !errors.As(s.err, &e) {
		s.t.Fatalf("got events %v and error %v, want the error %s", s.events, s.err, code)
	}
	if e.Code != code || len(s.events) != 0 {
		s.t.Fatalf("got %s (%v), want %s", e.Code, e, code)
	}
	return e
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
}
