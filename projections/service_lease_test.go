package projections_test

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/projections"
)

// Who holds a row lease is told while it is held, and no longer.
func TestServiceLeaseIsTheHolders(t *testing.T) {
	b := newBench(t)
	r := projections.NewReader(b.pool)
	store := postgres.Open(b.pool, projections.Tables(), postgres.Options{})
	t.Cleanup(store.Close)
	held := func() (projections.ServiceLease, bool) {
		t.Helper()
		l, ok, err := r.ServiceLease(t.Context(), "forwarder")
		if err != nil {
			t.Fatal(err)
		}
		return l, ok
	}
	if l, ok := held(); ok {
		t.Errorf("before anybody took it: %+v", l)
	}
	term, ok, err := store.AcquireLease(t.Context(), "forwarder", "one", time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if l, ok := held(); !ok || l.Holder != "one" || l.Term != term || l.Until.IsZero() {
		t.Errorf("%+v %t", l, ok)
	}
	if err := store.ReleaseLease(t.Context(), "forwarder", "one", term); err != nil {
		t.Fatal(err)
	}
	if l, ok := held(); ok {
		t.Errorf("after its release: %+v", l)
	}
}
