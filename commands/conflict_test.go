package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Progress and cancel at the same moment, from two replicas: both take effect,
// each decided on the state as it then is.
func TestProgressAndCancelAtOnce(t *testing.T) {
	const pairs = 200
	b := newBench(t)
	other := commands.New(b.s.Config) // a second replica: no queue in memory joins the two
	runner := b.enrolled()
	type running struct {
		id   domain.AttemptID
		call commands.LeaseCall
	}
	attempts := make([]running, pairs)
	for i := range attempts {
		attempts[i].id, attempts[i].call = b.started(runner)
	}
	errs := make([]error, 2*pairs)
	var ready, wg sync.WaitGroup
	fire := make(chan struct{})
	for i, a := range attempts {
		ready.Add(2)
		wg.Go(func() {
			ready.Done()
			<-fire
			r := b.s.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: a.call, Progress: &commands.Progress{Phase: "p", Done: 1, Total: 2}}})
			errs[2*i] = r[0].Err
		})
		wg.Go(func() {
			ready.Done()
			<-fire
			_, errs[2*i+1] = other.Stop(t.Context(), meta("cancel"), a.id, domain.StopCancel, "enough")
		})
	}
	ready.Wait()
	close(fire)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, a := range attempts {
		got := b.types(commands.AttemptStream(a.id))
		for _, e := range []domain.Event{domain.Heartbeat{}, domain.Progressed{}, domain.StopRequested{}} {
			if n := count(got, e.EventType()); n != 1 {
				t.Errorf("%s: %d of %s", a.id, n, e.EventType())
			}
		}
	}
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// clashing lets another writer in before each append, a number of times.
type clashing struct {
	eventstore.Store
	times int
	meet  func()
}

func (c *clashing) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	if c.times > 0 {
		c.times--
		c.meet()
	}
	return c.Store.Append(ctx, a)
}

func TestAClashIsDecidedAgainABoundedNumberOfTimes(t *testing.T) {
	b := newBench(t)
	id, call := b.started(b.enrolled())
	other := commands.New(b.s.Config)
	meet := func() {
		for _, r := range other.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: call}}) {
			b.must(r.Err)
		}
	}
	b.s.Store = &clashing{b.store, 3, meet}
	if _, err := b.s.Stop(t.Context(), meta("cancel"), id, domain.StopCancel, "enough"); err != nil {
		t.Fatal(err)
	}
	if got := b.types(commands.AttemptStream(id)); got[len(got)-1] != (domain.StopRequested{}).EventType() {
		t.Errorf("events %v", got)
	}
	id, call = b.started(b.enrolled())
	b.s.Store = &clashing{b.store, 1000, meet}
	_, err := b.s.Stop(t.Context(), meta("cancel"), id, domain.StopCancel, "enough")
	if codeOf(err) != "contended" || domain.KindOf(err) != domain.KindUnavailable {
		t.Errorf("endless clashes: %v", err)
	}
	if got := b.types(commands.AttemptStream(id)); slices.Contains(got, domain.StopRequested{}.EventType()) {
		t.Errorf("events %v", got)
	}
}

func TestACommandIDIsForOneRequest(t *testing.T) {
	b := newBench(t)
	id, call := b.started(b.enrolled())
	m := meta("cancel one")
	if _, err := b.s.Stop(t.Context(), m, id, domain.StopCancel, "enough"); err != nil {
		t.Fatal(err)
	}
	before := b.all()
	other := m
	other.Digest = meta("cancel another").Digest
	_, err := b.s.Stop(t.Context(), other, id, domain.StopCancel, "another reason")
	if !errors.Is(err, domain.ErrCommandReused) || domain.KindOf(err) != domain.KindConflict {
		t.Errorf("another request: %v", err)
	}
	var e *domain.Error
	if errors.As(err, &e) && (e.Details["stored_sha256"] != fmt.Sprintf("%x", m.Digest) || e.Details["sent_sha256"] != fmt.Sprintf("%x", other.Digest)) {
		t.Errorf("details %v", e.Details)
	}
	// The same id on another stream is another request too.
	if err := b.s.RecordFact(t.Context(), other, call, domain.ProcessTreeReaped{}); !errors.Is(err, domain.ErrCommandReused) {
		t.Errorf("another command: %v", err)
	}
	if _, err := b.s.Stop(t.Context(), m, b.submitted(), domain.StopCancel, "enough"); !errors.Is(err, domain.ErrCommandReused) {
		t.Errorf("another attempt: %v", err)
	}
	if got := b.all() - before; got != 3 { // the two of the attempt just submitted, and the refused fact
		t.Errorf("%d events", got)
	}
}

func TestSubmitOfOneAttemptIDFromTwoReplicas(t *testing.T) {
	b := newBench(t)
	replicas := []*commands.Service{b.s, commands.New(b.s.Config)}
	spec, raw := newSpec()
	second := *spec
	second.PlanNodeID = "other"
	const each = 100
	type answer struct {
		commands.Submitted
		err error
	}
	answers := make([]answer, 2*each)
	var wg sync.WaitGroup
	fire := make(chan struct{})
	for i := range answers {
		wg.Go(func() {
			<-fire
			s, r := spec, raw
			if i%10 == 9 {
				s, r = &second, encode(&second)
			}
			answers[i].Submitted, answers[i].err = replicas[i%2].Submit(t.Context(), meta("submit"), s, r)
		})
	}
	close(fire)
	wg.Wait()
	firsts, refused := 0, 0
	var receipt eventstore.Receipt
	for _, a := range answers {
		switch {
		case a.err != nil:
			if !errors.Is(a.err, domain.ErrAttemptExists) {
				t.Fatal(a.err)
			}
			refused++
			continue
		case receipt.EventID == uuid.Nil:
			receipt = a.Receipt
		case a.Receipt != receipt:
			t.Errorf("receipts differ: %+v, %+v", a.Receipt, receipt)
		}
		if a.First {
			firsts++
		}
	}
	if firsts != 1 || refused != each/5 && refused != 2*each-each/5 || b.all() != 2 {
		t.Errorf("%d firsts, %d refused, %d events", firsts, refused, b.all())
	}
}

// Refused writes are facts of the runner's stream: one for each attempt, epoch and
// kind, however often they come.
func TestRefusedWritesAreKeptOnce(t *testing.T) {
	b := newBench(t)
	runner := b.enrolled()
	id, call := b.started(runner)
	b.pass(time.Hour) // the lease is over
	before := b.types(commands.AttemptStream(id))
	for range 50 {
		if err := b.s.RecordFact(t.Context(), meta("fact"), call, domain.ProcessTreeReaped{}); !errors.Is(err, domain.ErrLeaseLost) {
			t.Fatal(err)
		}
		if r := b.s.Report(t.Context(), meta("report"), []commands.LeaseReport{{LeaseCall: call}}); !errors.Is(r[0].Err, domain.ErrLeaseLost) {
			t.Fatal(r[0].Err)
		}
	}
	stranger := call
	stranger.Token = "guessed"
	for range 50 {
		if _, err := b.s.Start(t.Context(), meta("start"), stranger, "process"); !errors.Is(err, domain.ErrNotHolder) {
			t.Fatal(err)
		}
	}
	got := b.types(commands.RunnerStream(runner))
	if n := count(got, domain.RunnerWriteRefused{}.EventType()); n != 3 || len(got) != 4 {
		t.Errorf("the runner's stream: %v", got)
	}
	// The first that sees it says in the attempt's stream that the lease is lost,
	// and nothing of the refused writes stands there.
	if got := b.types(commands.AttemptStream(id))[len(before):]; !slices.Equal(got, []string{domain.LeaseExpired{}.EventType()}) {
		t.Errorf("the attempt's stream went on with %v", got)
	}
}

// A completion that comes too late is refused and kept as a fact, once.
func TestALateCompletionIsKept(t *testing.T) {
	b := newBench(t)
	id, call := b.started(b.enrolled())
	b.pass(domain.FastProfile().Lease("verification"))
	m := meta("complete")
	for range 2 {
		if _, err := b.s.Complete(t.Context(), m, call, claim(b.clock()), nil); !errors.Is(err, domain.ErrLeaseLost) {
			t.Fatal(err)
		}
	}
	got := b.types(commands.AttemptStream(id))
	if want := []string{domain.LeaseExpired{}.EventType(), domain.LateOutcomeReported{}.EventType()}; !slices.Equal(got[len(got)-2:], want) {
		t.Errorf("events %v", got)
	}
}
