package commands_test

import "testing"

// A replica that starts looks which bundle is the active one and then announces its
// own; an operator's order in between is not undone.
func TestAnnouncedPolicyAndAnOrderMeanwhile(t *testing.T) {
	b := newBench(t)
	first, own, ordered := sha("first"), sha("own"), sha("ordered")
	announce := func(digest, seen string) {
		t.Helper()
		if err := b.s.AnnouncePolicy(t.Context(), digest, seen); err != nil {
			t.Fatal(err)
		}
	}
	active := func(want string, byOperator bool) {
		t.Helper()
		if digest, ordered, err := b.s.ActivePolicy(t.Context()); err != nil || digest != want || ordered != byOperator {
			t.Errorf("active is %.8s, ordered %v (%v), want %.8s, %v", digest, ordered, err, want, byOperator)
		}
	}
	announce(first, "")
	active(first, false)
	if err := b.s.ReplacePolicy(t.Context(), meta("replace"), ordered, "an emergency"); err != nil {
		t.Fatal(err)
	}
	announce(own, first) // it looked before the order
	active(ordered, true)
	announce(own, ordered) // it knew of the order
	active(own, false)
}
