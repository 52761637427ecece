package artifacts_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
)

// ready is an attempt that waits only for being sealed.
func (b *bench) ready() domain.AttemptID {
	b.t.Helper()
	id, call := b.started()
	b.complete(call, 0, nil)
	return id
}

// One bundle that takes for ever holds up one slot, and neither the others nor the
// empty bundles.
func TestALongSealHoldsUpNobody(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	slow := b.ready()
	let := make(chan struct{})
	began := make(chan struct{})
	var once sync.Once
	b.storage.set(nil, func(key string) {
		if strings.Contains(key, slow.String()) {
			once.Do(func() { close(began) })
			<-let
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.sealer.Run(ctx) }()
	<-began
	others := []domain.AttemptID{b.ready(), b.ready(), b.ready(), b.ready(), b.ready()}
	denied := b.submit("10.0.0.1") // ends at once, with an empty bundle
	b.feed()
	done := func() bool {
		return !slices.ContainsFunc(others, func(id domain.AttemptID) bool { return b.state(id).Phase != domain.PhaseClosed }) &&
			slices.ContainsFunc(b.storage.taken(), func(key string) bool { return strings.Contains(key, denied.String()) })
	}
	for deadline := time.Now().Add(30 * time.Second); !done(); b.passed(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("others wait for the one that takes long")
			break
		}
	}
	if p := b.state(slow).Phase; p != domain.PhaseFinalizing {
		t.Errorf("the slow one is %s", p)
	}
	close(let)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the sealer ended with: %v", err)
	}
}

func (s *storage) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.puts)
}

// passed waits until the database's clock has gone on by d.
func (b *bench) passed(d time.Duration) {
	b.t.Helper()
	b.exec("SELECT pg_sleep($1)", d.Seconds())
}
