package projections_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// What operators did comes the newest first, in pages and in a span of time.
func TestPrivilegedFacts(t *testing.T) {
	b := newBench(t)
	b.populate(20)
	read := func(f projections.PrivilegedFilter) (positions []int64) {
		t.Helper()
		events, err := projections.NewReader(b.pool).PrivilegedFacts(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Actor.Role != domain.RoleOperator && e.Type != (domain.PrivilegesGranted{}).EventType() {
				t.Errorf("%s by %s", e.Type, e.Actor.Role)
			}
			positions = append(positions, e.Position)
		}
		return positions
	}
	all := read(projections.PrivilegedFilter{Limit: 1000})
	if len(all) < 3 || all[0] < all[1] {
		t.Fatalf("positions %v", all)
	}
	if got := read(projections.PrivilegedFilter{Limit: 1, Before: all[0]}); len(got) != 1 || got[0] != all[1] {
		t.Errorf("the next is at %v, want %d", got, all[1])
	}
	now, err := projections.NewReader(b.pool).Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := read(projections.PrivilegedFilter{Limit: 1000, Since: now}); len(got) != 0 {
		t.Errorf("after all of them: %v", got)
	}
	if got := read(projections.PrivilegedFilter{Limit: 1000, Until: now}); len(got) != len(all) {
		t.Errorf("%d of %d are before now", len(got), len(all))
	}
}
