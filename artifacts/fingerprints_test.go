package artifacts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// Prints beyond the limit are refused whole; the lease is asked as with every write.
func TestFingerprintsThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	id, call := b.started()
	b.fingerprinted(call, planted)
	var before int
	b.must(b.pool.QueryRow(t.Context(), "SELECT length(prints) / 8 FROM secret_fingerprints").Scan(&before))
	many := make([]uint64, projections.MaxFingerprints)
	for i := range many {
		many[i] = uint64(i) << 20
	}
	if _, err := b.s.AddFingerprints(t.Context(), call, many, 8); !errors.Is(err, projections.ErrTooManyFingerprints) {
		t.Errorf("too many: %v", err)
	}
	if n, err := b.s.AddFingerprints(t.Context(), call, many[:1000], 9); err != nil || n != before+1000 {
		t.Errorf("%d after a refusal of others, %v", n, err)
	}
	stranger := call
	stranger.Token = "another"
	stale := call
	stale.LeaseID = domain.NewID[domain.LeaseID](uuid.New())
	for code, c := range map[string]commands.LeaseCall{"not_lease_holder": stranger, "lease_unknown": stale} {
		if _, err := b.s.FingerprintKey(t.Context(), c); codeOf(err) != code {
			t.Errorf("key: %v, want %s", err, code)
		}
		if _, err := b.s.AddFingerprints(t.Context(), c, many[:1], 8); codeOf(err) != code {
			t.Errorf("prints: %v, want %s", err, code)
		}
	}
	b.complete(call, 1, nil) // the upload lease goes on
	if _, err := b.s.AddFingerprints(t.Context(), call, many[:1], 8); err != nil {
		t.Errorf("under the upload lease: %v", err)
	}
	b.artifact(call, "last", "x")
	b.sealed(id)
	b.verdict(id)
	if _, err := b.s.FingerprintKey(t.Context(), call); codeOf(err) != "attempt_closed" {
		t.Errorf("afterwards: %v", err)
	}
	if n := b.kept(id); n != 0 {
		t.Errorf("%d rows afterwards", n)
	}
}

// Prints whose attempt ended without a verdict do not stay, and a replica notices
// another one with another key only while that one lives.
func TestWhatALiveReplicaNotes(t *testing.T) {
	t.Parallel()
	b := newSecretBench(t)
	b.secrets = nil
	reads := projections.NewReader(b.pool)
	id, call := b.started()
	_, err := b.s.FingerprintKey(t.Context(), call)
	b.must(err)
	_, err = b.s.AddFingerprints(t.Context(), call, nil, 8)
	b.must(err)
	live, _ := b.started()
	b.must(reads.GiveFingerprintKey(t.Context(), live, b.s.Keys.ID(), true))
	b.complete(call, 0, nil)
	b.sealed(id)
	if b.kept(id) != 1 {
		t.Fatal("an end without a verdict deletes the prints; nothing is tried")
	}
	mine, other := b.s.Keys.ID(), commands.NewFingerprintKeys().ID()
	note := func(key projections.FingerprintKeyID, since time.Time) (int, time.Time) {
		t.Helper()
		n, now, err := reads.NoteFingerprintKey(t.Context(), key, since)
		b.must(err)
		return n, now
	}
	note(other, time.Time{}) // one that has ended since
	n, began := note(mine, time.Now().Add(24*time.Hour))
	if n != 0 || b.kept(id) != 0 || b.kept(live) != 1 {
		t.Errorf("%d others, %d and %d rows", n, b.kept(id), b.kept(live))
	}
	if n, _ := note(mine, began); n != 0 {
		t.Errorf("one that said nothing since is told: %d", n)
	}
	note(other, time.Time{})
	if n, _ := note(mine, began); n != 1 {
		t.Errorf("%d others, want 1", n)
	}
	b.must(reads.ForgetFingerprintKey(t.Context(), other))
	if n, _ := note(mine, began); n != 0 {
		t.Errorf("one that took its leave is told: %d", n)
	}
}

func TestTheSecretOfFingerprintKeys(t *testing.T) {
	t.Parallel()
	id, other := domain.NewID[domain.AttemptID](uuid.New()), domain.NewID[domain.AttemptID](uuid.New())
	secret := []byte(strings.Repeat("s", 32))
	a, err := commands.SharedFingerprintKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := commands.SharedFingerprintKeys(append(slices.Clone(secret), "\r\n"...))
	c, _ := commands.SharedFingerprintKeys(append(slices.Clone(secret), 't'))
	if a.Of(id) != b.Of(id) || a.ID() != b.ID() || a.Of(id) == a.Of(other) || a.Of(id) == c.Of(id) || a.ID() == c.ID() {
		t.Error("keys do not follow from secret and attempt alone")
	}
	if _, err := commands.SharedFingerprintKeys([]byte(strings.Repeat("s", 31) + "\n")); err == nil {
		t.Error("a short secret is taken")
	}
	if first, second := commands.NewFingerprintKeys(), commands.NewFingerprintKeys(); first.ID() == second.ID() {
		t.Error("two replicas made the same keys")
	}
}
